"""Further reservations, on nodes that the first waiting job cannot use."""

from __future__ import annotations

from dataclasses import replace

from controller.core.forecast.forecast import forecast, fork
from controller.core.framework.profiles import Profile
from controller.core.model.inputs import node_inputs
from controller.core.pipeline.pipeline import Pipeline
from controller.core.quota.quotas import QuotaConfig
from controller.plugins.backfill.kinds import Greedy
from controller.plugins.preemption.by_priority import PriorityStrategy
from controller.plugins.quotas.local import LocalQuotas, QuotaTable
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.names import Reason

HOUR = 3_600.0
A, B = {"node": "a"}, {"node": "b"}


def cluster(policy: Pipeline = PIPELINE) -> EngineHarness:
    """Two profiles share the nodes a and b with 8 GPUs each. On a runs a job of 8 GPUs for 3 hours, on b run
    two jobs (2 and 3) of 4 GPUs for 1 hour.
    """
    profiles = Profile("urgent", policy, queues=("urgent",)), Profile("default", policy)
    harness = EngineHarness(replace(policy, profiles=profiles))
    for name in "ab":
        harness.join(name, gpus=8)
    harness.submit(spec(8, selector=A, time_limit_s=3 * HOUR))
    for _ in range(2):
        harness.submit(spec(4, selector=B, time_limit_s=HOUR))
    harness.tick()
    return harness


def reserved(harness: EngineHarness) -> dict[int, float]:
    """Return the hours until the reserved start of each job of the default profile, by job."""
    found = harness.engine.profile_cycles.last.reservations.by_job
    return {job: (each.starts_at - harness.now) / HOUR for job, each in found.items()}


def test_nodes_that_the_first_job_cannot_use_are_reserved_for_the_next_job() -> None:
    harness = cluster()
    first = harness.submit(spec(8, selector=A, time_limit_s=HOUR))
    wide = harness.submit(spec(8, time_limit_s=HOUR))
    harness.submit(spec(8, time_limit_s=HOUR))  # Behind `wide`: b is reserved already.
    harness.tick()
    assert reserved(harness) == {first: 3, wide: 1}
    harness.exit(2)
    long = harness.submit(spec(1, time_limit_s=2 * HOUR))
    short = harness.submit(spec(1, time_limit_s=0.5 * HOUR))
    harness.tick()
    assert (harness.nodes_of(long), harness.nodes_of(short)) == ([], ["b"])
    why = harness.why(long)
    assert why.reason is Reason.PRIORITY
    assert why.sentence == (
        f"fits now, but may run for 2h00m and would delay job {wide}, which can start in 1h00m at the latest"
    )
    harness.exit(short)
    harness.exit(3)
    harness.tick()
    assert harness.nodes_of(wide) == ["b"]


def test_first_job_that_can_use_all_nodes_has_the_only_reservation() -> None:
    harness = cluster()
    first = harness.submit(spec(8, time_limit_s=HOUR))
    harness.submit(spec(8, selector=A, time_limit_s=HOUR))
    harness.tick()
    assert reserved(harness) == {first: 1}


def test_further_reservation_is_only_on_nodes_that_the_first_job_cannot_use() -> None:
    harness = cluster()
    first = harness.submit(spec(8, selector=B, time_limit_s=HOUR))
    wide = harness.submit(spec(8, time_limit_s=HOUR))
    harness.tick()
    # `wide` could start on b in 2 hours, behind `first`. Node a is free in 3 hours.
    assert reserved(harness) == {first: 1, wide: 3}


def test_first_job_without_a_known_start_leaves_its_reservation_to_the_next_job() -> None:
    harness = cluster()
    harness.tell_drain("a")
    never = harness.submit(spec(8, selector=A, time_limit_s=HOUR, priority=75))
    both = harness.submit(spec(16, nodes=2, time_limit_s=HOUR, priority=60))
    wide = harness.submit(spec(8, time_limit_s=HOUR))
    harness.tick()
    assert reserved(harness) == {wide: 1}
    harness.tell(node_inputs.Resume("a", "root"))
    harness.tick()
    assert reserved(harness) == {never: 3, wide: 1}
    assert harness.nodes_of(both) == []


def test_job_starts_on_idle_nodes_that_a_job_has_reserved_which_it_could_preempt() -> None:
    strategy = PriorityStrategy(least=75, gap=25)
    policy = replace(PIPELINE, strategies=(strategy,))
    profiles = Profile("urgent", policy, queues=("urgent",)), Profile("default", PIPELINE)
    harness = EngineHarness(replace(PIPELINE, profiles=profiles))
    for name in "ab":
        harness.join(name, gpus=8)
    harness.submit(spec(8, selector=A, time_limit_s=3 * HOUR, priority=75))
    harness.tick()
    gang = harness.submit(spec(16, nodes=2, time_limit_s=HOUR))
    harness.tick()
    assert reserved(harness) == {gang: 3}
    other = harness.submit(spec(8, time_limit_s=5 * HOUR))
    urgent = harness.submit(spec(8, time_limit_s=5 * HOUR, priority=75, queue="urgent"))
    harness.tick()
    assert (harness.nodes_of(other), harness.nodes_of(urgent)) == ([], ["b"])
    assert reserved(harness) == {gang: 5}


