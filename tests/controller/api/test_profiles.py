"""Profiles over HTTP: who decides for whom, and the jobs of each."""

from __future__ import annotations

from typing import Any

from tests.controller.api.house import House, living

PROFILES: dict[str, Any] = {
    "inference": {"queues": ["online"], "select": {"pool": "fast"}, "order": "fifo", "backfill": "none"},
    "training": {"projects": ["vision"], "preemption": {"strategies": ["priority"], "grace_s": 5.0}},
}


async def test_profiles_are_listed_with_scope_nodes_and_policy() -> None:
    async with living(profiles=PROFILES) as house:
        await house.join("a", labels={"pool": "fast"})
        await house.join("b")
        status, body = await house.get("/v1/profiles")
        assert status == 200
        inference, training, default = body["profiles"]
        assert [each["name"] for each in body["profiles"]] == ["inference", "training", "default"]
        assert (inference["queues"], inference["terms"], inference["nodes"]) == (
            ["online"],
            ["pool in fast"],
            ["a"],
        )
        assert (inference["gpus"], inference["shared"]) == (8, ["training", "default"])
        assert (inference["policy"]["order"], inference["policy"]["backfill"]) == ("fifo", "none")
        assert (training["nodes"], training["policy"]["order"]) == (["a", "b"], "priority")
        assert training["preemption"]["strategies"] == ["priority"]
        assert (training["preemption"]["grace_s"], training["preemption"]["rate"]) == (5.0, 100)
        assert default["preemption"]["strategies"] == []


async def test_a_profile_by_its_name_and_one_that_is_not_there() -> None:
    async with living(profiles=PROFILES) as house:
        status, body = await house.get("/v1/profiles/training")
        assert (status, body["projects"]) == (200, ["vision"])
        status, body = await house.get("/v1/profiles/trianing")
        assert (status, body["code"], body["hint"]) == (404, "not_found", "Did you mean 'training'?")


async def test_without_profiles_the_list_is_empty() -> None:
    async with living() as house:
        assert (await house.get("/v1/profiles"))[1]["profiles"] == []
        status, body = await house.get("/v1/profiles/any")
        assert (status, body["hint"]) == (404, "This cluster has none: [scheduler] is for everybody.")


async def test_jobs_have_a_profile_and_can_be_listed_by_it() -> None:
    async with living(profiles=PROFILES) as house:
        await house.join("a", labels={"pool": "fast"})
        online = await house.submit(queue="online", gpus=8)
        waits = await house.submit(queue="online", gpus=8)
        await house.submit(gpus=0)
        await house.placed(online)
        _, body = await house.get("/v1/jobs?profile=inference")
        assert [(each["id"], each["profile"]) for each in body["jobs"]] == [
            (online, "inference"),
            (waits, "inference"),
        ]
        _, body = await house.get("/v1/profiles/inference")
        assert (body["queued"], body["running"]) == (1, 1)
        _, body = await house.get(f"/v1/events?job={online}")
        assert body["events"][-1]["text"] == f"job {online} got 8 GPUs on a (attempt 1, profile inference)"


async def test_a_wish_for_a_profile_is_refused_with_what_where_and_next() -> None:
    async with living(profiles=PROFILES) as house:
        await house.join("a", labels={"pool": "fast"})
        assert await refused(house, profile="inferense") == (400, "spec.profile", "Did you mean 'inference'?")
        assert await refused(house, profile="inference") == (
            403,
            "spec.profile",
            "It is for online. Without --profile the job has profile 'default'.",
        )
        job = await house.submit(queue="online", profile="inference", gpus=8, hold=True)
        status, body = await house.post(f"/v1/jobs/{job}/set", {"changes": {"queue": "slow"}})
        assert (status, body["message"]) == (403, "profile 'inference' is not for queue 'slow'")


async def refused(house: House, **spec: Any) -> tuple[int, str, str]:
    """How a submit is answered."""
    status, body = await house.post("/v1/jobs", {"spec": {"command": ["true"], **spec}})
    return status, body["where"], body["hint"]
