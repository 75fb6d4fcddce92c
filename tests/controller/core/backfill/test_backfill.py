"""Which jobs start behind the first waiting job, and which have to wait."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from controller.core.backfill.conservative.slot_search import Slot, SlotSearch
from controller.core.backfill.conservative.timeline import NodeTimeline
from controller.core.cluster.node_table import Bools, NodeTable, Rows
from controller.core.explain.why_pending import reason_of
from controller.core.framework.interfaces import Backfill
from controller.core.model.events.kinds import body_of
from controller.core.model.inputs.job_inputs import Cancel
from controller.core.model.inputs.node_inputs import Resume
from controller.core.model.inputs.policy_inputs import Reserve
from controller.core.model.job import Job
from controller.core.model.request import PerNodeRequest
from controller.core.placement.placer import Shape
from controller.plugins.backfill.kinds import Conservative, Easy, EasySjbf, Greedy, NoBackfill
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.cluster.reservation import ReservationSpec
from wire.job.gangs import Gang
from wire.job.spec import JobSpec
from wire.names import JobState, Reason

HOUR = 3600.0


def harness_of(mode: Backfill, *nodes: str, **host: int) -> EngineHarness:
    harness = EngineHarness(replace(PIPELINE, backfill=mode))
    for name in nodes:
        harness.join(name, **host)
    return harness


def cpus(count: int, hours: float | None, **more: object) -> JobSpec:
    return spec(0, cpu_milli=count * 1000, time_limit_s=None if hours is None else hours * HOUR, **more)


# A machine of 8 CPUs. Running: 5 CPUs for 2 h. Waiting first: 6 CPUs. Behind it, one of these:
EASY_TABLE = [
    ("short enough to be gone in time", cpus(3, 2), True),
    ("a second too long, and nothing is spare", cpus(3, 2.001), False),
    ("long, but small enough for what the first leaves over", cpus(2, 9), True),
    ("without a limit, small enough", cpus(2, None), True),
    ("without a limit, too big", cpus(3, None), False),
    ("does not fit at all", cpus(4, 1), False),
]


@pytest.mark.parametrize(
    ("behind", "starts"), [row[1:] for row in EASY_TABLE], ids=[row[0] for row in EASY_TABLE]
)
def test_easy_starts_jobs_that_do_not_delay_the_first(behind: JobSpec, starts: bool) -> None:
    harness = harness_of(Easy(), "m", cpus=8, gpus=0)
    harness.submit(cpus(5, 2))
    harness.tick()
    first, second = harness.submit(cpus(6, 5)), harness.submit(behind)
    assert [start.job for start in harness.tick()] == ([second] if starts else [])
    reserved = harness.engine.cycle.first_reservation(harness.now)
    assert reserved is not None
    assert (reserved.job, reserved.starts_at) == (first, harness.now + 2 * HOUR)


def test_explain_changes_no_event_of_the_next_cycle() -> None:
    """explain fills caches of placements. The first start that backfill looks up depends on these caches."""
    bodies = []
    for explains in (False, True):
        harness = harness_of(Easy(), "a", "b", "c")
        for name in ("a", "b"):
            harness.submit(spec(8, selector={"node": name}, time_limit_s=HOUR))
        harness.tick()
        first = harness.submit(spec(16, nodes=2, time_limit_s=HOUR))
        last = harness.submit(spec(12, nodes=3, time_limit_s=HOUR))
        if explains:
            harness.why(last)
        harness.tick()
        bodies.append([body_of(event) for event in harness.events])
        assert [each.kind for each in harness.job(first).foreseen] == ["promise"]
    assert bodies[0] == bodies[1]


def test_nodes_spared_by_the_reservation_are_given_to_one_job_only() -> None:
    harness = harness_of(Easy(), "m", cpus=8, gpus=0)
    harness.submit(cpus(5, 2))
    harness.tick()
    harness.submit(cpus(6, 5))
    second, third = harness.submit(cpus(1, 9)), harness.submit(cpus(2, 9))
    fourth = harness.submit(cpus(1, 9))
    assert [start.job for start in harness.tick()] == [second, fourth]
    assert third in harness.state.queue


def test_a_job_submitted_later_does_not_break_the_reservation() -> None:
    harness = harness_of(Easy(), "m", cpus=8, gpus=0)
    harness.submit(cpus(5, 2))
    harness.submit(cpus(6, 5))
    harness.tick()
    harness.now += HOUR
    assert harness.state.jobs[harness.submit(cpus(3, 1.5))].id not in [start.job for start in harness.tick()]
    short = harness.submit(cpus(3, 1))
    assert [start.job for start in harness.tick()] == [short]


def test_only_the_reserved_node_is_barred_for_long_jobs() -> None:
    """Node a: 8 GPUs busy for 1 h. Node b: 6 GPUs busy for 9 h. The first job waits for all of a; the two
    free GPUs of b are not reserved.
    """
    harness = harness_of(Easy(), "a", "b")
    for gpus, hours, node in ((8, 1, "a"), (6, 9, "b")):
        harness.submit(spec(gpus, time_limit_s=hours * HOUR, selector={"node": node}))
    harness.tick()
    first = harness.submit(spec(8))
    long = harness.submit(spec(1))
    assert [start.job for start in harness.tick()] == [long]
    assert harness.nodes_of(long) == ["b"]
    harness.exit(1)
    assert [start.job for start in harness.tick()] == [first]


def test_a_long_job_avoids_a_free_node_that_the_first_job_will_need() -> None:
    """The gang of two needs a and b in an hour. A long job starts on c although a has the same score."""
    harness = harness_of(Easy(), "a", "b", "c", gpus=1)
    harness.submit(spec(1, time_limit_s=HOUR, selector={"node": "b"}))
    harness.submit(spec(0.5, time_limit_s=9 * HOUR, selector={"node": "c"}))
    harness.tick()
    harness.submit(spec(2, nodes=2))
    long = harness.submit(spec(0.25))
    harness.tick()
    assert harness.nodes_of(long) == ["c"]


def test_easy_sjbf_backfills_the_shortest_job_first() -> None:
    for mode, expected in ((Easy(), 3), (EasySjbf(), 4)):
        harness = harness_of(mode, "m", cpus=8, gpus=0)
        harness.submit(cpus(5, 2))
        harness.submit(cpus(6, 5))
        harness.tick()
        harness.submit(cpus(3, 2))
        harness.submit(cpus(3, 1))
        assert [start.job for start in harness.tick()] == [expected]


@pytest.mark.parametrize(("mode", "started"), [(NoBackfill(), []), (Greedy(), [3])])
def test_none_backfills_no_job_and_greedy_every_job_that_fits(mode: Backfill, started: list[int]) -> None:
    harness = harness_of(mode, "m", cpus=8, gpus=0)
    harness.submit(cpus(5, 2))
    harness.submit(cpus(6, 5))
    harness.submit(cpus(3, 9))
    assert [start.job for start in harness.tick()] == [1, *started]


def test_a_job_that_can_never_start_blocks_no_other_job() -> None:
    harness = harness_of(Easy(), "a", "b")
    harness.tell_drain("b")
    harness.submit(spec(16, nodes=2))
    small = harness.submit(spec(1))
    assert [start.job for start in harness.tick()] == [small]


def test_explain_names_the_reservation_that_a_job_would_delay() -> None:
    harness = harness_of(Easy(), "m", cpus=8, gpus=0)
    harness.submit(cpus(5, 2))
    harness.submit(cpus(6, 5))
    passed_over = harness.submit(cpus(3, 9))
    harness.tick()
    why = harness.engine.explain(harness.job(passed_over), harness.now)
    assert why.sentence == (
        "fits now, but may run for 9h00m and would delay job 2, which can start in 2h00m at the latest"
    )


def test_waiting_reason_is_resources_without_room_and_priority_behind_a_reservation() -> None:
    harness = harness_of(Easy(), "a", "b")
    harness.submit(spec(8, time_limit_s=HOUR))
    harness.submit(spec(4, time_limit_s=2 * HOUR))
    first = harness.submit(spec(16, nodes=2))
    too_long = harness.submit(spec(2))
    without_room = [harness.submit(spec(8, nodes=1)), harness.submit(spec(8)), harness.submit(spec(5))]
    harness.tick()
    assert [harness.job(job).state for job in (first, too_long)] == [JobState.QUEUED] * 2
    assert reason_of(harness.state, harness.job(too_long)) is Reason.PRIORITY
    for job in (first, *without_room):
        assert reason_of(harness.state, harness.job(job)) is Reason.RESOURCES
        assert harness.engine.explain(harness.job(job), harness.now).reason is Reason.RESOURCES


@dataclass(frozen=True, slots=True)
class Alone:
    """A filter of a site: a job that reads a dataset wants an empty node. Reservations do not know that."""

    name: ClassVar[str] = "alone"

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        alone: Bools = nodes.cpu_free[rows] == nodes.cpu_total[rows]
        return alone

    def concerns(self, part: PerNodeRequest) -> bool:
        return bool(part.datasets)

    def explain(self, part: PerNodeRequest) -> str:
        return "not alone"


def test_a_job_refused_at_its_reserved_start_holds_no_room_and_is_not_retried_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filters = (*PIPELINE.filters, Alone())
    harness = EngineHarness(replace(PIPELINE, backfill=Conservative(), filters=filters))
    harness.join("a")
    running = harness.submit(spec(1, time_limit_s=1000))
    harness.tick()
    choosy = harness.submit(spec(1, time_limit_s=100, datasets=("d",)))
    behind = harness.submit(spec(7, time_limit_s=100))
    late = harness.submit(spec(8, time_limit_s=100))
    harness.tick()
    assert (harness.nodes_of(choosy), harness.nodes_of(behind)) == ([], ["a"])
    looked: list[float] = []
    first_start = NodeTimeline.first_start
    monkeypatch.setattr(
        NodeTimeline, "first_start", lambda line, *how: looked.append(how[-1]) or first_start(line, *how)
    )
    harness.tick_at(harness.now + 1)
    assert looked == []
    harness.exit(behind)
    harness.exit(running)
    harness.tick()
    assert (harness.nodes_of(choosy), harness.nodes_of(late)) == (["a"], [])
    assert looked


def test_nodes_that_an_elastic_job_grew_to_are_not_reserved() -> None:
    harness = EngineHarness(replace(PIPELINE, backfill=Conservative()))
    for name in "ab":
        harness.join(name)
    harness.tell_drain("b")
    grown = harness.submit(spec(16, nodes=2, gang=Gang(1, elastic=True), time_limit_s=1000))
    harness.tick()
    harness.start(grown)
    small = harness.submit(spec(1, time_limit_s=10))
    harness.tick()
    harness.tell(Cancel(small, "ada"))
    harness.tell(Resume("b", "root"))
    harness.tick()
    assert harness.nodes_of(grown) == ["a", "b"]
    other = harness.submit(spec(8, time_limit_s=100))
    harness.tick()
    plan = harness.engine.cycle.reservations
    assert plan.by_job[other].starts_at == harness.now + 1000
    assert not plan.refused


def exit_late(harness: EngineHarness, job: int, node: str, late_s: float) -> list[int]:
    """A member returns `late_s` seconds after its time limit. Returns the jobs that start then."""
    harness.now = (harness.job(job).placed_at or 0.0) + harness.job(job).limit + late_s
    harness.exit(job, node=node)
    return [start.job for start in harness.tick()]


@pytest.mark.parametrize("later_s", [2, 10, 20, 55, 3600])
@pytest.mark.parametrize("mode", [Easy(), Conservative()])
def test_a_gang_that_ends_member_by_member_opens_no_gap_before_a_reservation(
    mode: Backfill, later_s: float
) -> None:
    """Nodes a to c are reserved for `wide` when `pair` ends, and `pair` returns b before c."""
    harness = harness_of(mode, "a", "b", "c")
    short = harness.submit(spec(8, nodes=1, time_limit_s=50, grace_s=0))
    pair = harness.submit(spec(16, nodes=2, time_limit_s=60, grace_s=0))
    harness.tick()
    assert (harness.nodes_of(short), harness.nodes_of(pair)) == (["a"], ["b", "c"])
    harness.start(short)
    harness.start(pair)
    wide = harness.submit(spec(24, nodes=3, time_limit_s=600))
    later = harness.submit(spec(8, nodes=1, time_limit_s=later_s, grace_s=0))
    assert harness.tick() == []
    started = exit_late(harness, short, "a", 0.0)
    assert started == ([later] if later_s <= 10 else [])
    if started:
        harness.exit(later)
        later = harness.submit(spec(8, nodes=1, time_limit_s=later_s, grace_s=0))
    assert exit_late(harness, pair, "b", 0.2) == []
    assert exit_late(harness, pair, "c", 0.6) == [wide, wide, wide]


@pytest.mark.parametrize("mode", [Easy(), Conservative()])
def test_a_job_whose_end_is_under_way_for_its_grace_opens_no_gap(mode: Backfill) -> None:
    """A reserved node that is free stays free while another reserved node is returned late."""
    harness = harness_of(mode, "a", "b")
    stubborn = harness.submit(spec(8, nodes=1, time_limit_s=60, grace_s=30))
    harness.tick()
    harness.start(stubborn)
    wide = harness.submit(spec(16, nodes=2, time_limit_s=600))
    harness.tick()
    later = harness.submit(spec(8, nodes=1, time_limit_s=45))
    for late_s in (0.0, 5.0, 29.0, 30.0, 31.0, 50.0):
        assert [start.job for start in harness.tick_at(1_060.0 + late_s)] == []
    assert exit_late(harness, stubborn, "a", 52.0) == [wide, wide]
    assert harness.nodes_of(later) == []


def test_a_job_that_cannot_be_killed_keeps_no_reserved_node_idle_forever() -> None:
    harness = harness_of(Conservative(), "a", "b")
    stuck = harness.submit(spec(8, nodes=1, time_limit_s=60, grace_s=30))
    harness.tick()
    harness.start(stuck)
    harness.submit(spec(16, nodes=2, time_limit_s=600))
    later = harness.submit(spec(8, nodes=1, time_limit_s=300))
    harness.tick()
    assert [start.job for start in harness.tick_at(1_060.0 + 200)] == []
    assert [start.job for start in harness.tick_at(1_060.0 + 500)] == [later]


def test_easy_counts_on_overdue_jobs_also_where_nodes_are_reserved() -> None:
    harness = harness_of(Easy(), "a", "b")
    maintenance = ReservationSpec("maint", harness.now + 30 * HOUR, HOUR, nodes=("b",))
    harness.tell(Reserve(maintenance, "root"))
    overdue = harness.submit(spec(8, nodes=1, time_limit_s=60))
    harness.tick()
    harness.start(overdue)
    harness.submit(spec(16, nodes=2, time_limit_s=600))
    harness.tick()
    harness.now += 70.5
    later = harness.submit(spec(8, nodes=1, time_limit_s=20 * HOUR))
    assert (harness.tick(), harness.nodes_of(later)) == ([], [])


# Five nodes, one of which is busy for long. First in the queue: a gang of five that accepts two nodes from 6
# s after its submit. Behind it a job with these nodes and seconds: does it start at once?
NARROW = [
    ("it would take the nodes that make the fewest", 3, 600, False),
    ("it leaves two", 2, 600, True),
    ("it is over in time", 3, 5, True),
    ("it is over a moment too late", 3, 7, False),
]


@pytest.mark.parametrize(
    ("nodes", "limit_s", "starts"), [row[1:] for row in NARROW], ids=[row[0] for row in NARROW]
)
@pytest.mark.parametrize("limited", [True, False])
def test_easy_guarantees_a_gang_the_start_on_the_fewest_nodes(
    nodes: int, limit_s: float, starts: bool, limited: bool
) -> None:
    harness = harness_of(Easy(), *"abcde")
    harness.submit(spec(8, time_limit_s=HOUR if limited else None))
    harness.tick()
    part = harness.submit(spec(40, nodes=5, priority=75, gang=Gang(2, assembly_s=6.0), time_limit_s=HOUR))
    narrow = harness.submit(spec(8 * nodes, nodes=nodes, time_limit_s=limit_s))
    assert {start.job for start in harness.tick()} == ({narrow} if starts else set())
    reserved = harness.engine.cycle.first_reservation(harness.now)
    assert reserved is not None
    assert (reserved.job, reserved.starts_at) == (part, harness.now + 6)
    if starts and limit_s < 6:
        harness.exit(narrow)
    harness.tick_at(harness.now + 6)
    assert len(harness.nodes_of(part)) == (2 if starts and limit_s > 6 else 4)


def test_a_start_on_all_nodes_within_the_assembly_time_is_the_guarantee() -> None:
    harness = harness_of(Easy(), "a", "b", "c")
    harness.submit(spec(8, time_limit_s=10))
    harness.tick()
    part = harness.submit(spec(24, nodes=3, gang=Gang(2, assembly_s=60.0), time_limit_s=HOUR))
    longer = harness.submit(spec(8, nodes=1, time_limit_s=30))
    harness.tick()
    reserved = harness.engine.cycle.first_reservation(harness.now)
    assert reserved is not None
    assert (reserved.starts_at, harness.nodes_of(longer)) == (harness.now + 10, [])
    assert reserved.job == part


def test_no_reservation_is_searched_for_again_while_jobs_end_at_their_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[int] = []
    earliest = SlotSearch.earliest

    def noted(search: SlotSearch, shape: Shape, job: Job, now: float) -> Slot | None:
        searched.append(job.id)
        return earliest(search, shape, job, now)

    harness = harness_of(Conservative(), "a")
    jobs = [harness.submit(spec(8, time_limit_s=100.0)) for _ in range(5)]
    harness.tick()
    monkeypatch.setattr(SlotSearch, "earliest", noted)
    harness.now += 100.0
    harness.exit(jobs[0])
    assert [start.job for start in harness.tick()] == [jobs[1]]
    assert searched == []
    harness.now += 10.0
    harness.exit(jobs[1])
    assert [start.job for start in harness.tick()] == [jobs[2]]
    assert searched == jobs[2:]


def test_jobs_start_in_the_reservation_of_a_job_that_was_cancelled() -> None:
    harness = harness_of(Conservative(), "a")
    harness.submit(spec(4, time_limit_s=100.0))
    harness.tick()
    first = harness.submit(spec(8, time_limit_s=100.0))
    behind = harness.submit(spec(4))
    assert harness.tick() == []
    harness.tell(Cancel(first, "ada"))
    assert [start.job for start in harness.tick()] == [behind]
