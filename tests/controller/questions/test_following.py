"""An engine copy that gets the same inputs gives the same answers as the engine, under every policy."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from controller.api.views.resources import job_view
from controller.core.forecast.forecast import forecast, fork, with_run_times
from controller.core.model.inputs.job_inputs import Submit
from controller.questions.engine_copy import copy_process as engine_copy_process
from controller.questions.engine_copy.deadline import Deadline
from controller.questions.engine_copy.engine_copy import EngineCopy
from controller.questions.engine_copy.forked_processes import Fork
from controller.questions.engine_copy.messages import (
    Committed,
    Ended,
    QuestionAnswer,
    QuestionAsked,
    Unpacker,
    digest_of,
    pack,
    unpack,
)
from controller.questions.explanation import explain_waiting
from controller.questions.what_if import what_if
from tests.controller.questions.clusters import POLICIES, Cluster
from tests.limits import LIMIT_S
from wire.api.forecasts import WhatIf
from wire.job.spec import JobSpec
from wire.names import JobState

LONG_S = LIMIT_S / 2
"""A budget that no question here needs, although replicas have a low priority on a busy machine."""
URGENT = JobSpec(command=("true",), gpus=8, priority=95, time_limit_s=7200.0)


class Followed:
    """An engine copy of a cluster. The test passes on the messages."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.seq = 0
        self._line, theirs = socket.socketpair()
        self._line.settimeout(LONG_S)
        with theirs:
            self.pid = engine_copy_process.begin(theirs, cluster.engine, cluster.config, 0, 4096)
        self._sent = Unpacker()

    def land(self) -> None:
        handled, events = self.cluster.landing()
        self.seq += len(events)
        self.send(Committed(tuple(handled), self.seq, digest_of(events)))

    def send(self, message: object) -> None:
        self._line.sendall(pack(message))

    def ask(self, work: Any, *arguments: Any) -> Any:
        """The last answer."""
        self.send(QuestionAsked(1, work, arguments, self.cluster.now, LONG_S))
        answer = None
        while True:
            for message in map(unpack, self._sent.feed(self._line.recv(1 << 16))):
                if isinstance(message, Ended):
                    assert message.failure == ""
                    return answer
                assert isinstance(message, QuestionAnswer)
                answer = message.answer

    def leave(self) -> None:
        self._line.close()
        os.waitpid(self.pid, 0)


def whole_story(scene: EngineCopy) -> Iterator[Any]:
    """Return the state of every job with its reason, and the expected starts."""
    engine, now = scene.engine, scene.now
    # Leave out the scores of nodes, because the values of free GPUs (GpuValue) are computed when they are
    # first used, from the requests that were submitted until then.
    whys = {job.id: replace(engine.explain(job, now), nodes=()) for job in engine.state.live()}
    promises = [cycle.easy._latest for cycle in engine.profile_cycles.cycles.values()]
    yield whys, promises, forecast(fork(engine), now).starts, engine.state.preempted_at


@pytest.fixture(params=list(POLICIES))
def followed(request: pytest.FixtureRequest) -> Iterator[Followed]:
    cluster = Cluster(request.param, seed=len(request.param))
    for _ in range(15):
        cluster.landing()
    made = Followed(cluster)
    yield made
    made.leave()


def test_engine_copy_state_equals_engine_state(followed: Followed) -> None:
    for _ in range(4):
        for _ in range(15):
            followed.land()
        cluster = followed.cluster
        scene = EngineCopy(cluster.engine, cluster.config, 0, cluster.now, Deadline.after(LONG_S))
        assert followed.ask(whole_story) == next(whole_story(scene))


def test_explanation_has_the_start_that_the_engine_forecasts(followed: Followed) -> None:
    for _ in range(30):
        followed.land()
    engine, now = followed.cluster.engine, followed.cluster.now
    waiting = [job for job in engine.state.live() if job.state is JobState.QUEUED and not job.held]
    assert waiting
    for job in waiting[:: max(1, len(waiting) // 3)][:3]:
        answer = followed.ask(explain_waiting, job_view(engine, job))
        assert answer.why == engine.explain(job, now)
        expected = forecast(with_run_times(fork(engine), predicted=False), now, (), job.id).starts.get(job.id)
        assert (answer.starts_at, answer.nodes) == (
            (None, ()) if expected is None else (expected.at, expected.nodes)
        )
        assert answer.complete
        assert answer.as_of == followed.seq


def test_what_if_compares_two_forecasts_of_the_engine(followed: Followed) -> None:
    for _ in range(30):
        followed.land()
    engine, now = followed.cluster.engine, followed.cluster.now
    answer = followed.ask(what_if, WhatIf(submit=(URGENT,)), "ada", False)
    before = forecast(with_run_times(fork(engine), predicted=False), now).starts
    after = forecast(with_run_times(fork(engine), predicted=False), now, [Submit(URGENT, "ada")]).starts
    new, *moved = answer.shifts
    assert (new.new, new.becomes) == (True, after[new.job].at)
    assert (answer.complete, answer.unknown) == (True, 0)
    for shift in moved:
        was, becomes = before.get(shift.job), after.get(shift.job)
        assert shift.was == (was.at if was else None)
        assert shift.becomes == (becomes.at if becomes else None)
    both = [(before[job].at, after[job].at) for job in before if job in after]
    assert answer.later_h * 3600 == pytest.approx(sum(max(0.0, then - at) for at, then in both))
    assert answer.sooner_h * 3600 == pytest.approx(sum(max(0.0, at - then) for at, then in both))


def test_engine_copy_ends_when_its_events_differ(followed: Followed) -> None:
    handled, events = followed.cluster.landing()
    followed.send(Committed(tuple(handled), len(events), digest_of(events) ^ 1))
    assert followed._line.recv(1) == b"", "it has closed the line"


def test_fork_changes_nothing_in_the_parent_and_stops_at_the_time_limit() -> None:
    values = [1]

    def change() -> int:
        values.append(2)
        return len(values)

    assert Fork(change).result(Deadline.after(LONG_S)) == 2
    assert values == [1]
    endless = Fork(lambda: time.sleep(LONG_S))
    now = time.monotonic()
    assert endless.result(Deadline(now, now + 0.05, LONG_S)) is None


def test_fork_that_fails_returns_none(capfd: pytest.CaptureFixture[str]) -> None:
    assert Fork(lambda: 1 // 0).result(Deadline.after(LONG_S)) is None
    assert "ZeroDivisionError" in capfd.readouterr().err
