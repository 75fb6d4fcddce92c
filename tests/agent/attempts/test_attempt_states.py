"""Decisions about attempts, without a process or a file, and thousands of random sequences of events."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent.attempts.actions import (
    AttemptAction,
    DeleteLogs,
    FailLaunch,
    LaunchSupervisor,
    MoveToSettled,
    RecordEnd,
    RecordOrder,
    RequestStop,
    SendReport,
    WatchSupervisor,
)
from agent.attempts.attempt_states import AttemptStates
from agent.attempts.spool import AttemptKey, SpooledAttempt
from agent.gpus.process_owners import held_milli
from tests.examples import examples
from wire.agent.orders import GpuHold, Settle, Start, Stop
from wire.agent.reports import AttemptStatus, Report

STARTED = ["started", "500", "1000", "7.0"]
ENDED = ["ended", "8.0", "0", "-", "0.1", "9", ""]


def order(job: int = 1, attempt: int = 1, **more: Any) -> Start:
    return Start(job, attempt, ("true",), "x", 1, 1, **more)


def reported_ends(done: list[AttemptAction]) -> list[AttemptStatus]:
    return [each.report.status for each in done if isinstance(each, SendReport)]


def running(attempts: AttemptStates, job: int = 1, attempt: int = 1) -> None:
    attempts.start(order(job, attempt), 1.0)
    attempts.apply_hint((job, attempt), ["forked", "400"])
    attempts.apply_hint((job, attempt), STARTED)


def test_order_is_recorded_before_its_launch_and_its_start_reported() -> None:
    attempts = AttemptStates(keep=10)
    assert attempts.start(order(), 1.0) == [RecordOrder(order()), LaunchSupervisor((1, 1))]
    assert attempts.apply_hint((1, 1), ["forked", "400"]) == [WatchSupervisor((1, 1), 400)]
    running_now = AttemptStatus(1, 1, 500, 7.0)
    assert attempts.apply_hint((1, 1), STARTED) == [SendReport(Report(running_now))]
    assert attempts.apply_hint((1, 1), STARTED) == []
    assert attempts.start(order(), 2.0) == [SendReport(Report(running_now))]
    (ended,) = reported_ends(attempts.apply_hint((1, 1), ENDED))
    assert (ended.pid, ended.code) == (500, 0)
    assert attempts.apply_hint((1, 1), ENDED) == []
    assert attempts.unsettled() == (ended,)
    assert attempts.settle(Settle(1, 1)) == [MoveToSettled((1, 1))]
    assert attempts.settle(Settle(1, 1)) == []
    assert attempts.unsettled() == ()


def test_hint_may_arrive_before_the_fork_server_reports() -> None:
    attempts = AttemptStates(keep=10)
    attempts.start(order(), 1.0)
    assert reported_ends(attempts.apply_hint((1, 1), STARTED))
    assert reported_ends(attempts.apply_hint((1, 1), ENDED))
    assert attempts.apply_hint((1, 1), ["forked", "400"]) == []


def test_hints_about_unknown_attempts_are_ignored() -> None:
    assert AttemptStates(keep=10).apply_hint((9, 9), ENDED) == []
    assert AttemptStates(keep=10).supervisor_gone((9, 9), SpooledAttempt(AttemptStatus(9, 9)), None) == []
    assert AttemptStates(keep=10).settle(Settle(9, 9)) == []


def test_running_attempt_cannot_be_settled() -> None:
    attempts = AttemptStates(keep=10)
    running(attempts)
    assert attempts.settle(Settle(1, 1)) == []


def test_order_that_cannot_be_recorded_is_forgotten() -> None:
    attempts = AttemptStates(keep=10)
    attempts.start(order(attempt=4), 1.0)
    attempts.apply_hint((1, 4), ENDED)
    attempts.start(order(attempt=5), 1.0)
    (status,) = reported_ends(attempts.record_failed((1, 5), 2.0, "disk full"))
    assert (status.ended_at, status.why) == (2.0, "node_unfit: disk full")
    assert attempts.has_ended((1, 5)) is None
    assert reported_ends(attempts.start(order(attempt=3), 1.0))[0].why.startswith(
        "refused: attempt 4 of job 1"
    )
    assert attempts.start(order(attempt=5), 3.0)[0] == RecordOrder(order(attempt=5))


def test_stop_reaches_a_supervisor_that_starts_later() -> None:
    attempts = AttemptStates(keep=10)
    attempts.start(order(), 1.0)
    assert attempts.stop(Stop(1, 1), 1.0) == [RequestStop(Stop(1, 1))]
    assert attempts.apply_hint((1, 1), ["forked", "400"]) == [
        WatchSupervisor((1, 1), 400),
        RequestStop(Stop(1, 1)),
    ]


def test_first_reason_and_shortest_grace_of_several_stops_count() -> None:
    attempts = AttemptStates(keep=10)
    running(attempts)
    attempts.stop(Stop(1, 1, 10.0, "preempted"), 1.0)
    assert attempts.stop(Stop(1, 1, 2.0, "cancelled"), 1.0) == [RequestStop(Stop(1, 1, 2.0, "preempted"))]
    assert attempts.stop(Stop(1, 1, 20.0, "cancelled"), 1.0) == [RequestStop(Stop(1, 1, 2.0, "preempted"))]


def test_stop_of_an_unknown_attempt_is_recorded_unless_it_is_older() -> None:
    attempts = AttemptStates(keep=10)
    status = AttemptStatus(1, 2, ended_at=1.0, why="cancelled")
    assert attempts.stop(Stop(1, 2), 1.0) == [RecordEnd(status), SendReport(Report(status))]
    assert reported_ends(attempts.start(order(attempt=2), 2.0)) == [status]
    older = AttemptStatus(1, 1, ended_at=3.0, why="cancelled")
    assert attempts.stop(Stop(1, 1), 3.0) == [SendReport(Report(older))]


def test_a_newer_attempt_waits_for_the_older() -> None:
    attempts = AttemptStates(keep=10)
    running(attempts)
    newer = order(attempt=2)
    assert attempts.start(newer, 2.0) == [RecordOrder(newer), RequestStop(Stop(1, 1, 0.0, "superseded"))]
    done = attempts.apply_hint((1, 1), ENDED)
    assert done[1:] == [LaunchSupervisor((1, 2))]


def test_an_attempt_that_waits_can_be_stopped() -> None:
    attempts = AttemptStates(keep=10)
    running(attempts)
    attempts.start(order(attempt=2), 2.0)
    assert attempts.stop(Stop(1, 2), 3.0) == [RequestStop(Stop(1, 2)), LaunchSupervisor((1, 2))]


def test_lost_supervisor_is_relaunched_with_growing_delays() -> None:
    attempts = AttemptStates(keep=10)
    running(attempts)
    found = SpooledAttempt(AttemptStatus(1, 1, 500, 7.0))
    delays = []
    for _ in range(70):
        (launch,) = attempts.supervisor_gone((1, 1), found, None)
        assert isinstance(launch, LaunchSupervisor)
        delays.append(launch.after_s)
    assert delays[:3] == [0.0, 0.5, 1.0]
    assert delays[-1] == 30.0


def test_supervisor_that_is_alive_is_watched() -> None:
    attempts = AttemptStates(keep=10)
    running(attempts)
    assert attempts.supervisor_gone((1, 1), SpooledAttempt(AttemptStatus(1, 1, 500, 7.0)), 401) == [
        WatchSupervisor((1, 1), 401)
    ]


def test_unreported_end_is_read_from_the_record() -> None:
    attempts = AttemptStates(keep=10)
    running(attempts)
    status = AttemptStatus(1, 1, 500, 7.0, 8.0, 3)
    assert attempts.supervisor_gone((1, 1), SpooledAttempt(status), None) == [SendReport(Report(status))]


def test_only_launches_without_supervisor_are_repeated_for_a_new_fork_server() -> None:
    attempts = AttemptStates(keep=10)
    running(attempts, 1)
    attempts.start(order(2), 1.0)
    assert attempts.fork_server_gone() == [LaunchSupervisor((2, 1))]
    assert attempts.apply_hint((2, 1), ["unforked", "Resource", "temporarily", "unavailable"]) == [
        FailLaunch((2, 1), "node_unfit: cannot fork a supervisor: Resource temporarily unavailable")
    ]


def test_spooled_attempts_are_taken_over() -> None:
    attempts = AttemptStates(keep=1)
    stop = Stop(2, 1, 3.0, "cancelled")
    for found, holder, settled in (
        (SpooledAttempt(AttemptStatus(9, 1, 1, 1.0, 2.0, 0)), None, True),
        (SpooledAttempt(AttemptStatus(8, 1, 1, 1.0, 3.0, 0)), None, True),
        (SpooledAttempt(AttemptStatus(1, 1, 1, 1.0, 2.0, 5), order(1)), None, False),
        (SpooledAttempt(AttemptStatus(2, 1, 500, 1.0), order(2), stop), 400, False),
        (SpooledAttempt(AttemptStatus(3, 1, 501, 1.0), order(3)), None, False),
        (SpooledAttempt(AttemptStatus(4, 1), order(4)), None, False),
        (SpooledAttempt(AttemptStatus(4, 2), order(4, 2)), None, False),
    ):
        attempts.adopt(found, holder, settled)
    assert [(each.job, each.attempt) for each in attempts.unsettled()] == [
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 1),
        (4, 2),
    ]
    assert attempts.resume() == [
        WatchSupervisor((2, 1), 400),
        RequestStop(stop),
        LaunchSupervisor((3, 1)),
        LaunchSupervisor((4, 1)),
        DeleteLogs((9, 1)),
    ]


def test_gpus_are_loaded_while_their_attempts_run() -> None:
    attempts = AttemptStates(keep=10)
    for job, milli in ((1, 250), (2, 500)):
        attempts.start(order(job, gpus=(GpuHold("a", milli), GpuHold(f"b{job}", 1000))), 1.0)
        attempts.apply_hint((job, 1), STARTED)
    assert held_milli(attempts.gpu_holders()) == {"a": 750, "b1": 1000, "b2": 1000}
    attempts.apply_hint((1, 1), ENDED)
    assert held_milli(attempts.gpu_holders()) == {"a": 500, "b2": 1000}


class Lives(RuleBasedStateMachine):
    """A controller, a fork server and supervisors that act at random, in any order, and repeatedly."""

    keys = st.tuples(st.integers(1, 2), st.integers(1, 3))

    def __init__(self) -> None:
        super().__init__()
        self.attempts = AttemptStates(keep=1)
        self.kept: set[AttemptKey] = set()
        self.launched: dict[AttemptKey, int] = {}
        self.ends: dict[AttemptKey, AttemptStatus] = {}
        self.stops: dict[AttemptKey, Stop] = {}

    def done(self, instructions: list[AttemptAction]) -> None:
        for each in instructions:
            if isinstance(each, RecordOrder):
                key = (each.order.job, each.order.attempt)
                assert not any(job == key[0] and attempt > key[1] for job, attempt in self.kept)
                self.kept.add(key)
            elif isinstance(each, RecordEnd):
                self.kept.add((each.status.job, each.status.attempt))
            elif isinstance(each, LaunchSupervisor):
                assert each.key in self.kept, "launched before it was written down"
                assert each.key not in self.ends, "launched after its end"
                self.launched[each.key] = self.launched.get(each.key, 0) + 1
            elif isinstance(each, RequestStop):
                self.stops[(each.stop.job, each.stop.attempt)] = each.stop
            elif isinstance(each, DeleteLogs):
                self.kept.discard(each.key)
                self.ends.pop(each.key, None)
                self.launched.pop(each.key, None)
                self.stops.pop(each.key, None)
            elif isinstance(each, SendReport):
                status = each.report.status
                key = (status.job, status.attempt)
                if status.ended_at is not None and key in self.kept:
                    assert self.ends.setdefault(key, status) == status, "two different ends"
                assert status.ended_at is not None or key not in self.ends, "alive after its end"

    @rule(key=keys)
    def start(self, key: AttemptKey) -> None:
        self.done(self.attempts.start(order(*key), 1.0))

    @rule(key=keys, grace=st.floats(0, 10))
    def stop(self, key: AttemptKey, grace: float) -> None:
        self.done(self.attempts.stop(Stop(*key, grace), 2.0))

    @rule(key=keys)
    def settle(self, key: AttemptKey) -> None:
        self.done(self.attempts.settle(Settle(*key)))

    @rule(key=keys, fact=st.sampled_from([["forked", "400"], STARTED, ENDED, ["claimed", "400"]]))
    def hear(self, key: AttemptKey, fact: list[str]) -> None:
        if key in self.launched:
            self.done(self.attempts.apply_hint(key, fact))

    @rule(key=keys, holder=st.sampled_from([None, 400, 401]), status=st.integers(0, 1))
    def lose_sight(self, key: AttemptKey, holder: int | None, status: int) -> None:
        if key in self.launched:
            found = SpooledAttempt(AttemptStatus(*key, 500, 7.0, *([8.0, 1] if status else [])))
            self.done(self.attempts.supervisor_gone(key, found, holder))

    @rule()
    def lose_nursery(self) -> None:
        self.done(self.attempts.fork_server_gone())

    @rule()
    def restart(self) -> None:
        """Start a new agent, which knows exactly the content of the records."""
        before, self.attempts = self.attempts, AttemptStates(keep=1)
        for key in sorted(self.kept):
            status = self.ends.get(key, AttemptStatus(*key))
            settled = before.has_ended(key) is True and status not in before.unsettled()
            self.attempts.adopt(SpooledAttempt(status, order(*key), self.stops.get(key)), settled=settled)
        self.done(self.attempts.resume())

    @invariant()
    def one_attempt_of_a_job_at_a_time(self) -> None:
        alive = [key for key in self.launched if key not in self.ends]
        unstopped = [job for job, attempt in alive if (job, attempt) not in self.stops]
        assert len(set(unstopped)) == len(unstopped)


Lives.TestCase.settings = settings(max_examples=examples(180), stateful_step_count=40)
TestLives = Lives.TestCase
