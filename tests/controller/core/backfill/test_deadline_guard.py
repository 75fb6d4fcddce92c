"""Jobs with a deadline: which jobs must not delay them, when they come first, and when they are warned."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.backfill.start_rules.deadline_guard import deadline_reservation
from controller.core.explain.why_pending import reason_of
from controller.core.framework.interfaces import Backfill, DeadlinePolicy
from controller.core.model.events.queued import DeadlineAtRisk
from controller.core.model.inputs import job_inputs
from controller.core.model.job import NEVER
from controller.core.state.job_and_node_rows import job_row, load_job
from controller.plugins.backfill.kinds import Aggressive, Conservative, Easy, EasySjbf, Greedy
from controller.plugins.orders.fixed import FifoOrder
from tests.engine_harness import BACKFILLS, PIPELINE, EngineHarness, spec
from tests.examples import examples
from wire.job.spec import JobSpec
from wire.names import JobState, Reason

HOUR = 3_600.0
NONE, GUARD, LIFT = DeadlinePolicy


def harness_of(deadlines: DeadlinePolicy, backfill: Backfill = Easy(), nodes: int = 1) -> EngineHarness:
    """Machines of eight CPUs."""
    harness = EngineHarness(replace(PIPELINE, order=FifoOrder(), backfill=backfill, deadlines=deadlines))
    for number in range(nodes):
        harness.join(f"m{number}", cpus=8, gpus=0)
    return harness


def cpus(
    harness: EngineHarness, count: int, hours: float | None, due_h: float | None = None, nodes: int = 1
) -> JobSpec:
    """A job with `count` CPUs on each of `nodes` nodes, for `hours`, with a deadline `due_h` hours from
    now.
    """
    limit = None if hours is None else hours * HOUR
    due = None if due_h is None else harness.now + due_h * HOUR
    return spec(0, cpu_milli=count * 1000, time_limit_s=limit, deadline_at=due, nodes=nodes)


def started(harness: EngineHarness) -> list[int]:
    return [start.job for start in harness.tick()]


def why(harness: EngineHarness, job: int) -> tuple[Reason, str]:
    found = harness.why(job)
    assert found.reason is reason_of(harness.state, harness.job(job))
    return found.reason, found.sentence


# 6 of 8 CPUs run for 2 h. All 8 are wanted for 1 h next, then 4 by a job that has to start within 5 h.
# Behind them, one of these jobs is submitted:
PASSING = [
    ("2 CPUs for 2 h: gone before the first starts", 2, 2, (True, True)),
    ("2 CPUs for 9 h: would delay the first", 2, 9, (False, False)),
]


@pytest.mark.parametrize(
    ("count", "hours", "starts"), [row[1:] for row in PASSING], ids=[row[0] for row in PASSING]
)
def test_a_job_that_delays_the_first_job_does_not_start_with_or_without_deadlines(
    count: int, hours: float, starts: tuple[bool, bool]
) -> None:
    for deadlines, expected in zip((NONE, GUARD), starts, strict=True):
        harness = harness_of(deadlines)
        harness.submit(cpus(harness, 6, 2))
        harness.tick()
        harness.submit(cpus(harness, 8, 1))
        harness.submit(cpus(harness, 4, 1, due_h=6))
        last = harness.submit(cpus(harness, count, hours))
        assert started(harness) == ([last] if expected else [])


@pytest.mark.parametrize("backfill", [Easy(), EasySjbf(), Greedy(), Aggressive(max_delay_s=0.0)])
def test_no_job_is_backfilled_into_the_room_that_a_deadline_needs(backfill: Backfill) -> None:
    """8 CPUs: 4 run for 3 h. 6 are wanted next for 1 h, then 8 by a job that has to start within 5 h."""
    for deadlines, expected in ((NONE, True), (GUARD, False), (LIFT, False)):
        harness = harness_of(deadlines, backfill)
        harness.submit(cpus(harness, 4, 3))
        harness.tick()
        harness.submit(cpus(harness, 6, 1))
        dated = harness.submit(cpus(harness, 8, 1, due_h=6))
        long = harness.submit(cpus(harness, 2, 9))
        short = harness.submit(cpus(harness, 2, 3))
        assert sorted(started(harness)) == ([long] if expected else []) + [short]
        if not expected:
            reason, sentence = why(harness, long)
            assert reason is Reason.OTHERS_DEADLINE
            assert sentence == (
                "fits now, but may run for 9h00m on nodes "
                f"that job {dated} needs within 5h00m to keep its deadline"
            )


def test_first_job_takes_the_room_of_a_deadline_unless_deadlines_move_jobs_ahead() -> None:
    """A whole machine: the first wants it for 10 h, the second for 1 h and has to start within 4 h."""
    for deadlines in DeadlinePolicy:
        harness = harness_of(deadlines)
        first, dated = harness.submit(cpus(harness, 8, 10)), harness.submit(cpus(harness, 8, 1, due_h=5))
        assert started(harness) == ([dated] if deadlines is LIFT else [first])
        if deadlines is LIFT:
            harness.start(dated)
            harness.now += HOUR
            harness.exit(dated)
            assert started(harness) == [first]


def test_a_job_is_moved_ahead_only_if_its_deadline_requires_it() -> None:
    """Both jobs can run one after the other within the deadline."""
    harness = harness_of(LIFT)
    first = harness.submit(cpus(harness, 8, 3))
    harness.submit(cpus(harness, 8, 1, due_h=5))
    assert started(harness) == [first]


def test_a_job_at_its_latest_start_starts_before_all_others() -> None:
    """The first job waits for all CPUs. The second fits now, but would delay the first by its own 4 h."""
    for deadlines in (GUARD, LIFT):
        harness = harness_of(deadlines)
        harness.submit(cpus(harness, 4, 3))
        harness.tick()
        harness.submit(cpus(harness, 8, 1))
        dated = harness.submit(cpus(harness, 4, 4, due_h=6))
        assert started(harness) == []
        harness.now += 2 * HOUR - 10
        assert harness.engine.next_at <= harness.now or deadlines is GUARD
        assert started(harness) == ([dated] if deadlines is LIFT else [])


def test_of_several_urgent_jobs_the_earliest_latest_start_is_first() -> None:
    harness = harness_of(LIFT)
    first = harness.submit(cpus(harness, 8, 10))
    later = harness.submit(cpus(harness, 8, 2, due_h=9))
    sooner = harness.submit(cpus(harness, 8, 2, due_h=4))
    order = []
    for _ in range(3):
        [job] = started(harness)
        order.append(job)
        harness.start(job)
        harness.now += harness.job(job).limit
        harness.exit(job)
    assert order == [sooner, later, first]


def test_a_job_that_cannot_meet_its_deadline_is_warned() -> None:
    """It delays no other job. The warning is taken back when a job ends before its limit."""
    harness = harness_of(GUARD)
    running = harness.submit(cpus(harness, 6, 9))
    harness.tick()
    dated = harness.submit(cpus(harness, 8, 1, due_h=5))
    assert "has to start within 4h00m to keep its deadline" in harness.why(dated).sentence
    other = harness.submit(cpus(harness, 2, 8))
    assert started(harness) == [other]
    assert why(harness, dated)[0] is Reason.DEADLINE
    assert harness.job(dated).wait.doubted
    assert harness.why(dated).sentence.endswith("but enough nodes may become free only in 9h00m")
    assert harness.restarted().job(dated).wait.doubted
    harness.start(running)
    harness.exit(running)
    harness.start(other)
    harness.exit(other, node="")
    assert [event.doubted for event in harness.events if isinstance(event, DeadlineAtRisk)] == [True]
    assert started(harness) == [dated]


def test_a_job_whose_deadline_was_removed_waits_for_resources() -> None:
    harness = harness_of(GUARD)
    harness.submit(cpus(harness, 6, 9))
    harness.tick()
    dated = harness.submit(cpus(harness, 8, 1, due_h=5))
    harness.tick()
    assert why(harness, dated)[0] is Reason.DEADLINE
    harness.tell(job_inputs.Edit(dated, "root", {"deadline_at": None}))
    assert not harness.job(dated).wait.doubted
    harness.tick()
    assert why(harness, dated)[0] is Reason.RESOURCES


def test_an_edit_of_the_deadline_is_checked_again_and_another_edit_is_not() -> None:
    harness = harness_of(GUARD)
    harness.submit(cpus(harness, 6, 9))
    harness.tick()
    dated = harness.submit(cpus(harness, 8, 1, due_h=5))
    harness.tick()
    harness.tell(job_inputs.Edit(dated, "root", {"comment": "soon"}))
    assert harness.job(dated).wait.doubted
    for hours, doubted in ((6, True), (24, False)):
        harness.tell(job_inputs.Edit(dated, "root", {"deadline_at": harness.now + hours * 3_600.0}))
        assert not harness.job(dated).wait.doubted
        harness.tick()
        assert harness.job(dated).wait.doubted is doubted
        assert (why(harness, dated)[0] is Reason.DEADLINE) is doubted


def test_a_stored_doubt_of_a_job_without_a_deadline_is_dropped() -> None:
    """An older version kept the doubt when an edit removed the deadline."""
    harness = harness_of(GUARD)
    job = harness.job(harness.submit(spec(0)))
    job.wait = replace(job.wait, doubted=True)
    assert not load_job(job_row(job, with_spec=True)).wait.doubted


JOBS = st.lists(
    st.tuples(st.integers(1, 8), st.integers(1, 2), st.sampled_from([1, 2, 3, 5, 9]), st.integers(0, 6)),
    min_size=1,
    max_size=10,
)
"""CPUs per node, nodes, hours, and the hours between the submit before and this one."""


@given(
    before=JOBS,
    behind=JOBS,
    asked=st.tuples(st.integers(1, 8), st.integers(1, 2), st.integers(1, 4)),
    slack=st.integers(0, 12),
    backfill=st.sampled_from([each for each in BACKFILLS.values() if each != Conservative()]),
)
@settings(max_examples=examples(90))
def test_a_deadline_that_can_be_met_is_met(
    before: list[tuple[int, int, int, int]],
    behind: list[tuple[int, int, int, int]],
    asked: tuple[int, int, int],
    slack: int,
    backfill: Backfill,
) -> None:
    """A job that had room at its latest start when it was submitted starts by then, whatever other jobs wait.

    All jobs run to their limits. Only one job has a deadline: for several there might not be enough room.
    """
    harness = harness_of(LIFT, backfill, nodes=2)
    arrivals = []
    at = harness.now
    for count, nodes, hours, gap in behind:
        at += gap * HOUR
        arrivals.append((at, count, nodes, hours))
    for count, nodes, hours, _ in before:
        harness.submit(cpus(harness, count, hours, nodes=nodes))
    harness.tick()
    count, nodes, hours = asked
    dated = harness.submit(cpus(harness, count, hours, due_h=hours + slack, nodes=nodes))
    job = harness.job(dated)
    possible = deadline_reservation(harness.state, harness.engine.placer, job, job.latest_start) is not None
    while job.state is JobState.QUEUED:
        ends = [(end, number) for end, number in harness.state.releases if end <= harness.now]
        for _, number in ends:
            harness.start(number)
            harness.exit(number)
        for arrival in [each for each in arrivals if each[0] <= harness.now]:
            arrivals.remove(arrival)
            harness.submit(cpus(harness, arrival[1], arrival[3], nodes=arrival[2]))
        harness.tick()
        moments = [end for end, _ in harness.state.releases] + [each[0] for each in arrivals]
        harness.now = min([*moments, harness.engine.next_at])
        assert harness.now < NEVER
    assert job.placed_at is not None or not possible
    assert job.placed_at is None or job.placed_at <= job.latest_start
