"""Lent GPUs are reclaimed in a running system: the borrower is stopped, and starts again later."""

from __future__ import annotations

from collections.abc import Callable

from tests.systems import System
from wire.api.forecasts import WhatIf
from wire.job.spec import JobSpec
from wire.names import JobState


def test_borrowing_project_is_preempted_for_the_lender(build: Callable[..., System]) -> None:
    system = build("gpu01")
    vision = {"gpus": 2, "borrow": {"gpus": 6}}
    system.sections["quota"] = {"reclaim": "preempt", "projects": {"vision": vision, "speech": {"gpus": 6}}}
    system.sections["preemption"] = {"min_runtime_s": 0.0, "grace_s": 1.0}
    system.start()

    def job(project: str, gpus: int) -> JobSpec:
        return JobSpec(("sleep", "600"), gpus=gpus, project=project, memory_mib=64, grace_s=1.0)

    with system.client() as client:
        own, borrowed = (client.submit(job("vision", gpus)).ids[0] for gpus in (2, 6))
        system.await_jobs([own, borrowed], JobState.RUNNING)
        plan = client.what_if(WhatIf(submit=(job("speech", 4),)))
        assert [each.job for each in plan.preempted] == [borrowed]
        mine = client.submit(job("speech", 4)).ids[0]
        system.await_jobs([mine], JobState.RUNNING)
        assert system.jobs()[own].state is JobState.RUNNING
        assert system.jobs()[borrowed].state is JobState.QUEUED
        told = system.corral("events")
        assert f"preempts job {borrowed} on " in told
        assert "(reclaimed quota)" in told
        for each in (own, borrowed, mine):
            client.cancel(each)
