"""Checkpoints are recorded, survive a restart, and are given to the next attempt."""

from __future__ import annotations

from dataclasses import replace

from controller.core.framework.interfaces import PreemptionGuards
from controller.core.model.decision.start_orders import start_frames
from controller.core.model.inputs import agent_inputs, job_inputs
from controller.core.state.job_and_node_rows import job_row, load_job
from controller.plugins.preemption.by_priority import PriorityStrategy as ByPriority
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.agent.reports import AttemptStatus, Checkpoint
from wire.job.start_conditions import Dependency, Restart, RestartWhen, Until

OLD, NEW = Checkpoint("/shared/1/step-1", 10, 1_000.0), Checkpoint("/shared/1/step-2", 20, 2_000.0)


def ended(saved: Checkpoint | None = None, **more: object) -> tuple[EngineHarness, int]:
    """A job on node a, over."""
    harness = EngineHarness()
    harness.join("a")
    job = harness.submit(spec(1, **more))
    harness.tick()
    harness.start(job)
    harness.exit(job, 1, checkpoint=saved)
    return harness, job


def test_a_checkpoint_is_on_the_record_and_in_the_next_order() -> None:
    harness, job = ended(NEW)
    assert harness.job(job).checkpoint == NEW
    assert load_job(job_row(harness.job(job), with_spec=True)).checkpoint == NEW
    (start,) = start_frames(harness.job(job), {"a": "127.0.0.1"}).values()
    assert start.checkpoint == NEW


def test_a_start_order_has_the_checkpoint_settings() -> None:
    harness = EngineHarness()
    harness.join("a")
    harness.submit(spec(1, checkpoint_command=("save",), checkpoint_signal="SIGUSR1", warn_signal="usr2"))
    (start,) = harness.tick()
    assert (start.checkpoint_command, start.checkpoint_signal, start.warn_signal) == (
        ("save",),
        "USR1",
        "USR2",
    )
    assert start.checkpoint is None


def test_the_newest_checkpoint_of_a_gang_counts() -> None:
    harness = EngineHarness()
    harness.join("a")
    harness.join("b")
    job = harness.submit(spec(2, nodes=2))
    harness.tick()
    harness.start(job)
    harness.exit(job, 0, node="b", checkpoint=NEW)
    harness.exit(job, 0, node="a", checkpoint=OLD)
    assert harness.job(job).checkpoint == NEW


def saved(harness: EngineHarness, job: int, found: Checkpoint, node: str = "a") -> None:
    """The agent reports a checkpoint of a running job."""
    status = AttemptStatus(job, harness.job(job).attempt, 100 + job, 1_000.0, checkpoint=found)
    harness.tell(agent_inputs.AgentReported(node, status))


def test_preemption_counts_only_work_after_the_last_checkpoint() -> None:
    harness = EngineHarness()
    harness.join("a")
    job = harness.submit(spec(8))
    harness.tick()
    harness.start(job)
    harness.now = 1_000.0 + 7_200.0
    assert harness.job(job).unsaved(harness.now) == 16.0
    saved(harness, job, Checkpoint("/shared/1/step-9", 10, harness.now - 900.0))
    assert harness.job(job).unsaved(harness.now) == 2.0
    assert harness.restarted().job(job).unsaved(harness.now) == 2.0
    harness.tell(job_inputs.Preempt(job, "root"))
    harness.exit(job, None, signal=15, why="preempted")
    [ended] = harness.job(job).preemptions
    assert ended.gpu_hours == 2.0


def test_the_next_attempt_gets_the_checkpoint_from_before_a_host_loss() -> None:
    harness = EngineHarness()
    harness.join("a")
    job = harness.submit(spec(1, restart=Restart(RestartWhen.ALWAYS, 1)))
    harness.tick()
    harness.start(job)
    harness.now += 600.0
    saved(harness, job, Checkpoint("/shared/1/step-1", 10, harness.now - 60.0))
    harness.exit(job, 1)
    harness.now += 600.0
    [start] = harness.tick()
    assert start.checkpoint == Checkpoint("/shared/1/step-1", 10, 1_540.0)


def test_a_checkpoint_is_recorded_once_with_a_time_not_after_now() -> None:
    harness = EngineHarness()
    harness.join("a")
    job = harness.submit(spec(1))
    harness.tick()
    harness.start(job)
    found = Checkpoint("/shared/1/step-1", 10, 900.0)
    saved(harness, job, found)
    before = len(harness.events)
    saved(harness, job, found)
    saved(harness, job, Checkpoint("/shared/1/step-0", 10, 800.0))
    assert len(harness.events) == before
    saved(harness, job, Checkpoint("/shared/1/step-2", 10, 5_000.0))
    assert harness.job(job).checkpoint == Checkpoint("/shared/1/step-2", 10, harness.now)


def test_job_that_depends_on_a_checkpoint_starts_while_the_other_job_runs() -> None:
    harness = EngineHarness()
    harness.join("a")
    first = harness.submit(spec(1))
    second = harness.submit(spec(1, after=(Dependency(Until.CHECKPOINT, str(first)),)))
    harness.tick()
    harness.start(first)
    assert harness.tick() == []
    saved(harness, first, Checkpoint("/shared/1/step-1", 10, harness.now))
    assert [start.job for start in harness.tick()] == [second]


def test_a_job_with_a_fresh_checkpoint_is_preempted_first() -> None:
    harness = EngineHarness(
        replace(PIPELINE, strategies=(ByPriority(),), guards=PreemptionGuards(min_runtime_s=0.0))
    )
    harness.join("a", gpus=2)
    first, second = harness.submit(spec(1, priority=10)), harness.submit(spec(1, priority=10))
    harness.tick()
    for job in (first, second):
        harness.start(job)
    harness.now += 3_600.0
    saved(harness, second, Checkpoint("/shared/2/step-1", 10, harness.now - 10.0))
    harness.submit(spec(1, priority=75))
    harness.tick()
    assert harness.stops() == [("a", second)]
