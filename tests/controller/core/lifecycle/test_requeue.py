"""Jobs that their owners queue again."""

from __future__ import annotations

from controller.core.model.inputs import job_inputs
from tests.engine_harness import EngineHarness, spec
from wire.names import JobState, Reason


def running() -> tuple[EngineHarness, int]:
    harness = EngineHarness()
    harness.join("gpu01")
    job = harness.submit(spec(8))
    harness.tick()
    harness.start(job)
    return harness, job


def test_a_requeued_job_runs_again_as_another_attempt() -> None:
    harness, job = running()
    harness.tell(job_inputs.Requeue(job, "ada"))
    assert harness.stops() == [("gpu01", job)]
    harness.exit(job, None, signal=15, why="requeued")
    waiting = harness.job(job)
    assert (waiting.state, waiting.reason, waiting.detail) == (
        JobState.QUEUED,
        Reason.REQUEUED,
        "requeued by ada",
    )
    (again,) = harness.tick()
    assert (again.job, again.attempt) == (job, 2)
    assert harness.job(job).preemptions == ()


def test_a_requeued_job_that_completes_meanwhile_is_completed() -> None:
    harness, job = running()
    harness.tell(job_inputs.Requeue(job, "ada"))
    harness.exit(job, 0)
    assert harness.job(job).state is JobState.COMPLETED


def test_only_running_jobs_can_be_requeued() -> None:
    harness, job = running()
    waiting = harness.submit(spec(8))
    assert harness.refuse(job_inputs.Requeue(waiting, "ada")).message == "job 2 is QUEUED already"
    harness.tell(job_inputs.Requeue(job, "ada"))
    assert harness.refuse(job_inputs.Requeue(job, "ada")).message == "job 1 is being stopped already"
    harness.exit(job, 0)
    refused = harness.refuse(job_inputs.Requeue(job, "ada"))
    assert (refused.message, refused.hint) == (
        "job 1 is COMPLETED already",
        "A job that has ended does not run again: submit it again.",
    )
    assert harness.refuse(job_inputs.Requeue(99, "ada")).code == "not_found"
