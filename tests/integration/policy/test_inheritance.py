"""Inherited priority in a running system: a job that others depend on comes first."""

from __future__ import annotations

from collections.abc import Callable

from tests.systems import System
from wire.job.spec import JobSpec
from wire.job.start_conditions import Dependency, Until
from wire.names import JobState


def test_job_inherits_priority_from_its_dependent(build: Callable[..., System]) -> None:
    system = build("gpu01")
    system.start()
    with system.client() as client:
        blocking = client.submit(JobSpec(("sleep", "600"), gpus=8)).ids[0]
        system.until(lambda: system.jobs()[blocking].state is JobState.RUNNING, "one runs")
        plain = client.submit(JobSpec(("true",), gpus=8)).ids[0]
        low = client.submit(JobSpec(("true",), gpus=8, priority=10)).ids[0]
        heir = client.submit(JobSpec(("true",), priority=90, after=(Dependency(Until.OK, str(low)),))).ids[0]
    system.kill()
    system.start()
    with system.client() as client:
        assert client.job(low).job.priority == 90
        assert [client.explain(job).why.position for job in (low, plain)] == [1, 2]
        assert f"its priority is inherited 90 from job {heir}" in system.corral("job", "show", str(low))
        client.cancel(heir)
        assert [client.explain(job).why.position for job in (plain, low)] == [1, 2]
        client.cancel(blocking)
        system.until(lambda: system.jobs()[low].state is JobState.COMPLETED, "all have run")
