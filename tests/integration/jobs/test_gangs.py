"""An elastic job on real nodes: it starts on free nodes, grows, and gives up a node."""

from __future__ import annotations

from collections.abc import Callable

from tests.systems import System
from wire.job.gangs import Gang
from wire.job.spec import JobSpec
from wire.names import JobState

WAIT = ("/bin/sh", "-c", "while :; do sleep 1; done")


def test_elastic_job_runs_with_the_nodes_it_gets(build: Callable[..., System]) -> None:
    system = build("gpu01", "gpu02")
    system.sections["preemption"] = {"strategies": ["priority"], "min_runtime_s": 0.0, "grace_s": 5.0}
    system.start()
    with system.client() as client:

        def nodes(job: int) -> int:
            return client.job(job).job.nodes

        [other] = client.submit(JobSpec(command=WAIT, gpus=8, priority=50)).ids
        system.await_jobs([other], JobState.RUNNING)
        gang = Gang(min_nodes=1, elastic=True)
        [job] = client.submit(JobSpec(command=WAIT, gpus=16, nodes=2, priority=10, gang=gang)).ids
        assert system.await_jobs([job], JobState.RUNNING)[job].nodes == 1
        client.cancel(other)
        system.until(lambda: nodes(job) == 2, "the job grows")
        [high] = client.submit(JobSpec(command=("/bin/true",), gpus=8, priority=90)).ids
        assert system.await_jobs([high])[high].state is JobState.COMPLETED
        left = client.job(job).job
        assert (left.state, left.nodes, left.attempt, left.preempted) == (JobState.RUNNING, 1, 1, 0)
        client.cancel(job)
        assert system.await_jobs([job])[job].state is JobState.CANCELLED
