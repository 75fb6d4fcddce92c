"""A supervisor ends its job by itself when nobody has heard of the controller for longer than the lease."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path

from agent.attempts import lease
from tests.agent.driving import Driven, alive, eventually
from wire.agent.frames import Frame, Ping, Pong

Run = Callable[..., Driven]


BEAT_S = 0.1
beats = itertools.count(1)


def say(agent: Driven, heard: float | None) -> float:
    """Renew leases as of this moment; the agent's own clock when it answers."""
    beat = next(beats)
    agent.send(Ping(beat, heard))

    def answered(said: list[Frame]) -> Pong | None:
        return next((each for each in reversed(said) if isinstance(each, Pong) and each.beat == beat), None)

    clock = agent.until(answered).clock
    assert clock is not None
    return clock


def ended(agent: Driven) -> bool:
    return any(status.ended_at for status in agent.reports(1))


def test_without_a_word_the_job_ends_and_says_why(run: Run) -> None:
    agent = run()
    say(agent, agent.hello().clock)
    agent.start(1, "sleep", "1000", lease_s=1.0)
    pid = agent.started(1).pid
    over = agent.ended(1)
    assert (over.signal, over.why) == (15, lease.LEASE_EXPIRED)
    assert pid is not None
    assert not alive(pid)


def test_a_job_that_ignores_sigterm_has_its_grace_and_no_more(run: Run) -> None:
    agent = run()
    say(agent, agent.hello().clock)
    agent.start(1, "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", lease_s=0.5, grace_s=0.5)
    assert agent.ended(1).signal == 9


def test_with_renewals_it_goes_on(run: Run) -> None:
    agent = run()
    say(agent, agent.hello().clock)
    agent.start(1, "sleep", "3", lease_s=1.0)
    agent.started(1)
    heard = agent.hello().clock
    while not ended(agent):
        heard = say(agent, heard)
        time.sleep(BEAT_S)
    assert agent.ended(1).code == 0


def test_a_word_that_was_held_back_renews_nothing(run: Run) -> None:
    """What the network delivers late says when the controller heard of us, and that is long ago."""
    agent = run()
    say(agent, agent.hello().clock)
    agent.start(1, "sleep", "1000", lease_s=1.0)
    while not ended(agent):
        say(agent, agent.hello().clock)
        time.sleep(BEAT_S)
    assert agent.ended(1).why == lease.LEASE_EXPIRED


def test_it_needs_no_agent(run: Run) -> None:
    agent = run()
    say(agent, agent.hello().clock)
    agent.start(1, "sleep", "1000", lease_s=1.0)
    pid = agent.started(1).pid
    agent.kill()
    assert pid is not None
    eventually(lambda: not alive(pid))
    [told] = run().hello().attempts
    assert told.why == lease.LEASE_EXPIRED


def test_an_order_without_a_lease_that_holds_starts_nothing(run: Run, tmp_path: Path) -> None:
    agent = run()
    agent.start(1, "touch", str(tmp_path / "ran"), lease_s=100.0)
    over = agent.ended(1)
    assert (over.pid, over.why) == (None, lease.LEASE_EXPIRED)
    assert not (tmp_path / "ran").exists()


def test_a_lease_of_another_boot_holds_nothing(tmp_path: Path) -> None:

    descriptor = os.open(tmp_path / lease.NAME, os.O_RDWR | os.O_CREAT)
    lease.write_renewal(descriptor, "before", 123.5)
    assert lease.last_renewal(str(tmp_path), "before") == 123.5
    assert lease.last_renewal(str(tmp_path), "after") == float("-inf")
    os.write(descriptor, b"nonsense")
    os.close(descriptor)
    assert lease.last_renewal(str(tmp_path), "before") == float("-inf")
