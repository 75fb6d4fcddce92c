"""A real job that allows a shorter limit starts before the first waiting job, and ends at that limit."""

from __future__ import annotations

from collections.abc import Callable

from controller.sim.replay.journal import read_journal
from tests.integration.controller.test_replay import in_order, relived
from tests.systems import System
from wire.names import JobState, Reason


def test_job_with_time_min_ends_before_the_first_waiting_job_starts(build: Callable[..., System]) -> None:
    system = build("gpu01").start()
    quick = ["--grace", "0.2s"]
    system.corral("submit", "--gpus", "4", "--time", "8s", *quick, "--", "sleep", "1000")
    system.await_jobs([1], JobState.RUNNING)
    system.corral("submit", "--gpus", "8", "--time", "1h", *quick, "--", "true")
    system.corral("submit", "--gpus", "2", "--time", "1h", "--time-min", "2s", *quick, "--", "sleep", "1000")
    running = system.await_jobs([3], JobState.RUNNING)[3]
    assert running.time_limit_s is not None
    assert 2 <= running.time_limit_s <= 8
    told = system.corral("explain", "3")
    assert "instead of 1h00m (--time-min), to start earlier: job 2 is to start then" in told
    assert "with a time limit of" in system.corral("events", "--job", "3")
    ended = system.await_jobs([1, 2, 3])
    assert (ended[3].reason, ended[2].state) == (Reason.TIME_LIMIT, JobState.COMPLETED)
    happened = read_journal(system.store_url)
    assert relived(happened, system.config) == in_order(happened)
