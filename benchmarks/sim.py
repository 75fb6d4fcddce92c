"""Measures the simulator on a generated log: CPU seconds for different numbers of jobs."""

from __future__ import annotations

import math
import random

from benchmarks.table import heading, row
from controller.config import Config
from controller.sim.cluster import Cluster, nodes_of, pool_of
from controller.sim.run import RunTask, policy_of
from controller.sim.run import run as simulated
from controller.sim.trace_job import TraceJob

PROCESSORS = 100
ESTIMATES = (300, 900, 3_600, 7_200, 14_400, 43_200, 86_400)


def log(jobs: int, seed: int = 1) -> list[tuple[float, float, int, float]]:
    """Generate jobs and return submit time, run time, processors and estimated run time of each, in seconds.
    Each user submits similar jobs again and again. Jobs arrive in bursts, and more by day than by night. The
    load is 70 %.
    """
    dice = random.Random(f"benchmark/{seed}")
    users = [(dice.gauss(5.5, 1.6), dice.uniform(0.3, 1.4), dice.random() ** 2) for _ in range(jobs // 150)]
    asked: list[tuple[float, int, float]] = []
    while len(asked) < jobs:
        long, spread, wide = dice.choice(users)
        size = 1 if dice.random() < 0.25 else round(PROCESSORS ** (wide * dice.uniform(0.5, 1.1)))
        size = max(1, min(PROCESSORS, 2 ** round(math.log2(size)) if dice.random() < 0.7 else size))
        for _ in range(dice.choice((1, 1, 2, 5))):
            ran = max(1, min(172_800, int(dice.lognormvariate(long, spread))))
            estimate = next((each for each in ESTIMATES if each >= ran * dice.choice((1.2, 4, 20))), ran)
            asked.append((ran, size, max(ran, estimate)))
    del asked[jobs:]
    gap = sum(ran * size for ran, size, _ in asked) / (0.7 * PROCESSORS) / jobs
    now, made = 0.0, []
    for ran, size, estimate in asked:
        hour = now / 3_600 % 24
        now += dice.expovariate(1 / gap) / (0.37 + 1.7 * math.exp(-(((hour - 14) / 5) ** 2)))
        made.append((float(int(now)), float(ran), size, float(estimate)))
    return made


def work_of(lines: list[tuple[float, float, int, float]], cluster: Cluster) -> list[TraceJob]:
    """Return the jobs of the generated log for this cluster."""
    return [
        TraceJob(number, submit, cluster.spec(size, estimate), ran)
        for number, (submit, ran, size, estimate) in enumerate(lines, 1)
    ]


def run() -> None:
    heading("Simulator, CPU seconds for a log on 100 processors")
    shapes = {"a pool": pool_of(PROCESSORS), "100 nodes": nodes_of(PROCESSORS, 0, 1, 1_024, "")}
    for policy, shape, counts in (
        ("easy", "a pool", (14_000, 28_000)),
        ("easy", "100 nodes", (14_000, 28_000)),
        ("conservative", "a pool", (7_000, 14_000, 28_000)),
        ("conservative", "100 nodes", (7_000, 14_000, 28_000)),
    ):
        for jobs in counts:
            task = RunTask(policy_of(policy, Config()), shapes[shape], work_of(log(jobs), shapes[shape]))
            bar = "6 s" if policy == "easy" and jobs == 28_000 else ""
            row(f"{jobs:,} jobs on {shape}, {policy}", f"{simulated(task).cpu_s:.2f} s", bar)
