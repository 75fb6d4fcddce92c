"""Preemption victims: jobs that fit elsewhere are moved, and jobs that end soon are spared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.api.views.event_sentences import sentence
from controller.core.explain.why_no_preemption import why_no_preemption
from controller.core.framework.interfaces import PreemptionGuards
from controller.core.invariants import find_violations
from controller.core.model.events.kinds import body_of, event_of, kind_of
from controller.core.model.events.nominations import MovePlanned, MoveUndone, PreemptionPlanned
from controller.core.model.inputs import node_inputs
from controller.plugins.preemption.by_priority import PriorityStrategy
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.codec import encode
from wire.job.spec import JobSpec
from wire.names import Reason

HOUR = 3_600.0
GUARDS = PreemptionGuards(min_runtime_s=0.0, cooldown_s=0.0)


def harness_of(*nodes: str, guards: PreemptionGuards = GUARDS) -> EngineHarness:
    harness = EngineHarness(replace(PIPELINE, strategies=(PriorityStrategy(),), guards=guards))
    for name in nodes:
        harness.join(name)
    return harness


def running(harness: EngineHarness, asked: JobSpec) -> int:
    job = harness.submit(asked)
    harness.tick()
    harness.start(job)
    return job


def low(gpus: int, **more: object) -> JobSpec:
    return spec(gpus, priority=25, **{"time_limit_s": 20 * HOUR, **more})


def plans(harness: EngineHarness) -> list[PreemptionPlanned]:
    return [event for event in harness.events if isinstance(event, PreemptionPlanned)]


def three_nodes(**more: object) -> tuple[EngineHarness, int, int]:
    """Jobs of 4, 4 and 8 GPUs on the nodes a, b and c. They have run for 6, 3 and 1 hours. The job on b fits
    on the free GPUs of a. Returns the jobs on b and c; `more` belongs to the job on c.
    """
    harness = harness_of("a", "b", "c")
    old = running(harness, low(4))
    filler = running(harness, low(4))
    harness.now += 3 * HOUR
    narrow = running(harness, low(4))
    harness.now += 2 * HOUR
    wide = running(harness, low(8, **more))
    harness.exit(filler)
    harness.now += HOUR
    assert [harness.nodes_of(job) for job in (old, narrow, wide)] == [["a"], ["b"], ["c"]]
    return harness, narrow, wide


def test_a_victim_that_fits_elsewhere_is_preferred_and_moved() -> None:
    harness, narrow, _ = three_nodes()
    high = harness.submit(spec(8, priority=75, time_limit_s=HOUR))
    harness.tick()
    [plan] = plans(harness)
    # The job on b loses 12 GPU-hours and the job on c only 8, but the job on c would have to wait.
    assert [victim.job for victim in plan.victims] == [narrow]
    assert [each.node for each in plan.victims[0].target] == ["a"]
    job = harness.job(narrow)
    assert (job.reason, [each.node for each in job.claim]) == (Reason.MOVING, ["a"])
    assert not find_violations(harness.state)
    assert "moves to a, which is reserved for it (preemption)" in texts(harness, MovePlanned)
    assert "(preemption): it saves its state first" in harness.engine.explain(job, harness.now).sentence
    harness.exit(narrow, None, signal=15, why="preempted")
    started = harness.tick()
    assert {start.job: harness.nodes_of(start.job) for start in started} == {high: ["b"], narrow: ["a"]}
    harness.start(narrow)
    assert harness.job(narrow).moves[0].done_at == harness.now
    assert event_of(kind_of(plan), body_of(plan)) == plan


def test_a_victim_that_does_not_fit_elsewhere_waits() -> None:
    harness, *_ = three_nodes()
    running(harness, spec(4, priority=80))
    harness.submit(spec(8, priority=75, time_limit_s=HOUR))
    harness.tick()
    [plan] = plans(harness)
    assert [victim.target for victim in plan.victims] == [()]
    assert not any(isinstance(event, MovePlanned) for event in harness.events)


def test_a_victim_that_saves_its_state_is_preferred() -> None:
    harness, _, wide = three_nodes(checkpoint_signal="USR1")
    running(harness, spec(4, priority=80))
    harness.now += 12 * HOUR
    harness.submit(spec(8, priority=75, time_limit_s=HOUR))
    harness.tick()
    [plan] = plans(harness)
    assert [victim.job for victim in plan.victims] == [wide]


def test_a_moved_victim_waits_if_its_new_node_is_lost() -> None:
    harness, narrow, _ = three_nodes()
    harness.submit(spec(8, priority=75, time_limit_s=HOUR))
    harness.tick()
    harness.tell(node_inputs.Drain("a", "ada"))
    harness.tick()
    [undone] = [event for event in harness.events if isinstance(event, MoveUndone)]
    assert undone.job == narrow
    assert not find_violations(harness.state)


def test_no_job_is_preempted_if_a_job_ends_soon_anyway() -> None:
    harness = harness_of("a", "b")
    ending = running(harness, low(8, time_limit_s=HOUR))
    other = running(harness, low(8))
    harness.now += HOUR - 180
    high = harness.submit(spec(8, priority=75, time_limit_s=HOUR))
    harness.tick()
    assert not plans(harness)
    cycle = harness.engine.profile_cycles.of(harness.job(high))
    told = why_no_preemption(cycle, harness.job(high), harness.now)
    assert told == f"job {ending} ends in 3m00s anyway, and then it fits (spare_ending_s)"
    assert harness.engine.next_at <= harness.now + 180
    harness.now += 180
    harness.exit(ending)
    assert [start.job for start in harness.tick()] == [high]
    assert harness.job(other).stopping is None


def test_a_job_that_ends_soon_is_no_victim() -> None:
    harness = harness_of("a")
    ending = running(harness, low(4, time_limit_s=HOUR))
    other = running(harness, low(4))
    harness.now += HOUR - 180
    harness.submit(spec(8, priority=75, time_limit_s=HOUR))
    harness.tick()
    assert not plans(harness)
    harness.now += 180
    harness.exit(ending)
    harness.tick()
    [plan] = plans(harness)
    assert [victim.job for victim in plan.victims] == [other]


def test_a_job_that_runs_longer_than_its_limit_is_not_waited_for() -> None:
    """The agent has not ended the job at its limit, so the next pass preempts."""
    harness = harness_of("a", "b")
    running(harness, low(8, time_limit_s=HOUR))
    running(harness, low(8))
    harness.now += HOUR - 180
    harness.submit(spec(8, priority=75, time_limit_s=HOUR))
    harness.tick()
    harness.now = harness.engine.next_at
    harness.tick()
    assert len(plans(harness)) == 1


@pytest.mark.parametrize(("spare_s", "preempts"), [(0.0, True), (300.0, False)])
def test_predicted_ends_spare_a_job(spare_s: float, preempts: bool) -> None:
    harness = harness_of("a", guards=replace(GUARDS, spare_ending_s=spare_s))
    for _ in range(8):
        done = running(harness, low(8, name="train"))
        harness.now += HOUR
        harness.exit(done)
    running(harness, low(8, name="train"))
    harness.now += HOUR - 120
    harness.submit(spec(8, priority=75, time_limit_s=HOUR))
    harness.tick()
    assert bool(plans(harness)) is preempts
    harness.now += 240
    harness.tick()
    assert len(plans(harness)) == 1, "a job that has outlived its prediction is a victim again"


def texts(harness: EngineHarness, kind: type) -> str:
    return "; ".join(
        sentence(kind_of(event), encode(event)) for event in harness.events if isinstance(event, kind)
    )


def test_gang_that_saves_costs_more_as_a_victim_than_as_many_narrow_jobs() -> None:
    harness = harness_of("a", "b", "c", "d")
    saves = {"checkpoint_signal": "USR1", "checkpoint_s": 1.0}
    gang = running(harness, low(16, nodes=2, **saves))
    narrow = [running(harness, low(4)) for _ in range(4)]
    harness.now += 0.25 * HOUR
    harness.submit(spec(16, nodes=2, priority=75, time_limit_s=HOUR))
    harness.tick()
    [plan] = plans(harness)
    # The narrow jobs lose 4 GPU-hours and the gang none. It waits until two nodes are free, which counts as
    # 24 GPU-hours, and the narrow jobs count 16.
    assert sorted(victim.job for victim in plan.victims) == narrow
    assert harness.nodes_of(gang) == ["a", "b"]
