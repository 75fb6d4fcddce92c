"""Compares a replay with the recorded past: figures such as the mean wait, and the wait of every job."""

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
"""Two waits that differ by less than this many seconds count as equal."""

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """The journal and the policy of one replay. The object is pickled and sent to another process."""

    policy: Policy
    history: History
    recorded: bool = False
    """True if the replay repeats the recorded changes of the configuration; False if the replay uses one
    fixed policy.
    """


@dataclass(frozen=True, slots=True)
class ReplaySide:
    """One side of a comparison: the recorded past, or the replay.

    The figures cover only the jobs that ended before the end of the journal. All other jobs run or wait at
    the end of the journal.
    """

    figures: Figures
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay under a policy. `cpu_s` is the CPU time that the replay itself took."""

    policy: str
    order: str
    backfill: str
    column: ReplaySide
    placements: int
    as_recorded: int
    """Number of attempts that were placed on the recorded nodes at the recorded time."""
    refused: dict[str, int]
    """Number of recorded jobs that the policy refuses, by error message."""
    records: SimulatedJobs
    cpu_s: float


@dataclass(frozen=True, slots=True)
class WaitChange:
    """The wait of one job in the recorded past and in the replay.

    A job that never started has waited until its end or the end of the journal.
    """

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
        """Return the seconds by which the job waits less in the replay than in the recorded past; negative if
        it waits longer.
        """
        return self.waited_s - self.would_wait_s


def recorded(history: History) -> ReplaySide:
    """Return the recorded past as one side of a comparison."""
    return _column(history.records, history)


def replay(tasks: Sequence[ReplayTask], progress: Progress | None = None) -> list[ReplayResult]:
    """Run the replays, several at a time in parallel processes. The results are in the order of the tasks."""
    if len(tasks) == 1:
        return [replay_policy(tasks[0], progress)]
    return run_in_processes(replay_policy, {task.policy.name: task for task in tasks}, progress)


def replay_policy(task: ReplayTask, progress: Progress | None = None) -> ReplayResult:
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
    """Yield the jobs whose waits in the replay and in the recorded past differ by NOTABLE_S seconds or more,
    each with both waits.
    """
    for job, then in history.records.by_job.items():
        now = replayed.records.by_job.get(job)
        if now is None:
            continue  # Skip the job, because the policy of the replay refused it.
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
