"""Preemption on real nodes with real processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.systems import System
from wire.job.spec import JobSpec
from wire.names import JobState

SAVE = """
trap 'echo asked to save' USR1
trap 'echo asked to end; exit 3' TERM
echo up
while :; do sleep 0.2; done
"""


@pytest.fixture
def system(build: Callable[..., System]) -> System:
    made = build("gpu01")
    made.sections["preemption"] = {"strategies": ["priority"], "min_runtime_s": 0.0, "grace_s": 5.0}
    return made.start()


def test_preempted_job_saves_and_runs_again(system: System) -> None:
    with system.client() as client:
        asked = JobSpec(
            command=("/bin/sh", "-c", SAVE), gpus=8, priority=10, checkpoint_signal="USR1", checkpoint_s=1.0
        )
        [low] = client.submit(asked).ids
        system.await_jobs([low], JobState.RUNNING)
        [high] = client.submit(JobSpec(command=("/bin/true",), gpus=8, priority=90)).ids
        assert system.await_jobs([high])[high].state is JobState.COMPLETED
        again = system.await_jobs([low], JobState.RUNNING)[low]
        assert (again.attempt, again.preempted) == (2, 1)
        detail = client.job(low)
        assert detail.preemptions[0].by == f"job {high}"
        kinds = [event.kind for event in client.events(job=high).events]
        assert kinds.index("PreemptionPlanned") < kinds.index("JobPlaced")
        client.cancel(low)
        assert system.await_jobs([low])[low].state is JobState.CANCELLED
