"""API bodies for the queues of scheduler.toml, with the numbers of their jobs."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from wire.dataclass import dataclass


@dataclass(frozen=True)
class QueueDay:
    """The numbers of jobs of a queue that have started or ended since `since`. `since` is the begin of the
    clock hour that contains the time 24 hours ago, so the period lasts 24 to 25 hours.

    A wait lasts from the time at which the job may start to its first start. The percentiles of waits are
    accurate to 12 %, and None if no job has started.
    """

    since: float
    started: int = 0
    completed: int = 0
    failed: int = 0
    """The number of jobs that ended in any state except COMPLETED."""
    wait_p50_s: Optional[float] = None
    wait_p95_s: Optional[float] = None
    wait_longest_s: Optional[float] = None
    ended_per_hour: float = 0.0


@dataclass(frozen=True)
class QueueView:
    """One queue: its policy, and the resources that its jobs use now."""

    name: str
    priority: int
    """The priority of the queue: jobs of queues with a higher number start first."""
    policy: tuple[str, ...]
    """Phrases that describe the policy of the queue, such as "never preempted"."""
    waiting: int
    running: int
    gpus: float
    """The GPUs that the running jobs of the queue hold."""
    settings: Mapping[str, Any]
    """The keys that [queues.NAME] of scheduler.toml sets, with their values; empty without such a table."""
    day: Optional[QueueDay] = None
    """The figures of the last 24 to 25 hours (see QueueDay); None from a controller of an earlier version."""


@dataclass(frozen=True)
class QueueList:
    """All queues, the highest priority first. If scheduler.toml has no tables [queues.NAME], only the queues
    with jobs are listed.
    """

    queues: tuple[QueueView, ...]
    seq: int
