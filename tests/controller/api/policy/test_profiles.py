"""Profiles over HTTP: their scope and policy, and their jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.controller.api.running_controller import RunningController, start_controller

PROFILES: dict[str, Any] = {
    "inference": {"queues": ["online"], "select": {"pool": "fast"}, "order": "fifo", "backfill": "none"},
    "training": {"projects": ["vision"], "preemption": {"strategies": ["priority"], "grace_s": 5.0}},
}


async def test_profiles_are_listed_with_scope_nodes_and_policy() -> None:
    async with start_controller(profiles=PROFILES) as api:
        await api.join("a", labels={"pool": "fast"})
        await api.join("b")
        status, body = await api.get("/v1/profiles")
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


async def test_profile_is_shown_by_name_and_an_unknown_one_is_not_found() -> None:
    async with start_controller(profiles=PROFILES) as api:
        status, body = await api.get("/v1/profiles/training")
        assert (status, body["projects"]) == (200, ["vision"])
        status, body = await api.get("/v1/profiles/trianing")
        assert (status, body["code"], body["hint"]) == (404, "not_found", "Did you mean 'training'?")


async def test_without_profiles_the_list_is_empty() -> None:
    async with start_controller() as api:
        assert (await api.get("/v1/profiles"))[1]["profiles"] == []
        status, body = await api.get("/v1/profiles/any")
        assert (status, body["hint"]) == (
            404,
            "This cluster has no profiles: [scheduler] applies to all jobs.",
        )


RACK = """
from dataclasses import dataclass
from typing import ClassVar

@dataclass(frozen=True)
class Rack:
    name: ClassVar[str] = "rack"
    def concerns(self, part): return True
    def explain(self, part): return "in another rack"
    def keep(self, part, nodes, rows): raise KeyError("zone")
"""


@pytest.mark.parametrize("on_error", ["wait", "pass"])
async def test_failing_filter_is_logged_and_shown_with_its_profile(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, on_error: str
) -> None:
    file = tmp_path / "rack.py"
    file.write_text(RACK)
    filters = ["available", "capacity", "gpu", {"name": "rack", "on_error": on_error}]
    async with start_controller(
        plugins={"files": [str(file)]}, scheduler={"filters": filters}, profiles=PROFILES
    ) as api:
        await api.join("a")
        assert (await api.get("/v1/profiles/training"))[1]["failing"] == []
        for _ in range(4):
            job = await api.submit(gpus=1, project="vision")
            if on_error == "pass":
                assert await api.placed(job) == ["a"]
            else:
                assert (await api.get(f"/v1/jobs/{job}"))[1]["job"]["state"] == "QUEUED"
        await api.until(lambda: len(_lines(caplog)) == 3)
        [failing] = (await api.get("/v1/profiles/training"))[1]["failing"]
        assert failing == "filter rack: KeyError: 'zone'; it is not called again"
        assert _lines(caplog) == ["the filter rack failed: KeyError: 'zone'"] * 3


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "corral.daemon"]


async def test_jobs_show_their_profile_and_are_listed_by_profile() -> None:
    async with start_controller(profiles=PROFILES) as api:
        await api.join("a", labels={"pool": "fast"})
        online = await api.submit(queue="online", gpus=8)
        waits = await api.submit(queue="online", gpus=8)
        await api.submit(gpus=0)
        await api.placed(online)
        _, body = await api.get("/v1/jobs?profile=inference")
        assert [(each["id"], each["profile"]) for each in body["jobs"]] == [
            (online, "inference"),
            (waits, "inference"),
        ]
        _, body = await api.get("/v1/profiles/inference")
        assert (body["queued"], body["running"]) == (1, 1)
        _, body = await api.get(f"/v1/events?job={online}")
        assert (
            body["events"][-1]["text"]
            == f"job {online} was placed on a with 8 GPUs (attempt 1, profile inference)"
        )


async def test_unavailable_profile_is_refused_with_field_and_hint() -> None:
    async with start_controller(profiles=PROFILES) as api:
        await api.join("a", labels={"pool": "fast"})
        assert await refused(api, profile="inferense") == (400, "spec.profile", "Did you mean 'inference'?")
        assert await refused(api, profile="inference") == (
            403,
            "spec.profile",
            "It is for online. Without --profile the job has profile 'default'.",
        )
        job = await api.submit(queue="online", profile="inference", gpus=8, hold=True)
        status, body = await api.post(f"/v1/jobs/{job}/set", {"changes": {"queue": "slow"}})
        assert (status, body["message"]) == (403, "profile 'inference' is not for queue 'slow'")


async def refused(api: RunningController, **spec: Any) -> tuple[int, str, str]:
    """How a submit is answered."""
    status, body = await api.post("/v1/jobs", {"spec": {"command": ["true"], **spec}})
    return status, body["where"], body["hint"]
