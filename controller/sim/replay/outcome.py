"""Compares a replay with the recorded past: figures of both, and the wait of every job."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from controller.config import policy_config
from controller.core.pipeline.pipeline import Pipeline
from controller.registry import build_pipeline
from controller.sim.cluster import Cluster
from controller.sim.job_results import SimulatedJob, SimulatedJobs
from controller.sim.metrics import Figures, figures_of
from controller.sim.parallel import run_in_processes
from controller.sim.replay.history import History
from controller.sim.replay.replayer import Replay
from controller.sim.run import Policy

NOTABLE_S = 1.0
"""Waits that differ by less (seconds) count as equal."""

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """A policy and a journal; pickled for another process."""

    policy: Policy
    history: History
    recorded: bool = False
    """Whether recorded changes of the configuration are repeated; not if one policy is asked about."""


@dataclass(frozen=True, slots=True)
class ReplaySide:
    """One side of the comparison. `figures` cover the jobs that ended before the end of the journal."""

    figures: Figures
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay under a policy; `cpu_s` is the CPU time of the replay itself."""

    policy: str
    order: str
    backfill: str
    column: ReplaySide
    placements: int
    as_recorded: int
    """Attempts with the same nodes at the same time as recorded."""
    refused: dict[str, int]
    """Number of jobs that would have been refused, by error message."""
    records: SimulatedJobs
    cpu_s: float


@dataclass(frozen=True, slots=True)
class WaitChange:
    """One job in the record and in the replay. A job without a start waited until its cancel or the end of
    the journal."""

    job: int
    name: str
    user: str
    gpus: float
    waited_s: float
    would_wait_s: float
    started: bool
    would_start: bool

    @property
    def gain_s(self) -> float:
        """Seconds by which it would start earlier."""
        return self.waited_s - self.would_wait_s


def recorded(history: History) -> ReplaySide:
    """The recorded past."""
    return _column(history.records, history)


def replay(tasks: Sequence[ReplayTask], progress: Progress | None = None) -> list[ReplayResult]:
    """The results in the order of the tasks; several tasks run in processes of their own."""
    if len(tasks) == 1:
        return [replay_policy(tasks[0], progress)]
    return run_in_processes(replay_policy, {task.policy.name: task for task in tasks}, progress)


def replay_policy(task: ReplayTask, progress: Progress | None = None) -> ReplayResult:
    """Replay one policy."""
    before, config = time.process_time(), task.policy.config
    policies = _pipeline_of if task.recorded else None
    again = Replay(task.history, build_pipeline(config), config.controller.keep_ended, policies=policies)
    again.run(progress)
    return ReplayResult(
        task.policy.name,
        config.scheduler.order.name,
        config.scheduler.backfill,
        _column(again.records, task.history),
        again.placements,
        again.as_recorded,
        Counter(refusal.message for refusal in again.refused.values()),
        again.records,
        time.process_time() - before,
    )


def _pipeline_of(policy: str) -> Pipeline:
    return build_pipeline(policy_config(policy))


def _column(records: SimulatedJobs, history: History) -> ReplaySide:
    open_ones = [record for record in records.by_job.values() if record.end_s is None]
    running = sum(record.start_s is not None for record in open_ones)
    cluster = Cluster(history.nodes)
    return ReplaySide(figures_of(records.ran(), cluster), running, len(open_ones) - running)


def wait_changes(history: History, replayed: ReplayResult) -> Iterable[WaitChange]:
    """All jobs whose waits differ."""
    for job, then in history.records.by_job.items():
        now = replayed.records.by_job.get(job)
        if now is None:
            continue  # refused in the replay
        change = WaitChange(
            job,
            history.names[job],
            then.user,
            then.gpus,
            _wait(then, history.until),
            _wait(now, history.until),
            then.start_s is not None,
            now.start_s is not None,
        )
        if abs(change.gain_s) >= NOTABLE_S:
            yield change


def _wait(record: SimulatedJob, until: float) -> float:
    over = record.start_s if record.start_s is not None else record.end_s
    return (until if over is None else over) - record.submit_s
