"""kill -9 of the agent and the fork server at random times under load: no job runs twice, and no outcome is
lost.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.agent.agent_process import PATIENCE_S, AgentProcess
from wire.agent.orders import Settle, Start
from wire.agent.reports import AttemptStatus, Report

JOBS = 150
KILLS = 8


class Controller:
    """Acts as a controller: sends orders missing in the hello, and settles recorded ends."""

    def __init__(self, run: Callable[[], AgentProcess], exit_codes: Path) -> None:
        self.run = run
        self.orders = {
            job: Start(
                job,
                1,
                ("sh", "-c", f"echo {job} >> {exit_codes}; sleep 0.0{job % 9}; exit {job % 100}"),
                "x",
                1,
                1,
            )
            for job in range(1, JOBS + 1)
        }
        self.ended: dict[int, AttemptStatus] = {}
        self.connect()

    def connect(self) -> None:
        """Reconcile with the hello of the agent."""
        self.agent = self.run()
        self.read = 0
        known = {status.job for status in self.agent.hello().attempts}
        for status in self.agent.hello().attempts:
            self.take(status)
        self.send_order(
            *(order for job, order in self.orders.items() if job not in known and job not in self.ended)
        )

    def take(self, status: AttemptStatus) -> None:
        if status.ended_at is not None:
            assert self.ended.setdefault(status.job, status) == status, "two outcomes"
            self.send_order(Settle(status.job, 1))

    def send_order(self, *frames: Start | Settle) -> None:
        with suppress(BrokenPipeError):  # it was killed; the next hello reconciles
            self.agent.send(*frames)

    def listen(self, until: float) -> None:
        """Receive reports until this time, or until all attempts have ended."""
        while time.monotonic() < until and len(self.ended) < JOBS:
            for frame in self.agent.received[self.read :]:
                self.read += 1
                if isinstance(frame, Report):
                    self.take(frame.status)
            time.sleep(0.002)


@pytest.mark.parametrize("seed", range(2))
def test_attempts_survive_repeated_kills(run: Callable[[], AgentProcess], tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    exit_codes = tmp_path / "exit_codes"
    controller = Controller(run, exit_codes)
    for _ in range(KILLS):
        controller.listen(time.monotonic() + dice.uniform(0.0, 0.1))
        if dice.random() < 0.4:
            os.kill(controller.agent.fork_server(), signal.SIGKILL)
        else:
            controller.agent.kill()
            controller.connect()
    controller.listen(time.monotonic() + PATIENCE_S)
    assert {job: status.code for job, status in controller.ended.items()} == {
        job: job % 100 for job in controller.orders
    }
    assert sorted(map(int, exit_codes.read_text().split())) == [*controller.orders]
