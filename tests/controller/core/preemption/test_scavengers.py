"""Scavengers use reserved and kept GPUs until another job preempts them."""

from __future__ import annotations

from dataclasses import replace

from controller.core.framework.interfaces import PreemptionGuards
from controller.core.framework.profiles import Profile
from controller.core.pipeline.pipeline import Pipeline
from controller.core.quota.queue_rules import QueueRule
from controller.core.quota.quotas import QuotaConfig
from controller.plugins.backfill.kinds import Conservative
from controller.plugins.preemption.by_priority import PressureStrategy, PriorityStrategy
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.job.start_conditions import Dependency, Until
from wire.names import PRIORITIES, Reason

HOUR = 3_600.0
A, B = {"node": "a"}, {"node": "b"}
PRESSURE = replace(
    PIPELINE, strategies=(PressureStrategy(),), guards=PreemptionGuards(grace_s=0.0, min_runtime_s=600.0)
)


def cluster(policy: Pipeline = PRESSURE, other: Pipeline | None = None) -> EngineHarness:
    """Two profiles share the nodes a and b with 8 GPUs each. On a runs a job of 8 GPUs for 3 hours."""
    profiles = Profile("urgent", other or policy, queues=("urgent",)), Profile("default", policy)
    harness = EngineHarness(replace(policy, profiles=profiles))
    for name in "ab":
        harness.join(name, gpus=8)
    harness.submit(spec(8, selector=A, time_limit_s=3 * HOUR))
    harness.tick()
    return harness


def with_gang(harness: EngineHarness) -> int:
    """Submit a gang on both nodes. It has to wait for job 1, so it reserves b from then on."""
    gang = harness.submit(spec(16, nodes=2, time_limit_s=HOUR))
    harness.tick()
    return gang


def test_scavenger_runs_past_a_reserved_start_and_is_preempted_then() -> None:
    harness = cluster()
    gang = with_gang(harness)
    sweep = harness.submit(spec(1, time_limit_s=9 * HOUR))
    scavenger = harness.submit(spec(1, time_limit_s=9 * HOUR, priority=0))
    harness.tick()
    assert harness.nodes_of(sweep) == []
    assert harness.nodes_of(scavenger) == ["b"]
    reserved = harness.engine.profile_cycles.last.reservations.by_job[gang]
    assert reserved.starts_at == harness.now + 3 * HOUR
    harness.tick_at(harness.now + 2 * HOUR)
    harness.exit(1)
    harness.tick()
    assert harness.job(scavenger).stopping is not None
    harness.exit(scavenger)
    harness.tick()
    assert harness.nodes_of(gang) == ["a", "b"]


def test_scavenger_does_not_start_if_it_cannot_be_preempted_before_the_reserved_start() -> None:
    harness = cluster()
    with_gang(harness)
    harness.tick_at(harness.now + 3 * HOUR - 500)
    scavenger = harness.submit(spec(1, time_limit_s=9 * HOUR, priority=0))
    harness.tick()
    assert harness.nodes_of(scavenger) == []
    assert harness.why(scavenger).reason is Reason.PRIORITY


def test_job_behind_the_first_one_preempts_a_scavenger_too() -> None:
    harness = cluster()
    harness.submit(spec(8, selector=A, time_limit_s=HOUR))  # The first waiting job. It cannot use b.
    scavenger = harness.submit(spec(8, selector=B, time_limit_s=9 * HOUR, priority=0))
    harness.tick()
    assert harness.nodes_of(scavenger) == ["b"]
    harness.tick_at(harness.now + HOUR)
    second = harness.submit(spec(4, time_limit_s=HOUR))
    harness.tick()
    assert harness.job(scavenger).stopping is not None
    harness.exit(scavenger)
    harness.tick()
    assert harness.nodes_of(second) == ["b"]


