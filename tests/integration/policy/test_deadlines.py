"""Deadlines in a running system: the job with the earliest latest start starts first."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.systems import System
from wire.job.spec import JobSpec
from wire.names import JobState


def test_job_is_moved_ahead_to_meet_its_deadline(build: Callable[..., System]) -> None:
    system = build("gpu01")
    system.sections["backfill"] = {"deadlines": "lift"}
    system.start()
    with system.client() as client:
        blocking = client.submit(JobSpec(("sleep", "600"), gpus=8, time_limit_s=600.0)).ids[0]
        system.until(lambda: system.jobs()[blocking].state is JobState.RUNNING, "one runs")
        first = client.submit(JobSpec(("true",), gpus=8, time_limit_s=36_000.0)).ids[0]
        due = JobSpec(("true",), gpus=8, time_limit_s=60.0, deadline_at=time.time() + 3_600)
        dated = client.submit(due).ids[0]
        assert "to keep its deadline" in system.corral("explain", str(dated))
        client.cancel(blocking)
        system.until(lambda: system.jobs()[first].state is JobState.COMPLETED, "both have run")
        jobs = system.jobs()
        assert jobs[dated].started_at is not None
        assert jobs[first].started_at is not None
        assert jobs[dated].started_at < jobs[first].started_at
