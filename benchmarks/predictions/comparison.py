"""Measures what backfill gains from predicted run times, on generated logs in which users request wrong time
limits.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks.predictions.session_logs import RunTimes, session_log
from benchmarks.table import heading, row
from controller.config import Config
from controller.sim.cluster import Cluster, nodes_of
from controller.sim.generate import Format, WorkloadRequest, generate, lines
from controller.sim.logs.job_log import read_log
from controller.sim.logs.swf import SwfOptions
from controller.sim.run import Policy, RunTask, policy_of, with_estimate
from controller.sim.run import run as simulated
from controller.sim.trace_job import TraceJob

SEEDS = range(1, 9)
LOADS = (0.8, 0.9, 0.95, 1.0, 1.1)
SESSION_LOGS = (
    *((seed, 100 if seed % 2 else 64, LOADS[seed % 5], RunTimes.SESSIONS) for seed in range(30, 42)),
    (50, 100, 0.9, RunTimes.INDEPENDENT),
    (53, 64, 1.0, RunTimes.INDEPENDENT),
    (51, 100, 0.85, RunTimes.ALTERNATING),
    (54, 64, 0.95, RunTimes.ALTERNATING),
    (52, 100, 0.9, RunTimes.EXACT_LIMITS),
)
"""The session logs: (seed, processors, load, kind of run times)."""


def run() -> None:
    run_weeks()
    run_session_logs()


def run_session_logs() -> None:
    """Compare policies with EASY on logs in which predictions know only the user and the size of a job."""
    heading(f"Predictions against EASY with limits: {len(SESSION_LOGS)} logs of sessions, bounded slowdown")
    policies = [
        policy_of(name, Config()) for name in ("easy", "easy+predicted", "easy-sjbf", "easy-sjbf+predicted")
    ]
    for seed, processors, load, kind in SESSION_LOGS:
        pool, jobs = session_log(seed, processors, load, kind)
        easy, *others = (simulated(RunTask(policy, pool, jobs)).figures.avebsld for policy in policies)
        ratios = ", ".join(
            f"{policy.name} {figure / easy:.2f}" for policy, figure in zip(policies[1:], others, strict=True)
        )
        row(f"{kind} {seed}: EASY {easy:.1f}", ratios)


def run_weeks() -> None:
    heading(f"Predictions against limits: {len(SEEDS)} generated weeks at 80 % of 128 GPUs")
    cluster = nodes_of(16, 8, 64, 512 * 1024, "H100")
    weeks = [work_of(cluster, seed) for seed in SEEDS]
    for name in ("easy", "easy-sjbf", "conservative"):
        by_limit = policy_of(name, Config())
        limits = figures(by_limit, cluster, weeks)
        for what, found in (
            ("predicted", figures(with_estimate(by_limit, "predicted"), cluster, weeks)),
            ("clairvoyant", figures(by_limit, cluster, weeks, clairvoyant=True)),
        ):
            for figure, place in (("bounded slowdown", 0), ("mean wait", 1)):
                ratios = [each[place] / limit[place] for each, limit in zip(found, limits, strict=True)]
                better = sum(ratio < 1 for ratio in ratios)
                change = statistics.geometric_mean(ratios) - 1
                text = f"{change:+.1%}, better in {better} of {len(ratios)}"
                row(f"{name}, {what} against limits: {figure}", text)


def work_of(cluster: Cluster, seed: int) -> list[TraceJob]:
    """Return the jobs of one generated week."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "week.csv"
        path.write_text(
            "".join(lines(generate(WorkloadRequest(cluster, seed, days=7, load=0.8)), Format.CSV))
        )
        return read_log(path).work(cluster, SwfOptions())[0]


def figures(
    policy: Policy, cluster: Cluster, weeks: list[list[TraceJob]], *, clairvoyant: bool = False
) -> list[tuple[float, float]]:
    """Simulate the weeks. Return, for each of them, the mean bounded slowdown and the mean wait in seconds.
    With `clairvoyant`, the scheduler plans with the real run times.
    """
    found = [simulated(RunTask(policy, cluster, week, clairvoyant=clairvoyant)).figures for week in weeks]
    return [(each.avebsld, each.mean_wait_s) for each in found]
