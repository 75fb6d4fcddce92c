"""A gang that has waited longer than gang_after_s comes before all other jobs."""

from __future__ import annotations

from dataclasses import replace

from controller.core.framework.interfaces import PreemptionGuards
from controller.core.model.wait_state import WaitRules
from controller.plugins.orders.fair import FairShareOrder
from controller.plugins.preemption.by_priority import PriorityStrategy
from tests.engine_harness import PIPELINE, EngineHarness, spec

HOUR = 3_600.0


def gang_starts(wait_s: float, gang_after_s: float | None, project: str = "") -> bool:
    """Whether the gang, and not the job of bob, starts when both nodes become free after this wait."""
    waiting = WaitRules(gang_after_s=gang_after_s)
    harness = EngineHarness(replace(PIPELINE, order=FairShareOrder(), waiting=waiting))
    for name in ("n1", "n2"):
        harness.join(name, gpus=8)
    held = [harness.submit(spec(8, time_limit_s=99 * HOUR)) for _ in range(2)]
    harness.tick()
    gang = harness.submit(spec(16, nodes=2, time_limit_s=HOUR))  # ada has used more than bob
    harness.tick_at(harness.now + wait_s)
    single = harness.submit(spec(8, time_limit_s=HOUR, project=project or "default"), "bob")
    harness.tick()
    note = "\n".join(harness.why(gang).notes)
    bound_s = None if gang_after_s is None else gang_after_s * (3 if project else 1)
    assert ("comes before all other jobs" in note) is (bound_s is not None and wait_s > bound_s)
    for job in held:
        harness.exit(job)
    harness.tick()
    assert bool(harness.nodes_of(gang)) is not bool(harness.nodes_of(single))
    return bool(harness.nodes_of(gang))


def test_gang_is_first_after_the_bound() -> None:
    assert gang_starts(25 * HOUR, 24 * HOUR)


def test_share_decides_before_the_bound_and_without_one() -> None:
    assert not gang_starts(23 * HOUR, 24 * HOUR)
    assert not gang_starts(25 * HOUR, None)


def test_gang_of_a_project_above_its_share_waits_three_times_as_long() -> None:
    assert not gang_starts(71 * HOUR, 24 * HOUR, project="other")
    assert gang_starts(73 * HOUR, 24 * HOUR, project="other")


def test_gang_that_was_preempted_comes_first_again_at_once() -> None:
    guards = PreemptionGuards(min_runtime_s=0.0, cooldown_s=0.0, grace_s=0.0)
    waiting = WaitRules(gang_after_s=24 * HOUR)
    policy = replace(
        PIPELINE,
        order=FairShareOrder(),
        waiting=waiting,
        strategies=(PriorityStrategy(least=75),),
        guards=guards,
    )
    harness = EngineHarness(policy)
    for name in ("n1", "n2"):
        harness.join(name, gpus=8)
    gang = harness.submit(spec(16, nodes=2, time_limit_s=HOUR))  # ada uses more than bob from now on
    harness.tick()
    harness.now += 0.5 * HOUR
    urgent = harness.submit(spec(16, nodes=2, time_limit_s=HOUR, priority=100), "pi")
    harness.tick()
    harness.exit(gang, None, signal=15, why="preempted")
    harness.tick()
    assert harness.nodes_of(urgent) == ["n1", "n2"]
    single = harness.submit(spec(8, time_limit_s=HOUR), "bob")
    harness.tick()
    assert "comes before all other jobs" in "\n".join(harness.why(gang).notes)
    harness.exit(urgent)
    harness.tick()
    assert harness.nodes_of(gang) == ["n1", "n2"]
    assert harness.nodes_of(single) == []
