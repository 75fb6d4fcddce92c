"""Runs in separate processes: the same results, in order, and a clear message when one dies."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from multiprocessing import active_children
from typing import Any

import pytest

from controller.config import Config
from controller.sim.cluster import pool_of
from controller.sim.parallel import RunFailed
from controller.sim.run import Policy, RunTask, policy_of, run, run_policies, with_order_and_backfill
from controller.sim.trace_job import TraceJob

POOL = pool_of(4)
NAMES = ["fcfs", "sjf"]


def task(policy: str, count: int = 300) -> RunTask:
    """Jobs of changing width that queue up."""
    work = [
        TraceJob(number, float(number), POOL.spec(1 + number % 4, 50 + number % 7), 40.0)
        for number in range(1, count + 1)
    ]
    return RunTask(policy_of(policy, Config()), POOL, work)


def test_outcomes_of_parallel_runs_equal_single_runs_in_order() -> None:
    progress: list[int] = []
    together = run_policies([task(name) for name in NAMES], progress.append, cores=2)
    alone = [run(task(name)) for name in NAMES]
    assert [replace(each, cpu_s=0.0) for each in together] == [replace(each, cpu_s=0.0) for each in alone]
    assert len({each.figures.avebsld for each in together}) == 2
    assert progress
    assert max(progress) <= 600
    assert active_children() == []


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Deadly(list[TraceJob]):
    """Kills the process that unpickles it, as the kernel does without memory."""

    def __reduce__(self) -> Any:
        return _die, ()


def test_a_process_that_is_killed_is_named_with_its_signal() -> None:
    tasks = [task("easy"), replace(task("sjf"), work=Deadly())]
    with pytest.raises(RunFailed, match=r"the run of sjf ended by signal 9 \(Killed\)"):
        run_policies(tasks, cores=2)
    assert active_children() == []


def test_error_in_a_run_is_reported_with_its_message() -> None:
    wrong = replace(task("easy"), policy=Policy("mine", with_order_and_backfill(Config(), "", "nonsense")))
    with pytest.raises(
        RunFailed,
        match=r"the run of mine failed: ConfigRefused: scheduler\.backfill: there is no backfill 'nonsense'",
    ):
        run_policies([wrong, task("easy")], cores=1)
    assert active_children() == []


def test_interrupt_leaves_no_process() -> None:
    def interrupt(_done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_policies([task("easy"), task("fcfs")], interrupt, cores=2)
    assert active_children() == []