def test_job_behind_the_first_one_preempts_no_batch_job() -> None:
    """The strategy lets the first waiting job stop a BATCH job, which would lose less work here."""
    harness = cluster(replace(PRESSURE, strategies=(PressureStrategy(most=PRIORITIES["BATCH"]),)))
    harness.submit(spec(8, selector=A, time_limit_s=HOUR))
    scavenger = harness.submit(spec(4, selector=B, time_limit_s=9 * HOUR, priority=0))
    harness.tick()
    harness.tick_at(harness.now + HOUR)
    batch = harness.submit(spec(4, selector=B, time_limit_s=9 * HOUR, priority=PRIORITIES["BATCH"]))
    harness.tick()
    assert (harness.nodes_of(scavenger), harness.nodes_of(batch)) == (["b"], ["b"])
    harness.tick_at(harness.now + 1_000.0)
    harness.submit(spec(4, time_limit_s=HOUR))
    harness.tick()
    assert harness.job(batch).stopping is None
    assert harness.job(scavenger).stopping is not None


def test_scavengers_come_last_in_the_queue_and_get_no_reservation() -> None:
    harness = cluster()
    scavenger = harness.submit(spec(16, nodes=2, time_limit_s=HOUR, priority=0))
    harness.tick()
    cycle = harness.engine.profile_cycles.last
    assert cycle.head is not None
    assert cycle.head[1] == scavenger
    assert not cycle.reservations.by_job
    later = harness.submit(spec(1, time_limit_s=9 * HOUR))
    harness.tick()
    assert harness.nodes_of(later) == ["b"]
    assert harness.engine.state.scavengers_last


def test_scavengers_do_not_yield_unless_each_profile_preempts_them() -> None:
    without = replace(PRESSURE, strategies=(PriorityStrategy(least=75),))
    conservative = replace(PRESSURE, backfill=Conservative())
    for other in (without, conservative):
        harness = cluster(other=other)
        with_gang(harness)
        scavenger = harness.submit(spec(1, time_limit_s=9 * HOUR, priority=0))
        harness.tick()
        assert harness.nodes_of(scavenger) == []


def test_reservation_moves_when_a_running_scavenger_gets_a_higher_priority() -> None:
    harness = cluster()
    gang = with_gang(harness)
    scavenger = harness.submit(spec(1, time_limit_s=9 * HOUR, priority=0))
    harness.tick()
    assert harness.nodes_of(scavenger) == ["b"]
    # The scavenger inherits the priority of a job that waits for its end.
    harness.submit(spec(1, priority=75, after=(Dependency(Until.OK, str(scavenger)),)))
    harness.tick()
    reserved = harness.engine.profile_cycles.last.reservations.by_job[gang]
    assert reserved.starts_at >= harness.now + 9 * HOUR


def test_scavengers_use_kept_gpus_which_still_count_as_free() -> None:
    queues = {
        "notebook": QueueRule(priority=10, keep_free_gpus=2, max_time_limit_s=HOUR),
        "default": QueueRule(),
    }
    harness = cluster(replace(PRESSURE, rules=QuotaConfig(queues=queues)))
    narrow = [harness.submit(spec(1, selector=B, time_limit_s=9 * HOUR)) for _ in range(8)]
    scavengers = [harness.submit(spec(1, selector=B, time_limit_s=9 * HOUR, priority=0)) for _ in range(3)]
    harness.tick()
    assert [bool(harness.nodes_of(each)) for each in narrow] == [True] * 6 + [False] * 2
    assert [bool(harness.nodes_of(each)) for each in scavengers] == [True, True, False]
    harness.tick_at(harness.now + HOUR)
    # Two kept GPUs are used by scavengers. A GPU that becomes free is therefore not kept.
    harness.exit(narrow[0])
    harness.tick()
    assert harness.nodes_of(narrow[6]) == ["b"]
    notebook = harness.submit(spec(1, queue="notebook", time_limit_s=HOUR))
    harness.tick()
    assert any(harness.job(each).stopping is not None for each in scavengers)
    assert harness.nodes_of(notebook) == []


def test_queue_replaces_the_guards_of_preemption() -> None:
    queues = {"scavenge": QueueRule(min_runtime_s=0.0, max_preemptions=50, cooldown_s=5.0)}
    harness = cluster(replace(PRESSURE, rules=QuotaConfig(queues=queues)))
    scavenger = harness.submit(spec(1, queue="scavenge", time_limit_s=HOUR, priority=0))
    harness.tick()
    guards = harness.engine.profile_cycles.guards_of(harness.job(scavenger))
    assert (guards.min_runtime_s, guards.max_per_job, guards.cooldown_s) == (0.0, 50, 5.0)
