"""Reservations: which nodes are reserved, which jobs may use them, and the waiting reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.forecast.forecast import forecast, fork
from controller.core.framework.interfaces import Backfill, PreemptionGuards
from controller.core.model.inputs import job_inputs, policy_inputs
from controller.core.model.job import NEVER
from controller.core.reservations.reservations import Reservation, clear_from
from controller.plugins.backfill.kinds import Conservative, Easy
from controller.plugins.preemption.by_priority import PriorityStrategy
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.cluster.reservation import ReservationSpec
from wire.names import JobState, Reason

NOW = 1_000.0
HOUR = 3_600.0
UNGUARDED = PreemptionGuards(min_runtime_s=0.0, cooldown_s=0.0)


def reservation(name: str = "r", after: float = HOUR, length: float = HOUR, **more: Any) -> ReservationSpec:
    """An hour that begins in an hour."""
    return ReservationSpec(name, NOW + after, length, **more)


def harness_of(*nodes: str, backfill: Backfill = Easy()) -> EngineHarness:
    made = EngineHarness(replace(PIPELINE, backfill=backfill))
    for node in nodes:
        made.join(node)
    return made


def reserve(harness: EngineHarness, asked: ReservationSpec, *, anyway: bool = False) -> tuple[str, ...]:
    """Make it; the nodes it got."""
    harness.tell(policy_inputs.Reserve(asked, "root", anyway))
    return harness.state.reservations.by_name[asked.name].nodes


def why(harness: EngineHarness, job: int) -> tuple[Reason, str]:
    message = harness.engine.explain(harness.job(job), harness.now)
    return message.reason, message.sentence


@pytest.mark.parametrize("backfill", [Easy(), Conservative()])
@pytest.mark.parametrize(
    ("limit", "user", "starts"),
    [
        (HOUR - 10, "ada", True),  # with its grace of ten seconds it just ends in time
        (HOUR - 9, "ada", False),
        (None, "ada", False),
        (None, "bob", True),  # it is for bob
    ],
)
def test_no_job_starts_that_could_run_into_a_reservation(
    backfill: Backfill, limit: float | None, user: str, starts: bool
) -> None:
    harness = harness_of("a", backfill=backfill)
    reserve(harness, reservation(nodes=("a",), users=("bob",)))
    job = harness.submit(spec(gpus=1, time_limit_s=limit, grace_s=10.0), user)
    assert bool(harness.tick()) == starts
    assert harness.job(job).state is (JobState.SCHEDULED if starts else JobState.QUEUED)


@pytest.mark.parametrize("backfill", [Easy(), Conservative()])
def test_maintenance_bars_all_jobs_until_its_end(backfill: Backfill) -> None:
    harness = harness_of("a", "b", backfill=backfill)
    assert reserve(harness, reservation(nodes=("a",), why="fans")) == ("a",)
    long = [harness.submit(spec(gpus=8)) for _ in range(2)]
    harness.tick()
    assert [harness.nodes_of(job) for job in long] == [["b"], []]
    assert why(harness, long[1]) == (
        Reason.RESERVATION,
        "fits on 1 node, of which 0 are not reserved: reservation 'r' begins in 1h00m, "
        "and the job has no time limit",
    )
    harness.now += HOUR
    assert harness.tick() == []
    assert why(harness, long[1])[1].endswith("reservation 'r' lasts for another 1h00m")
    short = harness.submit(spec(gpus=1, time_limit_s=60.0))
    assert harness.tick() == []
    assert harness.engine.next_at == NOW + 2 * HOUR
    harness.now += HOUR
    harness.tick()
    assert harness.nodes_of(long[1]) == ["a"]
    assert harness.nodes_of(short) == []
    assert not harness.state.reservations


def test_short_jobs_pass_a_job_that_waits_for_the_end_of_a_reservation() -> None:
    harness = harness_of("a")
    reserve(harness, reservation(nodes=("a",)))
    first = harness.submit(spec(gpus=8, time_limit_s=2 * HOUR))
    second = harness.submit(spec(gpus=8, time_limit_s=HOUR / 2))
    harness.tick()
    assert harness.nodes_of(second) == ["a"]
    shadow = harness.engine.cycle.first_reservation(harness.now)
    assert shadow is not None
    assert (shadow.job, shadow.starts_at) == (first, NOW + 2 * HOUR)


def test_a_backfill_reservation_avoids_a_reservation() -> None:
    """The job could start on node a when the job there ends, but node a is reserved then: so its start is on
    b, later.
    """
    harness = harness_of("a", "b")
    on_a, on_b = (harness.submit(spec(gpus=8, time_limit_s=limit)) for limit in (HOUR / 2, 3 * HOUR))
    harness.tick()
    reserve(harness, reservation(nodes=("a",), length=5 * HOUR))
    waiting = harness.submit(spec(gpus=8, time_limit_s=HOUR))
    harness.tick()
    assert (harness.nodes_of(on_a), harness.nodes_of(on_b)) == (["a"], ["b"])
    shadow = harness.engine.cycle.first_reservation(harness.now)
    assert shadow is not None
    assert (shadow.job, shadow.starts_at) == (waiting, NOW + 3 * HOUR)
    message = forecast(fork(harness.engine), harness.now).starts
    assert (message[waiting].at, message[waiting].nodes) == (NOW + 3 * HOUR, ("b",))


def test_a_recurring_reservation_begins_again_until_cancelled() -> None:
    harness = harness_of("a")
    reserve(harness, reservation(nodes=("a",), every_s=6 * HOUR))
    kept = harness.state.reservations.by_name["r"]
    for turn in range(3):
        harness.now = NOW + HOUR + turn * 6 * HOUR
        harness.tick()
        assert kept.began
        job = harness.submit(spec(time_limit_s=60.0))
        assert harness.tick() == []
        harness.now += HOUR
        harness.tick()
        assert not kept.began
        assert harness.nodes_of(job) == ["a"]
        harness.exit(job)
    harness.now += 30 * HOUR  # no cycle ran for five occurrences
    harness.tick()
    assert kept.starts_at == NOW + HOUR + 8 * 6 * HOUR
    never = harness.submit(spec())
    assert harness.tick() == []
    assert forecast_start(harness, never) is None
    harness.tell(policy_inputs.CancelReservation("r", "root"))
    harness.tick()
    assert harness.nodes_of(never) == ["a"]


def forecast_start(harness: EngineHarness, job: int) -> float | None:
    found = forecast(fork(harness.engine), harness.now, until=job).starts.get(job)
    return None if found is None else found.at


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [
        ({"count": 1}, ("b",)),  # node b is idle
        ({"count": 2}, ("b", "c")),  # over before it begins
        ({"gpus": 9}, ("b", "c")),
        ({"count": 1, "selector": {"pool": "x"}}, ("c",)),
    ],
)
def test_a_reservation_by_count_takes_the_nodes_that_are_free_soonest(
    asked: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    harness = harness_of("a", "b")
    harness.join("c", labels={"pool": "x"})
    for node, limit in (("a", None), ("c", HOUR / 2)):
        harness.submit(spec(gpus=1, time_limit_s=limit, selector={"node": node}))
    harness.tick()
    assert reserve(harness, reservation(**asked)) == nodes


@pytest.mark.parametrize(
    ("asked", "code", "where", "message"),
    [
        ({"nodes": ("z",)}, "not_found", "nodes", "there is no node 'z'"),
        ({"nodes": ("a",), "users": ("x",)}, "conflict", "nodes", "job 1 on node a has no time limit"),
        ({"count": 4}, "conflict", "count", "only 3 nodes"),
        ({"count": 1, "selector": {"pool": "x"}}, "conflict", "count", "only 0 nodes"),
        ({"gpus": 25}, "conflict", "gpus", "24 GPUs can be reserved"),
        (
            {"nodes": ("b",), "users": ("x",), "after": 2 * HOUR},
            "conflict",
            "nodes",
            "has reservation 'old'",
        ),
        ({}, "invalid", "nodes", "exactly one of these"),
        ({"nodes": ("b",), "count": 1}, "invalid", "nodes", "exactly one of these"),
        ({"count": 1, "every_s": HOUR}, "invalid", "every_s", "longer than"),
        ({"count": 1, "after": -2 * HOUR, "length": HOUR}, "invalid", "starts_at", ""),
        ({"count": 1, "name": "old"}, "conflict", "name", "already"),
        ({"count": 1, "name": "a/b"}, "invalid", "name", "without '/'"),
    ],
)
def test_reservations_that_are_refused(asked: dict[str, Any], code: str, where: str, message: str) -> None:
    harness = harness_of("a", "b", "c")
    harness.submit(spec(selector={"node": "a"}))
    harness.tick()
    reserve(harness, reservation("old", after=1.5 * HOUR, nodes=("b",), users=("eve",)))
    refused = harness.refuse(policy_inputs.Reserve(reservation(**asked), "root"))
    assert (refused.code, refused.where) == (code, where)
    assert message in refused.message


def test_a_forced_reservation_leaves_running_jobs() -> None:
    harness = harness_of("a")
    running = harness.submit(spec(gpus=1))
    harness.tick()
    reserve(harness, reservation(nodes=("a",)), anyway=True)
    harness.submit(spec(gpus=1))
    assert harness.tick() == []
    assert harness.job(running).state is JobState.SCHEDULED


def test_a_reservation_survives_a_restart() -> None:
    harness = harness_of("a")
    reserve(harness, reservation(nodes=("a",), every_s=2 * HOUR))
    harness.now += HOUR
    harness.tick()
    again = harness.restarted()
    assert again.state.reservations.by_name == harness.state.reservations.by_name
    again.join("a")
    again.submit(spec())
    assert again.tick() == []


@pytest.mark.parametrize(
    ("every", "at", "length", "first"),
    [
        (None, 0, 100, 0),
        (None, 0, 101, 110),
        (None, 105, 1, 110),
        (None, 110, NEVER, 110),
        (50, 0, 100, 0),
        (50, 95, 6, 110),
        (50, 110, 40, 110),
        (50, 110, 41, NEVER),
        (50, 120, 35, 160),
        (50, 115, 35, 115),
    ],
)
def test_first_moment_clear_of_reservations(
    every: float | None, at: float, length: float, first: float
) -> None:
    kept = Reservation(ReservationSpec("r", 100, 10, every_s=every), (), 100, "root")
    assert kept.clear_from(at, length) == first
    assert clear_from([kept], at, length) == first


def course(harness: EngineHarness, *nodes: str, after: float = HOUR) -> None:
    """Reserve the nodes for ada, for an hour."""
    reserve(harness, reservation("course", after, nodes=nodes, users=("ada",)))


@pytest.mark.parametrize("backfill", [Easy(), Conservative()])
def test_job_starts_only_in_the_reservation_that_it_names(backfill: Backfill) -> None:
    harness = harness_of("a", "b", backfill=backfill)
    course(harness, "b")
    jobs = [harness.submit(spec(gpus=8, time_limit_s=HOUR, reservation="course"), "ada") for _ in range(2)]
    other = harness.submit(spec(gpus=8, time_limit_s=HOUR, grace_s=0.0), "bob")
    harness.tick()
    assert [harness.nodes_of(job) for job in jobs] == [[], []]
    assert harness.nodes_of(other) != []
    assert why(harness, jobs[0]) == (Reason.RESERVATION, "reservation 'course' begins in 1h00m")
    harness.start(other)
    harness.exit(other)
    harness.tick()
    assert [harness.nodes_of(job) for job in jobs] == [[], []]
    harness.now += HOUR
    harness.tick()
    assert [harness.nodes_of(job) for job in jobs] == [["b"], []]
    assert why(harness, jobs[1]) == (
        Reason.RESERVATION,
        "fits on 1 node, of which 0 can be used in reservation 'course'",
    )
    harness.now += HOUR
    harness.tick()
    assert harness.nodes_of(jobs[1]) == []
    assert why(harness, jobs[1]) == (
        Reason.RESERVATION,
        "reservation 'course' no longer exists: it has ended or was cancelled",
    )


@pytest.mark.parametrize("backfill", [Easy(), Conservative()])
def test_planned_start_of_a_job_lies_in_its_reservation(backfill: Backfill) -> None:
    """The node of the reservation is free in half an hour; the other node is free now."""
    harness = harness_of("a", "b", backfill=backfill)
    course(harness, "b", after=1.0)
    harness.now += 1.0
    running, long = (
        harness.submit(spec(gpus=8, time_limit_s=limit, grace_s=0.0, reservation="course"), "ada")
        for limit in (HOUR / 2, HOUR)
    )
    harness.tick()
    late = harness.submit(spec(gpus=8, time_limit_s=60.0, reservation="course"), "ada")
    harness.tick()
    assert harness.nodes_of(running) == ["b"]
    starts = forecast(fork(harness.engine), harness.now).starts
    assert (starts[long].at, starts[long].nodes) == (harness.now + HOUR / 2, ("b",))
    # `long` still runs when the reservation ends, so the last job has no start.
    assert late not in starts


def test_job_of_a_user_that_the_reservation_does_not_admit_waits() -> None:
    harness = harness_of("a")
    course(harness, "a", after=1.0)
    harness.now += 1.0
    job = harness.submit(spec(gpus=1, time_limit_s=60.0, reservation="course"), "bob")
    assert harness.tick() == []
    assert why(harness, job) == (
        Reason.RESERVATION,
        "reservation 'course' admits neither user 'bob' nor project 'default'",
    )


def test_waiting_job_of_a_reservation_keeps_no_other_job_waiting() -> None:
    harness = harness_of("a", "b")
    course(harness, "b")
    confined = harness.submit(spec(gpus=8, time_limit_s=HOUR, reservation="course"), "ada")
    other = harness.submit(spec(gpus=8, time_limit_s=HOUR), "ada")
    harness.tick()
    assert (harness.nodes_of(confined), len(harness.nodes_of(other))) == ([], 1)


def test_recurring_reservation_lets_its_jobs_start_in_each_occurrence() -> None:
    harness = harness_of("a")
    reserve(harness, reservation("course", nodes=("a",), users=("ada",), every_s=3 * HOUR))
    harness.now += 2 * HOUR
    harness.tick()
    job = harness.submit(spec(gpus=1, time_limit_s=60.0, reservation="course"), "ada")
    assert harness.tick() == []
    assert why(harness, job)[1] == "reservation 'course' begins in 2h00m"
    harness.now += 2 * HOUR
    harness.tick()
    assert harness.nodes_of(job) == ["a"]


def test_reservation_that_does_not_exist_is_refused() -> None:
    harness = harness_of("a")
    course(harness, "a")
    refusal = harness.refuse(job_inputs.Submit(spec(gpus=1, reservation="curse"), "ada"))
    assert (refusal.where, refusal.message) == ("reservation", "there is no reservation 'curse'")
    assert refusal.hint == "Did you mean 'course'? 'corral reserve list' shows the reservations."


def test_edit_removes_and_changes_the_reservation_of_a_waiting_job() -> None:
    harness = harness_of("a")
    course(harness, "a")
    job = harness.submit(spec(gpus=1, time_limit_s=60.0, reservation="course"), "ada")
    assert harness.tick() == []
    assert harness.refuse(job_inputs.Edit(job, "ada", {"reservation": "curse"})).where == "reservation"
    harness.tell(job_inputs.Edit(job, "ada", {"reservation": None}))
    harness.tick()
    assert harness.nodes_of(job) == ["a"]


def test_job_stays_confined_to_its_reservation_after_a_restart() -> None:
    harness = harness_of("a", "b")
    course(harness, "b")
    jobs = [harness.submit(spec(gpus=8, time_limit_s=HOUR, reservation="course"), "ada") for _ in range(2)]
    harness = harness.restarted()
    for node in "ab":
        harness.join(node)
    harness.now += HOUR
    harness.tick()
    assert [harness.nodes_of(job) for job in jobs] == [["b"], []]


def test_job_preempts_no_job_outside_its_reservation() -> None:
    harness = EngineHarness(replace(PIPELINE, strategies=(PriorityStrategy(),), guards=UNGUARDED))
    for node in "ab":
        harness.join(node)
    course(harness, "b", after=1.0)
    harness.now += 1.0
    low = [harness.submit(spec(gpus=8, priority=10, time_limit_s=HOUR), user) for user in ("bob", "ada")]
    harness.tick()
    assert [harness.nodes_of(job) for job in low] == [["a"], ["b"]]
    for job in low:
        harness.start(job)
    urgent = harness.submit(spec(gpus=8, priority=90, time_limit_s=60.0, reservation="course"), "ada")
    harness.tick()
    assert [each.job for each in harness.job(urgent).claim_from] == [low[1]]
