"""Quotas through the API."""

from __future__ import annotations

from controller.core import inputs
from tests.controller.api.house import House, living
from tests.controller.store.scratch import scratch


async def test_a_quota_is_set_seen_kept_to_and_unset(house: House) -> None:
    await house.join("gpu01", gpus=4)
    me = (await house.get("/v1/health"))[1]["user"]
    await house.placed(await house.submit(gpus=1, cpu_milli=2000))
    path = f"/v1/quotas/user/{me}"
    status, view = await house.post(f"{path}/set", {"quota": {"hard": {"gpus": 2}}})
    assert (status, view["quota"]["hard"]["gpus"], view["edited"]) == (200, 2, True)
    assert (view["used"]["gpus"], view["used"]["running"], view["used"]["gpu_hours"]) == (1, 1, 168)
    status, problem = await house.post("/v1/jobs", {"spec": {"command": ["true"], "gpus": 4}})
    assert (status, problem["code"]) == (403, "over_quota")
    _, listed = await house.get("/v1/quotas")
    assert listed["quotas"][0] == view
    assert {(each["scope"], each["name"]) for each in listed["quotas"]} == {
        ("user", me),
        ("project", "default"),
        ("queue", "default"),
    }
    status, view = await house.post(f"{path}/unset")
    assert (status, view["quota"]["hard"]["gpus"], view["edited"]) == (200, None, False)
    status, problem = await house.post(f"{path}/unset")
    assert (status, problem["code"]) == (404, "not_found")
    _, told = await house.get("/v1/events")
    assert [event["text"] for event in told["events"] if event["kind"].startswith("Quota")] == [
        f"{me} set the quota of user {me}",
        f"{me} took back the quota set for user {me}",
    ]


async def test_a_job_over_quota_waits_says_so_and_starts_when_it_may(house: House) -> None:
    await house.join("gpu01")
    await house.post("/v1/quotas/user/*/set", {"quota": {"hard": {"running": 1}}})
    first, second = await house.submit(), await house.submit()
    await house.placed(first)
    _, told = await house.get(f"/v1/jobs/{second}")
    assert (told["job"]["reason"], told["why"]["reason"]) == ("quota", "quota")
    assert "on running jobs: 1 of 1 in use" in told["why"]["sentence"]
    _, listed = await house.get("/v1/jobs", state="QUEUED")
    assert [job["reason"] for job in listed["jobs"]] == ["quota"]
    await house.post("/v1/quotas/user/*/set", {"quota": {"hard": {"running": 2}}})
    await house.placed(second)


async def test_what_is_no_quota_is_refused_by_its_field(house: House) -> None:
    for path, quota, where in (
        ("group/x", {}, "scope"),
        ("user/x%0Ay", {}, "name"),
        ("user/x", {"borrow": {"gpus": 1}}, "quota.borrow.gpus"),
        ("user/x", {"hard": {"gpsu": 1}}, "quota.hard.gpsu"),
    ):
        status, problem = await house.post(f"/v1/quotas/{path}/set", {"quota": quota})
        assert (status, problem["where"]) == (400, where), problem


async def test_queues_of_the_configuration() -> None:
    async with living(queues={"short": {"max_time_limit_s": 60.0}}) as house:
        job = await house.submit(queue="short")
        assert (await house.get(f"/v1/jobs/{job}"))[1]["spec"]["time_limit_s"] == 60
        status, problem = await house.post("/v1/jobs", {"spec": {"command": ["true"], "queue": "shrot"}})
        assert (status, problem["where"]) == (400, "spec.queue")
        assert problem["hint"] == "Did you mean 'short'?"


async def test_what_was_set_is_there_after_a_restart() -> None:
    with scratch() as home:
        async with living(home) as house:
            await house.post("/v1/quotas/project/vision/set", {"quota": {"hard": {"queued": 0}}})
        async with living(home) as house:
            body = {"spec": {"command": ["true"], "project": "vision"}}
            status, problem = await house.post("/v1/jobs", body)
            assert (status, problem["code"]) == (403, "over_quota")
            await house.told(inputs.UnsetQuota("project", "vision", "root"))
        async with living(home) as house:
            assert (await house.post("/v1/jobs", body))[0] == 201
