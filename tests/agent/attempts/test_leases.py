"""A supervisor ends its job when the controller has been silent for longer than the lease."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path

from agent.attempts import lease
from tests.agent.agent_process import AgentProcess, alive, eventually
from wire.agent.frames import Frame
from wire.agent.orders import Ping
from wire.agent.reports import Pong

Run = Callable[..., AgentProcess]


BEAT_S = 0.1
beats = itertools.count(1)


def renew(agent: AgentProcess, clock: float | None) -> float:
    """Renew leases now. Return the time of the agent's clock in its answer."""
    beat = next(beats)
    agent.send(Ping(beat, clock))

    def await_pong(frames: list[Frame]) -> Pong | None:
        return next((each for each in reversed(frames) if isinstance(each, Pong) and each.beat == beat), None)

    answered_at = agent.until(await_pong).clock
    assert answered_at is not None
    return answered_at


def ended(agent: AgentProcess) -> bool:
    return any(status.ended_at for status in agent.reports(1))


def test_job_ends_when_its_lease_expires(run: Run) -> None:
    agent = run()
    renew(agent, agent.hello().clock)
    agent.start(1, "sleep", "1000", lease_s=1.0)
    pid = agent.started(1).pid
    over = agent.ended(1)
    assert (over.signal, over.why) == (15, lease.LEASE_EXPIRED)
    assert pid is not None
    assert not alive(pid)


def test_job_that_ignores_sigterm_is_killed_after_its_grace(run: Run) -> None:
    agent = run()
    renew(agent, agent.hello().clock)
    agent.start(1, "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", lease_s=0.5, grace_s=0.5)
    assert agent.ended(1).signal == 9


def test_job_keeps_running_while_its_lease_is_renewed(run: Run) -> None:
    agent = run()
    renew(agent, agent.hello().clock)
    agent.start(1, "sleep", "3", lease_s=1.0)
    agent.started(1)
    clock = agent.hello().clock
    while not ended(agent):
        clock = renew(agent, clock)
        time.sleep(BEAT_S)
    assert agent.ended(1).code == 0


def test_delayed_frame_does_not_renew_the_lease(run: Run) -> None:
    """A delayed frame states when the controller last received a frame of the agent, and that is long ago."""
    agent = run()
    renew(agent, agent.hello().clock)
    agent.start(1, "sleep", "1000", lease_s=1.0)
    while not ended(agent):
        renew(agent, agent.hello().clock)
        time.sleep(BEAT_S)
    assert agent.ended(1).why == lease.LEASE_EXPIRED


def test_lease_expires_without_an_agent(run: Run) -> None:
    agent = run()
    renew(agent, agent.hello().clock)
    agent.start(1, "sleep", "1000", lease_s=1.0)
    pid = agent.started(1).pid
    agent.kill()
    assert pid is not None
    eventually(lambda: not alive(pid))
    [status] = run().hello().attempts
    assert status.why == lease.LEASE_EXPIRED


def test_order_whose_lease_is_over_starts_nothing(run: Run, tmp_path: Path) -> None:
    agent = run()
    agent.start(1, "touch", str(tmp_path / "ran"), lease_s=100.0)
    over = agent.ended(1)
    assert (over.pid, over.why) == (None, lease.LEASE_EXPIRED)
    assert not (tmp_path / "ran").exists()


def test_lease_of_another_boot_is_invalid(tmp_path: Path) -> None:

    descriptor = os.open(tmp_path / lease.NAME, os.O_RDWR | os.O_CREAT)
    lease.write_renewal(descriptor, "before", 123.5)
    assert lease.last_renewal(str(tmp_path), "before") == 123.5
    assert lease.last_renewal(str(tmp_path), "after") == float("-inf")
    os.write(descriptor, b"nonsense")
    os.close(descriptor)
    assert lease.last_renewal(str(tmp_path), "before") == float("-inf")
