"""Simulated rebalancing: free GPUs are scattered, a job moves, and the large job starts."""

from __future__ import annotations

from typing import Any

from controller.config import Config
from controller.sim.cluster import nodes_of
from controller.sim.metrics import Figures
from controller.sim.run import Policy, RunTask, run
from controller.sim.trace_job import TraceJob
from wire.job.spec import JobSpec

HOUR = 3_600.0
RULES: dict[str, Any] = {"mode": "auto", "restart_s": 0.0}


def job(number: int, submit: float, gpus: int, hours: float, **more: Any) -> TraceJob:
    spec = JobSpec(("true",), gpus=gpus, nodes=1, time_limit_s=20 * HOUR, checkpoint_signal="USR1", **more)
    return TraceJob(number, submit * HOUR, spec, hours * HOUR)


# Both nodes are full. After an hour 6 of 8 GPUs are free on each, and a job for 8 GPUs waits.
SCATTERED = [job(1, 0, 6, 1), job(2, 0, 2, 10), job(3, 0, 6, 1), job(4, 0, 2, 10), job(5, 0.5, 8, 1)]


def outcome(**rules: Any) -> tuple[dict[int, tuple[float, float]], Figures]:
    config = Config(rebalance=rules, preemption={"min_runtime_s": 0.0})  # type: ignore[arg-type]
    found = run(RunTask(Policy("it", config), nodes_of(2, 8, 64, 524_288, "H100"), SCATTERED))
    return {row.job: (row.start / HOUR, row.end / HOUR) for row in found.rows}, found.figures


def test_large_job_waits_without_rebalancing() -> None:
    records, figures = outcome()
    assert records[5] == (10.0, 11.0)
    assert (figures.moves, figures.preemptions) == (0, 0)


def test_rebalancing_moves_one_job_which_continues_from_its_checkpoint() -> None:
    records, figures = outcome(**RULES)
    start, end = records[5]
    assert start == 1.0, "the first moment of an interval at which it can"
    assert end == 2.0
    moved = [number for number in (2, 4) if records[number][0] > 0]
    assert len(moved) == 1
    assert records[moved[0]] == (1.0, 10.0), "it did not do anything twice"
    assert (figures.moves, figures.preemptions, figures.gpu_hours_lost) == (1, 1, 0.0)


def test_repeated_work_after_a_move_is_counted() -> None:
    config = {**RULES, "without_checkpoint": True}
    plain = [
        TraceJob(w.number, w.submit_s, JobSpec(("true",), gpus=w.spec.gpus, nodes=1), w.runtime_s)
        for w in SCATTERED
    ]
    policy = Policy("it", Config(rebalance=config, preemption={"min_runtime_s": 0.0}))  # type: ignore[arg-type]
    figures = run(RunTask(policy, nodes_of(2, 8, 64, 524_288, "H100"), plain)).figures
    assert (figures.moves, figures.gpu_hours_lost) == (1, 2.0)
