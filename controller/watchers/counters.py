"""Counters and histograms for /metrics, which count since the start of the controller."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from controller.core.model.events.attempts import (
    AttemptExited,
    JobEnded,
    JobPlaced,
    JobPreempted,
    MembersExited,
)
from controller.core.model.events.event import Event
from controller.core.state.state import State
from wire.names import JobState, Reason

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram buckets, in seconds. A scheduling cycle takes less than 0.5 ms without
waiting jobs, and up to 1 s with a very long queue.
"""
WAIT_BOUNDS = (1.0, 10.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0)
"""Upper bounds of the histogram buckets for waits of jobs, in seconds: from one second to a week."""
_OUTCOMES = {
    JobState.COMPLETED: "completed",
    JobState.CANCELLED: "cancelled",
    Reason.TIME_LIMIT: "timed_out",
    Reason.OUT_OF_MEMORY: "out_of_memory",
}


class Histogram:
    """A histogram of durations in seconds for /metrics. `bounds` are the upper limits of its buckets."""

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total_s += seconds


@dataclass(frozen=True, slots=True)
class SchedulingPass:
    """A scheduling cycle: its begin in seconds since 1970, its duration, and the number of placed jobs."""

    at: float
    seconds: float
    placed: int


@dataclass(slots=True)
class JobCounters:
    """Counts the starts, waits, preemptions and ends of jobs, by queue."""

    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of ended jobs by queue and outcome."""
    starts: Counter[str] = field(default_factory=Counter)
    preemptions: Counter[str] = field(default_factory=Counter)
    preempted_gpu_hours: dict[str, float] = field(default_factory=dict)
    waits: dict[str, Histogram] = field(default_factory=dict)

    def observe(self, state: State, event: JobPlaced | JobPreempted | JobEnded) -> None:
        """Count an event about a job. Ignore the event if `state` does not contain the job."""
        job = state.jobs.get(event.job)
        if job is None:
            return
        queue = job.spec.queue
        if isinstance(event, JobPlaced):
            self.starts[queue] += 1
            if event.attempt == 1:
                self.waits.setdefault(queue, Histogram(WAIT_BOUNDS)).add(max(0.0, event.at - job.ready_at))
        elif isinstance(event, JobPreempted):
            self.preemptions[queue] += 1
            self.preempted_gpu_hours[queue] = self.preempted_gpu_hours.get(queue, 0.0) + event.gpu_hours
        else:
            # An end by the time limit and an end by lack of memory are separate outcomes. All other failures
            # are counted as "failed".
            reason: JobState | Reason = event.reason if event.state is JobState.FAILED else event.state
            self.ended[queue, _OUTCOMES.get(reason, "failed")] += 1


@dataclass(slots=True)
class ControllerCounters:
    """The counters of one controller process for /metrics, such as requests and commits."""

    cycles: Histogram = field(default_factory=Histogram)
    last_pass: SchedulingPass | None = None
    """The latest scheduling cycle; None before the first one."""
    commits: Histogram = field(default_factory=Histogram)
    commit_began: float | None = None
    """The time (monotonic clock) at which the present commit began; None if there is none."""
    last_commit_at: float = 0.0
    """The time of the latest commit in seconds since 1970; 0 before the first one."""
    entries: int = 0
    """Number of journal entries written."""
    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """Number of requests by method, path pattern and status."""

    failures: Counter[str] = field(default_factory=Counter)
    """Number of failed attempts by failure class. An attempt on several nodes counts once for each node on
    which it failed.
    """

    jobs: JobCounters = field(default_factory=JobCounters)

    def observe(self, state: State, events: Iterable[Event]) -> None:
        """Count the events of a commit."""
        for event in events:
            if isinstance(event, JobPlaced | JobPreempted | JobEnded):
                self.jobs.observe(state, event)
            elif isinstance(event, AttemptExited | MembersExited):
                self.failures.update(how.failure for how in event.exits.values() if how.failure)

    def passed(self, at: float, seconds: float, placed: int) -> None:
        """Count a scheduling cycle that began at the time `at` and placed `placed` jobs."""
        self.cycles.add(seconds)
        self.last_pass = SchedulingPass(at, seconds, placed)

    def committed(self, entries: int, seconds: float) -> None:
        """Count a commit on disk: its journal entries, and its duration in seconds."""
        self.entries += entries
        self.commits.add(seconds)
        self.last_commit_at = time.time()
