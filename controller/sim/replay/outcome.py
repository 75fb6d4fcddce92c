"""What a replay came to beside what really happened: figures of both, and how every job fared."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from controller.registry import build_pipeline
from controller.sim.cluster import Cluster
from controller.sim.metrics import Figures, figures_of
from controller.sim.processes import side_by_side
from controller.sim.replay.driver import Replay
from controller.sim.replay.history import History
from controller.sim.results import Life, Lives
from controller.sim.run import Policy

NOTABLE_S = 1.0
"""A wait that differs by less is the same wait."""

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Task:
    """A policy and the past; small enough to hand to another process."""

    policy: Policy
    history: History


@dataclass(frozen=True, slots=True)
class Column:
    """One side of the comparison. `figures` are of the jobs that ran to an end by the end of the record."""

    figures: Figures
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """What the past would have been under a policy; `cpu_s` is what the replay itself took."""

    policy: str
    order: str
    backfill: str
    column: Column
    placements: int
    as_recorded: int
    """Attempts that got the same place at the same time as in the record."""
    refused: dict[str, int]
    """Jobs that would not have been accepted, by what would have been said."""
    lives: Lives
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Change:
    """One job in both worlds. A job that never started has waited until it was cancelled, or until now."""

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
        """How much sooner it would start."""
        return self.waited_s - self.would_wait_s


def recorded(history: History) -> Column:
    """What really happened."""
    return _column(history.lives, history)


def replay(tasks: Sequence[Task], progress: Progress | None = None) -> list[Replayed]:
    """All outcomes in the order of the tasks, each in a process of its own where there are several."""
    if len(tasks) == 1:
        return [live_again(tasks[0], progress)]
    return side_by_side(live_again, {task.policy.name: task for task in tasks}, progress)


def live_again(task: Task, progress: Progress | None = None) -> Replayed:
    """One policy."""
    before, config = time.process_time(), task.policy.config
    again = Replay(task.history, build_pipeline(config), config.controller.keep_ended)
    again.run(progress)
    return Replayed(
        task.policy.name,
        config.scheduler.order.name,
        config.scheduler.backfill,
        _column(again.lives, task.history),
        again.placements,
        again.as_recorded,
        Counter(refusal.message for refusal in again.refused.values()),
        again.lives,
        time.process_time() - before,
    )


def _column(lives: Lives, history: History) -> Column:
    open_ones = [life for life in lives.by_job.values() if life.end_s is None]
    running = sum(life.start_s is not None for life in open_ones)
    cluster = Cluster(history.nodes)
    return Column(figures_of(lives.ran(), cluster), running, len(open_ones) - running)


def changes(history: History, replayed: Replayed) -> Iterable[Change]:
    """Every job whose wait would have been another."""
    for job, then in history.lives.by_job.items():
        now = replayed.lives.by_job.get(job)
        if now is None:
            continue  # refused
        change = Change(
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


def _wait(life: Life, until: float) -> float:
    over = life.start_s if life.start_s is not None else life.end_s
    return (until if over is None else over) - life.submit_s
