"""Two profiles in one controller with real processes: nodes, order, and a restart after a kill."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.systems import System
from wire.http.client import Refused
from wire.job.spec import JobSpec
from wire.names import JobState, Reason


def test_two_profiles_on_two_hosts(build: Callable[..., System]) -> None:
    system = build("gpu01", "gpu02")
    system.sections["profiles"] = {
        "inference": {"queues": ["online"], "nodes": ["gpu01"], "backfill": "none", "strategy": "pack"},
        "training": {"nodes": ["gpu02"], "order": "fair"},
    }
    system.start()
    whole = JobSpec(("sleep", "600"), gpus=8, memory_mib=64, time_limit_s=600.0)
    with system.client() as client:
        serving = client.submit(JobSpec(("sleep", "600"), gpus=1, queue="online", memory_mib=64)).ids[0]
        training = client.submit(whole).ids[0]
        system.until(
            lambda: {system.jobs()[job].state for job in (serving, training)} == {JobState.RUNNING},
            "both run",
        )
        held = {job: system.jobs()[job].held[0].node for job in (serving, training)}
        assert held == {serving: "gpu01", training: "gpu02"}
        waits = client.submit(whole).ids[0]
        system.until(lambda: client.explain(waits).why.reason is Reason.RESOURCES, "the other waits")
        assert client.explain(waits).why.losses[0].message == "outside profile training"
        with pytest.raises(Refused) as refused:
            client.submit(JobSpec(("true",), profile="inference"))
        assert refused.value.problem.code == "not_allowed"
    system.kill()
    system.start()
    listed = json.loads(system.corral("profiles", "-o", "json"))["profiles"]
    assert [(each["name"], each["queued"], each["running"]) for each in listed] == [
        ("inference", 0, 1),
        ("training", 1, 1),
        ("default", 0, 0),
    ]
    shown = system.corral("job", "show", str(waits))
    assert ["profile", "training"] in [line.split() for line in shown.splitlines()]
    with system.client() as client:
        for job in (serving, training, waits):
            client.cancel(job)