def test_job_that_comes_before_in_the_queue_may_delay_a_further_reservation() -> None:
    harness = cluster()
    first = harness.submit(spec(8, selector=A, time_limit_s=HOUR, priority=75))
    wide = harness.submit(spec(8, time_limit_s=HOUR, priority=25))
    harness.tick()
    assert reserved(harness) == {first: 3, wide: 1}
    harness.exit(2)
    before = harness.submit(spec(1, time_limit_s=2 * HOUR, priority=50))
    harness.tick()
    assert harness.nodes_of(before) == ["b"]
    assert reserved(harness) == {first: 3, wide: 2}


def test_new_job_before_in_the_queue_may_delay_a_further_reservation_in_a_pass_over_new_jobs() -> None:
    harness = cluster()
    first = harness.submit(spec(8, selector=A, time_limit_s=HOUR, priority=75))
    wide = harness.submit(spec(8, time_limit_s=HOUR, priority=25))
    harness.exit(2)
    harness.tick()
    assert reserved(harness) == {first: 3, wide: 1}
    # Nothing has changed since the last pass, so this pass tries the new job alone, and the new job has no
    # reservation.
    before = harness.submit(spec(1, time_limit_s=2 * HOUR, priority=50))
    harness.tick()
    assert harness.nodes_of(before) == ["b"]
    assert reserved(harness) == {first: 3, wide: 2}


def test_further_reservation_is_dropped_when_an_earlier_job_can_use_its_node() -> None:
    harness = cluster()
    first = harness.submit(spec(8, selector=A, time_limit_s=HOUR))
    wide = harness.submit(spec(8, time_limit_s=HOUR))
    harness.tick()
    assert reserved(harness) == {first: 3, wide: 1}
    urgent = harness.submit(spec(8, time_limit_s=HOUR, priority=100))
    harness.tick()
    assert reserved(harness) == {urgent: 1}


def test_further_reservation_leaves_a_node_that_an_earlier_job_can_use_now() -> None:
    harness = cluster()
    harness.join("c", gpus=8)
    harness.submit(spec(8, time_limit_s=2 * HOUR))
    harness.tick()
    first = harness.submit(spec(8, selector=A, time_limit_s=HOUR))
    wide = harness.submit(spec(8, time_limit_s=HOUR))
    harness.tick()
    assert reserved(harness) == {first: 3, wide: 1}  # `wide` has node b.
    before = harness.submit(spec(8, selector=B, time_limit_s=HOUR, priority=100))
    harness.tick()
    # Now `first` has the further reservation, because it comes before `wide`, and nodes a and c are left.
    assert reserved(harness) == {before: 1, first: 3, wide: 2}


def test_new_job_before_the_first_waiting_job_leaves_the_other_reserved_gpus_reserved() -> None:
    harness = cluster()
    wide = harness.submit(spec(8, time_limit_s=HOUR, priority=25))
    harness.exit(2)
    harness.tick()
    assert reserved(harness) == {wide: 1}  # Node b has 4 free GPUs, which are reserved.
    before = harness.submit(spec(1, time_limit_s=2 * HOUR, priority=50))
    behind = harness.submit(spec(1, time_limit_s=5 * HOUR, priority=0))
    harness.tick()
    assert (harness.nodes_of(before), harness.nodes_of(behind)) == (["b"], [])
    assert reserved(harness) == {wide: 2}


def test_job_over_a_quota_has_no_further_reservation() -> None:
    tables = LocalQuotas(users={"eve": QuotaTable(gpus=8)})
    harness = cluster(replace(PIPELINE, rules=QuotaConfig({}, tables)))
    harness.exit(2)
    harness.submit(spec(4, time_limit_s=HOUR), user="eve")
    harness.tick()
    first = harness.submit(spec(8, selector=A, time_limit_s=HOUR))
    harness.submit(spec(8, time_limit_s=HOUR), user="eve")
    wide = harness.submit(spec(8, time_limit_s=HOUR))
    harness.tick()
    assert reserved(harness) == {first: 3, wide: 1}


def test_backfill_without_reservations_makes_no_further_ones() -> None:
    harness = cluster(replace(PIPELINE, backfill=Greedy()))
    harness.submit(spec(8, selector=A, time_limit_s=HOUR))
    harness.submit(spec(8, time_limit_s=HOUR))
    harness.tick()
    assert reserved(harness) == {}


def test_forecast_keeps_further_reservations() -> None:
    harness = cluster()
    harness.submit(spec(8, selector=A, time_limit_s=HOUR))
    harness.submit(spec(8, time_limit_s=HOUR))
    harness.tick()
    harness.exit(2)
    long = harness.submit(spec(1, time_limit_s=2 * HOUR))
    harness.tick()
    found = forecast(fork(harness.engine), harness.now, (), long)
    assert found.starts[long].at == harness.now + 2 * HOUR
