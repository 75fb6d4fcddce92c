"""Projects over HTTP: members, weights, shares, quotas, budgets, and who may submit."""

from __future__ import annotations

import getpass

from tests.controller.api.running_controller import RunningController, start_controller


async def test_projects_have_their_members_shares_and_use() -> None:
    me = getpass.getuser()
    projects = {
        "vision": {
            "members": ["ada", me],
            "weight": 3.0,
            "organisation": "lab",
            "default_for": ["ada"],
            "budget": {"gpu_hours": 100.0},
        },
        "speech": {"organisation": "lab", "weight": 1.0},
        "maps": {"members": ["eve"]},
    }
    queues = {"night": {"projects": ["vision"]}, "any": {}}
    async with start_controller(projects=projects, queues=queues, scheduler={"order": "fair"}) as api:
        await api.post("/v1/shares", {"share": "lab", "weight": 3.0})
        await api.post("/v1/quotas/project/vision/set", {"quota": {"hard": {"gpus": 8}}})
        spec = {"command": ["true"], "project": "vision", "queue": "night", "gpus": 2, "hold": True}
        assert (await api.post("/v1/jobs", {"spec": spec}))[0] == 201
        status, body = await api.get("/v1/projects")
        assert (status, body["unknown"]) == (200, "refuse")
        found = {each["name"]: each for each in body["projects"]}
        _, alone = await api.get("/v1/projects/vision")
    assert list(found) == ["default", "maps", "speech", "vision"]
    vision = found["vision"]
    assert alone == vision
    assert (vision["members"], vision["default_for"]) == (sorted(["ada", me]), ["ada"])
    assert (vision["organisation"], vision["weight"], vision["queues"]) == ("lab", 3.0, ["night"])
    assert (vision["quota"]["quota"]["hard"]["gpus"], vision["quota"]["used"]["queued"]) == (8.0, 1)
    assert (vision["budget"]["gpu_hours_limit"], vision["budget"]["then"]) == (100.0, "alert")
    # lab has the weight 3 beside maps with 1; vision has 3 beside speech with 1.
    shares = {name: each["share"] for name, each in found.items()}
    assert shares == {"vision": 0.5625, "speech": 0.1875, "maps": 0.25, "default": None}
    assert all(each["declared"] for each in found.values())


async def test_project_that_nothing_declares_is_listed_after_its_first_job(api: RunningController) -> None:
    assert [each["name"] for each in (await api.get("/v1/projects"))[1]["projects"]] == ["default"]
    await api.post("/v1/jobs", {"spec": {"command": ["true"], "project": "vision", "hold": True}})
    _, body = await api.get("/v1/projects")
    assert [(each["name"], each["declared"]) for each in body["projects"]] == [
        ("default", True),
        ("vision", False),
    ]
    status, problem = await api.get("/v1/projects/visoin")
    assert (status, problem["where"]) == (404, "project")
    assert "there is no project 'visoin'" in problem["message"]
    assert "vision" in problem["hint"]


async def test_shares_are_unknown_if_the_order_ignores_weights() -> None:
    async with start_controller(projects={"vision": {}}, scheduler={"order": "fifo"}) as api:
        _, vision = await api.get("/v1/projects/vision")
    assert vision["share"] is None
