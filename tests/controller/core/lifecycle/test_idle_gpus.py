"""Jobs with idle GPUs are flagged, warned, and ended if the site wants it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.lifecycle.idle_gpus import IdleAction, IdlePolicy
from controller.core.model.events.attempts import IdleEnded, IdleNoted
from controller.core.model.inputs import agent_inputs, job_inputs, node_inputs
from controller.core.model.inputs.input import Requester
from controller.core.state.job_and_node_rows import job_row, load_job
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.agent.orders import Note, Stop
from wire.agent.reports import AttemptStatus
from wire.job.start_conditions import OnNodeLost
from wire.names import JobState, Reason


def idle_job(reclaim: IdleAction = IdleAction.FLAG, **more: object) -> tuple[EngineHarness, int]:
    """A job with two GPUs that has run for an hour, the last 40 minutes of it without using them."""
    harness = EngineHarness(replace(PIPELINE, idling=IdlePolicy(1_800.0, reclaim, 600.0)))
    harness.join("a")
    job = harness.submit(spec(2, **more))
    harness.tick()
    harness.start(job)
    harness.now += 3_600.0
    tell_idle(harness, job)
    return harness, job


def tell_idle(harness: EngineHarness, job: int, attempt: int = 1) -> None:
    harness.tell(agent_inputs.GpusIdle(job, attempt, 1_000.0 + 1_200.0))


def test_an_idle_job_is_flagged_and_warned_once() -> None:
    harness, job = idle_job()
    tell_idle(harness, job)
    assert [type(each) for each in harness.events].count(IdleNoted) == 1
    assert [sent.frame for sent in harness.sent if isinstance(sent.frame, Note)] == [
        Note(job, 1, "its GPUs have been idle for 40m00s")
    ]
    assert harness.job(job).reason is Reason.IDLE
    assert harness.why(job).sentence == "running on a; its GPUs have been idle for 40m00s"
    kept = load_job(job_row(harness.job(job), with_spec=True))
    assert (kept.idle_since, kept.reason) == (2_200.0, Reason.IDLE)


@pytest.mark.parametrize(
    ("reclaim", "state", "reason"),
    [
        (IdleAction.REQUEUE, JobState.QUEUED, Reason.IDLE),
        (IdleAction.CANCEL, JobState.CANCELLED, Reason.IDLE),
    ],
)
@pytest.mark.parametrize("loss", ["reboot", "declared lost", "lease"])
def test_an_idle_job_whose_node_is_lost_while_it_stops_ends_as_configured(
    reclaim: IdleAction, state: JobState, reason: Reason, loss: str
) -> None:
    policy = OnNodeLost.REQUEUE if loss == "lease" else None
    harness, job = idle_job(reclaim, on_node_lost=policy)
    harness.now += 600.0
    tell_idle(harness, job)
    assert harness.stops() == [("a", job)]
    if loss == "reboot":
        harness.join("a", boot="b2")
    else:
        harness.tell(agent_inputs.LinkWentDown("a", "cable"))
        lost = agent_inputs.NodeSilent("a", 1e6) if loss == "lease" else node_inputs.DeclareLost("a", "root")
        harness.tell(lost)
    assert (harness.job(job).state, harness.job(job).reason) == (state, reason)
    assert harness.job(job).wait.restarts == 0


def test_a_kept_job_is_neither_flagged_nor_ended_until_its_time() -> None:
    harness, job = idle_job(IdleAction.CANCEL)
    ada = Requester("ada")
    assert harness.job(job).idle_until is not None
    harness.tell(job_inputs.KeepIdle(job, "ada", 7_200.0, "reads plots", ada))
    assert (harness.job(job).idle_since, harness.job(job).reason) == (None, Reason.NONE)
    assert harness.why(job).sentence == "running on a; its GPUs may be idle for 2h00m: reads plots"
    kept = load_job(job_row(harness.job(job), with_spec=True))
    assert (kept.kept_until, kept.kept_why) == (harness.now + 7_200.0, "reads plots")
    harness.now += 7_199.0
    tell_idle(harness, job)
    assert (harness.job(job).idle_since, harness.stops()) == (None, [])
    harness.now += 1.0
    tell_idle(harness, job)
    harness.now += 600.0
    tell_idle(harness, job)
    assert harness.stops() == [("a", job)]


def test_owners_keep_idle_gpus_only_for_a_limited_time() -> None:
    harness, job = idle_job()
    too_long = job_inputs.KeepIdle(job, "ada", 43_201.0, "", Requester("ada"))
    refusal = harness.refuse(too_long)
    assert (refusal.code, refusal.message) == (
        "not_allowed",
        "owners may keep idle GPUs for at most 12h00m",
    )
    harness.tell(replace(too_long, asker=Requester("root", operator=True)))
    assert harness.job(job).kept_until == harness.now + 43_201.0
    waiting = harness.submit(spec(2, hold=True))
    assert harness.refuse(job_inputs.KeepIdle(waiting, "ada", 60.0, "")).message == (
        f"job {waiting} is QUEUED; only running jobs can be kept"
    )


def test_the_idle_time_stops_when_the_node_is_away() -> None:
    """The idle time starts at zero, with the whole grace, when readings arrive again."""
    harness, job = idle_job(IdleAction.REQUEUE)
    harness.now += 500.0
    harness.tell(agent_inputs.LinkWentDown("a", "cable"))
    assert (harness.job(job).idle_since, harness.job(job).idle_until) == (None, None)
    assert harness.job(job).reason is Reason.NONE
    harness.now += 500.0
    harness.join("a", (AttemptStatus(job, 1, 7, 1.0),))
    tell_idle(harness, job)
    assert harness.stops() == []
    assert harness.job(job).idle_until == harness.now + 600.0


def test_a_job_that_works_again_loses_its_flag() -> None:
    harness, job = idle_job(IdleAction.CANCEL)
    harness.now += 300.0
    harness.tell(agent_inputs.GpusBusy(job, 1))
    assert isinstance(harness.events[-1], IdleEnded)
    assert (harness.job(job).idle_since, harness.job(job).reason) == (None, Reason.NONE)
    harness.now += 600.0
    tell_idle(harness, job)  # a new idle period begins, with a new grace
    assert harness.stops() == []


def test_by_default_an_idle_job_is_only_flagged() -> None:
    harness, job = idle_job()
    harness.now += 86_400.0
    tell_idle(harness, job)
    assert harness.stops() == []


@pytest.mark.parametrize(
    ("reclaim", "state", "saves"),
    [(IdleAction.REQUEUE, JobState.QUEUED, True), (IdleAction.CANCEL, JobState.CANCELLED, False)],
)
def test_an_idle_job_is_ended_after_its_grace(reclaim: IdleAction, state: JobState, saves: bool) -> None:
    harness, job = idle_job(reclaim, checkpoint_signal="USR1" if saves else "")
    assert "it will be ended in 10m00s if that does not change" in harness.why(job).sentence
    harness.now += 599.0
    tell_idle(harness, job)
    assert harness.stops() == []
    harness.now += 1.0
    tell_idle(harness, job)
    [stop] = [sent.frame for sent in harness.sent if isinstance(sent.frame, Stop)]
    assert (stop.why, stop.checkpoint_s) == ("idle", 60.0 if saves else 0.0)
    tell_idle(harness, job)
    assert len(harness.stops()) == 1
    harness.exit(job, None, signal=15, why="idle")
    ended = harness.job(job)
    assert (ended.state, ended.reason, ended.idle_since) == (state, Reason.IDLE, None)
    assert "its GPUs were idle for 50m00s" in ended.detail


def test_an_idle_job_that_completes_meanwhile_is_completed() -> None:
    harness, job = idle_job(IdleAction.CANCEL)
    harness.now += 600.0
    tell_idle(harness, job)
    harness.exit(job, 0)
    assert harness.job(job).state is JobState.COMPLETED


def test_a_reading_of_an_old_attempt_changes_nothing() -> None:
    harness, job = idle_job()
    before = len(harness.events)
    tell_idle(harness, job, attempt=2)
    harness.tell(agent_inputs.GpusBusy(job, 2))
    tell_idle(harness, 99)
    assert len(harness.events) == before
