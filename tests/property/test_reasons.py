"""If the cause that explain names is removed, the job starts or waits for another reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import given, settings

from controller.core.model.inputs import agent_inputs, job_inputs, node_inputs, policy_inputs
from controller.core.pipeline.pipeline import Pipeline
from tests.engine_harness import EngineHarness
from tests.property.test_advice import EXAMPLES, STATES, build
from wire.job.spec import JobSpec
from wire.names import JobState, Reason

KEPT_BY_WAITING_JOBS = (Reason.PRIORITY, Reason.PROMISED, Reason.OTHERS_DEADLINE)


@settings(max_examples=EXAMPLES, deadline=None)
@given(**STATES)
def test_without_the_named_cause_the_reason_is_another(
    pipeline: Pipeline,
    site: Mapping[str, Any],
    jobs: list[JobSpec],
    ended: list[int],
    pause: float,
    which: int,
) -> None:
    """Remove only the named cause. The job then starts, or waits for another reason."""
    harness, waiting = build(pipeline, site, jobs, ended, pause)
    waiting = [each for each in waiting if harness.job(each).ready]
    if not waiting:
        return
    job = waiting[which % len(waiting)]
    why = harness.why(job)
    _take_away(harness, job, why.reason, site, next_pass="next pass" in why.sentence)
    if why.reason in KEPT_BY_WAITING_JOBS:
        harness.tick()
        assert harness.job(job).state is not JobState.QUEUED, why
        return
    after = harness.why(job)
    still = after.reason is why.reason
    alone = "'near" in after.sentence  # no job is left near which it may run
    assert not still or alone, (why, after)


def _take_away(
    harness: EngineHarness, job: int, reason: Reason, site: Mapping[str, Any], *, next_pass: bool
) -> None:
    live = [each.id for each in harness.state.live() if each.id != job]
    waiting = [each for each in live if harness.job(each).state is JobState.QUEUED]
    if reason in KEPT_BY_WAITING_JOBS and not next_pass:
        _cancel(harness, waiting)
    elif reason in (Reason.RESOURCES, Reason.LICENCE):
        _cancel(harness, [each for each in live if each not in waiting])
    if reason is Reason.RESOURCES:
        for node in [node.name for node in harness.state.nodes.rows if node.drained]:
            harness.tell(node_inputs.Resume(node, "root"))
        for node, gpu in site["cordon"]:
            harness.tell(node_inputs.ResumeGpu(node, gpu, "root"))
            harness.tell(agent_inputs.GpuChecked(node, f"GPU-{node}-{gpu}", True))
        if site["taint"]:
            harness.tell(node_inputs.MarkNode(site["taint"], "root", {}, {"dedicated:NoSchedule": None}))
    elif reason is Reason.RESERVATION:
        harness.tell(policy_inputs.CancelReservation("upkeep", "root"))
    elif reason is Reason.QUOTA:
        harness.tell(policy_inputs.UnsetQuota("user", "a", "root"))
    elif reason is Reason.DEADLINE:
        harness.tell(job_inputs.Edit(job, "root", {"deadline_at": None}))


def _cancel(harness: EngineHarness, jobs: Iterable[int]) -> None:
    for job in jobs:
        harness.tell(job_inputs.Cancel(job, "root"))
        for node in harness.nodes_of(job):
            if harness.job(job).members[node].ended_at is None:
                harness.exit(job, None, node, signal=15, why="cancelled")
