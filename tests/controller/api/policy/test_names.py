"""An unknown name is refused, with a hint how to declare it."""

from __future__ import annotations

from typing import Any

from tests import users
from tests.controller.api.running_controller import RunningController, start_controller

NODE = {"gpus": "simulated:8xH100"}
SECTIONS: dict[str, Any] = {
    "queues": {"short": {}},
    "projects": {"vision": {}, "speech": {"members": ["ada"]}},
    "fair_share": {"organisations": {"lab": ["audio"]}},
}


async def status(api: RunningController, path: str, body: Any) -> tuple[int, str]:
    code, answer = await api.post(path, body)
    return code, answer.get("code", "")


MISSING = (404, "not_found")


async def test_share_of_an_unknown_project_is_refused() -> None:
    async with start_controller(**SECTIONS, scheduler={"unknown_projects": "open"}) as api:
        assert await status(api, "/v1/shares", {"share": "nosuch", "weight": 3}) == MISSING
        assert await status(api, "/v1/what-if", {"shares": [{"share": "nosuch", "weight": 3}]}) == MISSING
        for share in ("lab", "audio", "vision", "default"):
            assert await status(api, "/v1/shares", {"share": share, "weight": 3}) == (200, "")
        await api.submit(project="seen")
        assert await status(api, "/v1/shares", {"share": "seen", "weight": 3}) == (200, "")
        code, problem = await api.post("/v1/shares", {"share": "visoin", "weight": 3})
        assert (code, problem["where"]) == (404, "share")
        assert "Did you mean 'vision'?" in problem["hint"]


async def test_quota_of_an_undeclared_queue_or_project_is_refused() -> None:
    quota = {"quota": {"hard": {"gpus": 4}}}
    async with start_controller(**SECTIONS) as api:
        for tenant in ("queue/shrot", "project/visoin"):
            assert await status(api, f"/v1/quotas/{tenant}/set", quota) == MISSING
        for tenant in ("queue/short", "queue/default", "project/vision", "user/*"):
            assert await status(api, f"/v1/quotas/{tenant}/set", quota) == (200, "")
        asked = {"quotas": [{"scope": "queue", "name": "shrot", **quota}]}
        assert await status(api, "/v1/what-if", asked) == MISSING
    async with start_controller() as api:  # nothing is declared: every name is a queue, and a project
        for tenant in ("queue/short", "project/vision"):
            assert await status(api, f"/v1/quotas/{tenant}/set", quota) == (200, "")


@users.as_other_users
async def test_user_without_an_account_is_refused_where_jobs_run_as_users() -> None:
    spec = {"command": ["true"]}
    quota = {"quota": {"hard": {"gpus": 4}}}
    async with start_controller(nodes={"n1": NODE}, **SECTIONS) as api:
        assert await status(api, "/v1/jobs", {"spec": spec, "as_user": "nosuch"}) == MISSING
        assert await status(api, "/v1/quotas/user/nosuch/set", quota) == MISSING
        assert await status(api, "/v1/shares", {"share": "vision/nosuch", "weight": 1}) == MISSING
        for user in ("daemon", "ada"):  # an account, and a name in scheduler.toml
            assert await status(api, "/v1/jobs", {"spec": spec, "as_user": user}) == (201, "")
    async with start_controller(nodes={"n1": {**NODE, "run_as_self": True}}) as api:
        assert await status(api, "/v1/jobs", {"spec": spec, "as_user": "nosuch"}) == (201, "")


async def test_what_if_refuses_an_unknown_node_and_accepts_single_gpus(api: RunningController) -> None:
    await api.join("gpu01")
    for asked in ({"drain": ["nope"]}, {"resume": ["nope"]}, {"resume": ["nope:3"]}):
        assert await status(api, "/v1/what-if", asked) == MISSING
    await api.post("/v1/nodes/gpu01/gpus/3/cordon", {})
    job = await api.submit(gpus=8)
    code, answer = await api.post("/v1/what-if", {"resume": ["gpu01:3"]})
    assert (code, answer["refused"]) == (200, [])
    assert [shift["job"] for shift in answer["shifts"]] == [job]
