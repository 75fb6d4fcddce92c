"""Reservations as stories: which nodes are reserved, which jobs may use them, and what explain says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.forecast.forecast import forecast, fork
from controller.core.framework.interfaces import Backfill
from controller.core.model import inputs
from controller.core.model.job import NEVER
from controller.core.reservations.reservations import Reservation, clear_from
from controller.plugins.backfill.kinds import Conservative, Easy
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.cluster.reservation import ReservationSpec
from wire.names import JobState, Reason

NOW = 1_000.0
HOUR = 3_600.0


def reservation(name: str = "r", after: float = HOUR, length: float = HOUR, **more: Any) -> ReservationSpec:
    """An hour that begins in an hour."""
    return ReservationSpec(name, NOW + after, length, **more)


def harness(*nodes: str, backfill: Backfill = Easy()) -> EngineHarness:
    made = EngineHarness(replace(PIPELINE, backfill=backfill))
    for node in nodes:
        made.join(node)
    return made


def reserve(there: EngineHarness, asked: ReservationSpec, *, anyway: bool = False) -> tuple[str, ...]:
    """Make it; the nodes it got."""
    there.tell(inputs.Reserve(asked, "root", anyway))
    return there.state.reservations.by_name[asked.name].nodes


def why(there: EngineHarness, job: int) -> tuple[Reason, str]:
    told = there.engine.explain(there.job(job), there.now)
    return told.reason, told.sentence


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
    there = harness("a", backfill=backfill)
    reserve(there, reservation(nodes=("a",), users=("bob",)))
    job = there.submit(spec(gpus=1, time_limit_s=limit, grace_s=10.0), user)
    assert bool(there.tick()) == starts
    assert there.job(job).state is (JobState.SCHEDULED if starts else JobState.QUEUED)


@pytest.mark.parametrize("backfill", [Easy(), Conservative()])
def test_maintenance_bars_all_jobs_until_its_end(backfill: Backfill) -> None:
    there = harness("a", "b", backfill=backfill)
    assert reserve(there, reservation(nodes=("a",), why="fans")) == ("a",)
    long = [there.submit(spec(gpus=8)) for _ in range(2)]
    there.tick()
    assert [there.nodes_of(job) for job in long] == [["b"], []]
    assert why(there, long[1]) == (
        Reason.RESERVATION,
        "fits on 1 node, of which 0 are not kept: reservation 'r' begins in 1h00m, "
        "and the job has no time limit",
    )
    there.now += HOUR
    assert there.tick() == []
    assert why(there, long[1])[1].endswith("reservation 'r' is on for another 1h00m")
    short = there.submit(spec(gpus=1, time_limit_s=60.0))
    assert there.tick() == []
    assert there.engine.next_at == NOW + 2 * HOUR
    there.now += HOUR
    there.tick()
    assert there.nodes_of(long[1]) == ["a"]
    assert there.nodes_of(short) == []
    assert not there.state.reservations


def test_short_jobs_pass_one_that_waits_for_the_end_of_a_reservation() -> None:
    there = harness("a")
    reserve(there, reservation(nodes=("a",)))
    first = there.submit(spec(gpus=8, time_limit_s=2 * HOUR))
    second = there.submit(spec(gpus=8, time_limit_s=HOUR / 2))
    there.tick()
    assert there.nodes_of(second) == ["a"]
    shadow = there.engine.cycle.first_reservation(there.now)
    assert shadow is not None
    assert (shadow.job, shadow.starts_at) == (first, NOW + 2 * HOUR)


def test_a_backfill_reservation_avoids_a_reservation() -> None:
    """It could have a when the job there ends, were it not kept then: so it is promised b, later."""
    there = harness("a", "b")
    on_a, on_b = (there.submit(spec(gpus=8, time_limit_s=limit)) for limit in (HOUR / 2, 3 * HOUR))
    there.tick()
    reserve(there, reservation(nodes=("a",), length=5 * HOUR))
    waiting = there.submit(spec(gpus=8, time_limit_s=HOUR))
    there.tick()
    assert (there.nodes_of(on_a), there.nodes_of(on_b)) == (["a"], ["b"])
    shadow = there.engine.cycle.first_reservation(there.now)
    assert shadow is not None
    assert (shadow.job, shadow.starts_at) == (waiting, NOW + 3 * HOUR)
    told = forecast(fork(there.engine), there.now).starts
    assert (told[waiting].at, told[waiting].nodes) == (NOW + 3 * HOUR, ("b",))


def test_a_recurring_reservation_comes_again_until_cancelled() -> None:
    there = harness("a")
    reserve(there, reservation(nodes=("a",), every_s=6 * HOUR))
    kept = there.state.reservations.by_name["r"]
    for turn in range(3):
        there.now = NOW + HOUR + turn * 6 * HOUR
        there.tick()
        assert kept.began
        job = there.submit(spec(time_limit_s=60.0))
        assert there.tick() == []
        there.now += HOUR
        there.tick()
        assert not kept.began
        assert there.nodes_of(job) == ["a"]
        there.exit(job)
    there.now += 30 * HOUR  # nobody looked for five turns
    there.tick()
    assert kept.starts_at == NOW + HOUR + 8 * 6 * HOUR
    never = there.submit(spec())
    assert there.tick() == []
    assert told_start(there, never) is None
    there.tell(inputs.CancelReservation("r", "root"))
    there.tick()
    assert there.nodes_of(never) == ["a"]


def told_start(there: EngineHarness, job: int) -> float | None:
    found = forecast(fork(there.engine), there.now, until=job).starts.get(job)
    return None if found is None else found.at


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [
        ({"count": 1}, ("b",)),  # nothing runs there
        ({"count": 2}, ("b", "c")),  # over before it begins
        ({"gpus": 9}, ("b", "c")),
        ({"count": 1, "selector": {"pool": "x"}}, ("c",)),
    ],
)
def test_a_reservation_by_count_takes_the_nodes_that_are_free_soonest(
    asked: dict[str, Any], nodes: tuple[str, ...]
) -> None:
    there = harness("a", "b")
    there.join("c", labels={"pool": "x"})
    for node, limit in (("a", None), ("c", HOUR / 2)):
        there.submit(spec(gpus=1, time_limit_s=limit, selector={"node": node}))
    there.tick()
    assert reserve(there, reservation(**asked)) == nodes


@pytest.mark.parametrize(
    ("asked", "code", "where", "told"),
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
        ({}, "invalid", "nodes", "one of the three"),
        ({"nodes": ("b",), "count": 1}, "invalid", "nodes", "one of the three"),
        ({"count": 1, "every_s": HOUR}, "invalid", "every_s", "longer than"),
        ({"count": 1, "after": -2 * HOUR, "length": HOUR}, "invalid", "starts_at", ""),
        ({"count": 1, "name": "old"}, "conflict", "name", "already"),
        ({"count": 1, "name": "a/b"}, "invalid", "name", "without '/'"),
    ],
)
def test_reservations_that_are_refused(asked: dict[str, Any], code: str, where: str, told: str) -> None:
    there = harness("a", "b", "c")
    there.submit(spec(selector={"node": "a"}))
    there.tick()
    reserve(there, reservation("old", after=1.5 * HOUR, nodes=("b",), users=("eve",)))
    refused = there.refuse(inputs.Reserve(reservation(**asked), "root"))
    assert (refused.code, refused.where) == (code, where)
    assert told in refused.message


def test_a_forced_reservation_lets_running_jobs_go_on() -> None:
    there = harness("a")
    running = there.submit(spec(gpus=1))
    there.tick()
    reserve(there, reservation(nodes=("a",)), anyway=True)
    there.submit(spec(gpus=1))
    assert there.tick() == []
    assert there.job(running).state is JobState.SCHEDULED


def test_a_reservation_is_there_after_a_restart() -> None:
    there = harness("a")
    reserve(there, reservation(nodes=("a",), every_s=2 * HOUR))
    there.now += HOUR
    there.tick()
    again = there.restarted()
    assert again.state.reservations.by_name == there.state.reservations.by_name
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
def test_the_first_clear_moment(every: float | None, at: float, length: float, first: float) -> None:
    kept = Reservation(ReservationSpec("r", 100, 10, every_s=every), (), 100, "root")
    assert kept.clear_from(at, length) == first
    assert clear_from([kept], at, length) == first
