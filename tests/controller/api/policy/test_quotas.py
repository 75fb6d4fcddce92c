"""Quotas through the API."""

from __future__ import annotations

from controller.core.model.inputs import policy_inputs
from tests.controller.api.running_controller import RunningController, start_controller
from tests.controller.store.scratch import scratch


async def test_quota_is_set_shown_enforced_and_removed(api: RunningController) -> None:
    await api.join("gpu01", gpus=4)
    me = (await api.get("/v1/health"))[1]["user"]
    await api.placed(await api.submit(gpus=1, cpu_milli=2000))
    path = f"/v1/quotas/user/{me}"
    status, view = await api.post(f"{path}/set", {"quota": {"hard": {"gpus": 2}}})
    assert (status, view["quota"]["hard"]["gpus"], view["edited"]) == (200, 2, True)
    assert (view["used"]["gpus"], view["used"]["running"]) == (1, 1)
    assert view["used"]["gpu_hours"] < 1 < 167 < view["gpu_hours_planned"] < 168, "no week has passed"
    status, problem = await api.post("/v1/jobs", {"spec": {"command": ["true"], "gpus": 4}})
    assert (status, problem["code"]) == (403, "over_quota")
    _, listed = await api.get("/v1/quotas")
    assert listed["quotas"][0]["quota"] == view["quota"]
    assert {(each["scope"], each["name"]) for each in listed["quotas"]} == {
        ("user", me),
        ("project", "default"),
        ("queue", "default"),
    }
    status, view = await api.post(f"{path}/unset")
    assert (status, view["quota"]["hard"]["gpus"], view["edited"]) == (200, None, False)
    status, problem = await api.post(f"{path}/unset")
    assert (status, problem["code"]) == (404, "not_found")
    _, answer = await api.get("/v1/events")
    assert [event["text"] for event in answer["events"] if event["kind"].startswith("Quota")] == [
        f"{me} set the quota of user {me}",
        f"{me} removed the quota that was set for user {me}",
    ]


async def test_job_over_quota_waits_with_a_reason_and_starts_when_allowed(api: RunningController) -> None:
    await api.join("gpu01")
    await api.post("/v1/quotas/user/*/set", {"quota": {"hard": {"running": 1}}})
    first, second = await api.submit(), await api.submit()
    await api.placed(first)
    _, answer = await api.get(f"/v1/jobs/{second}")
    assert (answer["job"]["reason"], answer["why"]["reason"]) == ("quota", "quota")
    assert "on running jobs: 1 of 1 in use" in answer["why"]["sentence"]
    _, listed = await api.get("/v1/jobs", state="QUEUED")
    assert [job["reason"] for job in listed["jobs"]] == ["quota"]
    await api.post("/v1/quotas/user/*/set", {"quota": {"hard": {"running": 2}}})
    await api.placed(second)


async def test_invalid_quota_is_refused_with_its_field(api: RunningController) -> None:
    for path, quota, where in (
        ("group/x", {}, "scope"),
        ("user/x%0Ay", {}, "name"),
        ("user/x", {"borrow": {"gpus": 1}}, "quota.borrow.gpus"),
        ("user/x", {"hard": {"gpsu": 1}}, "quota.hard.gpsu"),
    ):
        status, problem = await api.post(f"/v1/quotas/{path}/set", {"quota": quota})
        assert (status, problem["where"]) == (400, where), problem


async def test_configured_queues_are_listed() -> None:
    async with start_controller(queues={"short": {"max_time_limit_s": 60.0}}) as api:
        job = await api.submit(queue="short")
        assert (await api.get(f"/v1/jobs/{job}"))[1]["spec"]["time_limit_s"] == 60
        status, problem = await api.post("/v1/jobs", {"spec": {"command": ["true"], "queue": "shrot"}})
        assert (status, problem["where"]) == (400, "spec.queue")
        assert problem["hint"] == "Did you mean 'short'?"


async def test_quota_survives_a_restart() -> None:
    with scratch() as home:
        async with start_controller(home) as api:
            await api.post("/v1/quotas/project/vision/set", {"quota": {"hard": {"queued": 0}}})
        async with start_controller(home) as api:
            body = {"spec": {"command": ["true"], "project": "vision"}}
            status, problem = await api.post("/v1/jobs", body)
            assert (status, problem["code"]) == (403, "over_quota")
            await api.handle(policy_inputs.UnsetQuota("project", "vision", "root"))
        async with start_controller(home) as api:
            assert (await api.post("/v1/jobs", body))[0] == 201


async def test_hours_in_force_are_shown_with_quotas_and_shares() -> None:
    hours = {"all": {"hours": ["mon-sun"], "quota": {"users": {"*": {"gpus": 2}}}, "weights": {"a": 3.0}}}
    async with start_controller(hours=hours) as api:
        await api.join("gpu01", gpus=4)
        await api.submit(project="a")
        _, quotas = await api.get("/v1/quotas")
        assert quotas["hours"] == {"tables": ["all"], "until": None, "then": []}
        [limit] = [each["quota"]["hard"]["gpus"] for each in quotas["quotas"] if each["name"] == "*"]
        assert limit == 2
        _, shares = await api.get("/v1/shares")
        assert shares["hours"] == quotas["hours"]
        assert {each["share"]: each["weight"] for each in shares["shares"]}["a"] == 3.0
        _, node = await api.get("/v1/nodes/gpu01")
        assert (node["switches"], node["datasets"]) == ([], [])
    async with start_controller() as api:
        assert (await api.get("/v1/quotas"))[1]["hours"] is None


async def test_a_node_shows_its_switches_and_data_sets() -> None:
    topology = {"switches": {"rack1": "gpu[01-02]", "spine": {"switches": "rack1"}}}
    async with start_controller(topology=topology, datasets={"least_run_s": 0.0}) as api:
        await api.join("gpu01", gpus=4)
        api.daemon.state.nodes.datasets.note(["imagenet"], "gpu01", 10.0, api.daemon.now())
        _, node = await api.get("/v1/nodes/gpu01")
        assert node["switches"] == ["spine", "rack1"]
        assert [each["name"] for each in node["datasets"]] == ["imagenet"]
