"""A running job gets more time: its supervisor does not end it at the old limit."""

from __future__ import annotations

from collections.abc import Callable

from controller.sim.replay.journal import read_journal
from tests.integration.controller.test_replay import in_order, relived
from tests.systems import System
from wire.names import JobState, Reason


def test_extended_job_outlives_its_first_limit(build: Callable[..., System]) -> None:
    system = build("gpu01").start()
    script = "trap 'echo warned' USR1; sleep 3 & wait; sleep 3 & wait; echo done"
    warn = ["--warn-signal", "USR1", "--warn-time", "1s"]
    system.corral("submit", "--time", "3s", "--grace", "0.2s", *warn, "--", "sh", "-c", script)
    system.corral("submit", "--time", "3s", "--grace", "0.2s", "--", "sleep", "1000")
    system.await_jobs([1, 2], JobState.RUNNING)
    system.corral("job", "set", "1", "--time", "+57s")
    assert system.jobs()[1].time_limit_s == 60
    system.kill()
    system.start()
    ended = system.await_jobs([1, 2])
    assert (ended[1].state, ended[2].reason) == (JobState.COMPLETED, Reason.TIME_LIMIT)
    assert system.corral("job", "logs", "1") == "done\n", "the warning belongs to the new limit"
    happened = read_journal(system.store_url)
    assert relived(happened, system.config) == in_order(happened)
