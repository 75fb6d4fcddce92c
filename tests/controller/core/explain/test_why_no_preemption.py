"""Why no job is preempted for a waiting job: the guard, the strategy or the request that forbids it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.explain.why_no_preemption import why_no_preemption
from controller.core.framework.interfaces import PreemptionGuards
from controller.core.framework.profiles import Profile
from controller.core.model.inputs import job_inputs
from controller.plugins.preemption.by_priority import PriorityStrategy
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.job.start_conditions import Dependency, Until

HOUR = 3_600.0
UNGUARDED = PreemptionGuards(min_runtime_s=0.0, cooldown_s=0.0)


GUARDED = PreemptionGuards(min_runtime_s=300.0, cooldown_s=900.0, max_per_job=1, rate=1, window_s=HOUR)


def _guarded(guards: PreemptionGuards) -> tuple[EngineHarness, int]:
    harness = EngineHarness(replace(PIPELINE, strategies=(PriorityStrategy(),), guards=guards))
    harness.join("n1")
    low = harness.submit(spec(8, priority=25))
    harness.tick()
    harness.start(low)
    return harness, low


def no_victims_sentence(harness: EngineHarness) -> str:
    waiting = harness.submit(spec(8, priority=75))
    harness.tick()
    assert not harness.job(waiting).claim
    cycle = harness.engine.profile_cycles.of(harness.job(waiting))
    return why_no_preemption(cycle, harness.job(waiting), harness.now)


def test_a_minimum_runtime_is_named() -> None:
    harness, _ = _guarded(GUARDED)
    assert "have run for less than 5m00s (min_runtime_s)" in no_victims_sentence(harness)


@pytest.mark.parametrize(
    ("guards", "named"),
    [
        (PreemptionGuards(min_runtime_s=0.0, cooldown_s=0.0, max_per_job=1), "(max_per_job)"),
        (PreemptionGuards(min_runtime_s=0.0, cooldown_s=900.0), "(cooldown_s)"),
        (PreemptionGuards(min_runtime_s=0.0, cooldown_s=0.0, rate=1), "rate allows 1"),
    ],
)
def test_the_guard_that_is_in_the_way_after_a_preemption_is_named(
    guards: PreemptionGuards, named: str
) -> None:
    harness, low = _guarded(guards)
    harness.tell(job_inputs.Preempt(low, "root"))
    harness.exit(low, None, signal=15, why="preempted")
    harness.tick()
    harness.start(low)
    assert named in no_victims_sentence(harness)


def test_only_the_guards_that_block_together_are_named() -> None:
    harness, low = _guarded(PreemptionGuards(min_runtime_s=0.0, cooldown_s=0.0, max_per_job=1, rate=1))
    harness.tell(job_inputs.Preempt(low, "root"))
    harness.exit(low, None, signal=15, why="preempted")
    harness.tick()
    harness.start(low)
    assert no_victims_sentence(harness).endswith("are reached: rate, max_per_job")


def running(guards: PreemptionGuards, *requests: dict[str, Any]) -> EngineHarness:
    """One node of 8 GPUs on which these jobs run; preemption goes by priority."""
    harness = EngineHarness(replace(PIPELINE, strategies=(PriorityStrategy(),), guards=guards))
    harness.join("n1")
    jobs = [harness.submit(spec(**{"priority": 25, **each})) for each in requests]
    harness.tick()
    for job in jobs:
        harness.start(job)
    return harness


def test_the_number_of_jobs_that_would_have_to_be_preempted_is_named_with_the_rate() -> None:
    harness = running(replace(UNGUARDED, rate=3), *[{"gpus": 2}] * 4)
    assert no_victims_sentence(harness) == (
        "4 jobs would have to be preempted for it at once, and [preemption] rate allows 3 in 1h00m"
    )


def test_earlier_preemptions_are_named_with_the_rate() -> None:
    harness = running(replace(UNGUARDED, rate=4), *[{"gpus": 2}] * 4)
    harness.tell(job_inputs.Preempt(1, "root"))
    harness.exit(1, None, signal=15, why="preempted")
    harness.tick()
    harness.start(1)
    assert no_victims_sentence(harness) == (
        "1 job was preempted in the last 1h00m, 4 jobs would have to be for it, "
        "and [preemption] rate allows 4 in 1h00m"
    )


@pytest.mark.parametrize(
    ("asked", "protection"),
    [
        ({"priority": 75}, "excluded by the strategy priority"),
        ({"preemptible": False}, "protected by --not-preemptible"),
        ({"min_runtime_s": HOUR}, "protected by --min-runtime"),
    ],
)
def test_what_protects_the_running_jobs_is_named(asked: dict[str, Any], protection: str) -> None:
    harness = running(UNGUARDED, {"gpus": 8, **asked})
    assert no_victims_sentence(harness) == (
        f"no job on the nodes that it may use may be preempted for it: 1 {protection}"
    )


def test_jobs_that_would_free_too_little_are_counted_with_the_protected_ones() -> None:
    harness = running(UNGUARDED, {"gpus": 4}, {"gpus": 2, "priority": 90}, {"gpus": 2, "preemptible": False})
    assert no_victims_sentence(harness) == (
        "only 1 of the 3 jobs on the nodes that it may use may be preempted for it, which would not free "
        "enough resources: 1 excluded by the strategy priority, 1 protected by --not-preemptible"
    )


def test_an_inherited_priority_excludes_a_running_job() -> None:
    harness = running(UNGUARDED, {"gpus": 8})
    after = (Dependency(Until.OK, "1"),)
    harness.submit(spec(1, priority=90, after=after))
    assert no_victims_sentence(harness).endswith("1 excluded by the strategy priority")


def test_a_job_that_fits_needs_no_preemption() -> None:
    """It waits for another reason: its latest end would delay the first waiting job."""
    harness = running(UNGUARDED, {"gpus": 4, "priority": 75, "time_limit_s": HOUR})
    harness.submit(spec(8, priority=75))
    waiting = harness.submit(spec(4, priority=50))
    harness.tick()
    assert not harness.job(waiting).attempt
    cycle = harness.engine.profile_cycles.of(harness.job(waiting))
    assert why_no_preemption(cycle, harness.job(waiting), harness.now) == (
        "it fits on free resources, so no job has to be preempted for it"
    )


def test_a_guard_of_the_profile_of_the_victims_is_named() -> None:
    """The waiting job's profile has no such guard. The guards of a running job are those of its profile."""
    strict = replace(UNGUARDED, min_runtime_s=600.0)
    policy = replace(PIPELINE, strategies=(PriorityStrategy(),), guards=UNGUARDED)
    profiles = Profile("strict", replace(policy, guards=strict), users=("bo",)), Profile("default", policy)
    harness = EngineHarness(replace(policy, profiles=profiles))
    harness.join("n1")
    low = harness.submit(spec(8, priority=25), "bo")
    harness.tick()
    harness.start(low)
    assert "have run for less than 10m00s (min_runtime_s)" in no_victims_sentence(harness)
    harness.now += 600.0
    harness.tick()
    assert harness.job(low).stopping is not None
