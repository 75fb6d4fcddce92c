"""Records what happened to each job of a run, from the events of the engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from benchmarks.lab.workload import FLOOD, HOUR_S, PROJECTS
from controller.core.model.events.attempts import JobEnded, JobPlaced, JobPreempted, JobRequeued
from controller.core.model.events.event import Event
from controller.core.model.events.queued import JobQueued
from wire.job.spec import JobSpec
from wire.names import PRIORITIES, JobState


@dataclass(slots=True)
class RecordedJob:
    """One job of a run: its request, and the start and end of each of its attempts (`runs`), in seconds since
    1970.
    """

    job: int
    user: str
    spec: JobSpec
    submit_s: float
    run_s: float = 0.0
    """The seconds for which the job runs if nothing ends it, not even its time limit."""
    runs: list[tuple[float, float]] = field(default_factory=list)
    end_s: float | None = None
    state: JobState = JobState.QUEUED
    lost_gpu_hours: float = 0.0

    @property
    def tenant(self) -> str:
        """Return the project of the job; FLOOD for a job of the user that submits to invented projects (mix
        `flood`).
        """
        return self.spec.project if self.spec.project in PROJECTS else FLOOD

    @property
    def gpus(self) -> float:
        return self.spec.gpus

    @property
    def nodes(self) -> int:
        return self.spec.nodes or 1

    @property
    def scavenges(self) -> bool:
        """Return whether the job has the priority SCAVENGER, so that every other job may preempt it."""
        return self.spec.priority <= PRIORITIES["SCAVENGER"]

    @property
    def demand_s(self) -> float:
        """Return the seconds for which the job runs if it is not preempted: until its end or its
        time limit.
        """
        limit_s = self.spec.time_limit_s
        return self.run_s if limit_s is None else min(self.run_s, limit_s)

    def wait_h(self, until: float) -> float:
        """Return the hours from the submit to the first start. For a job that never started, return the hours
        to its end, or to `until` if it has not ended.
        """
        start = self.runs[0][0] if self.runs else until if self.end_s is None else self.end_s
        return (start - self.submit_s) / HOUR_S


@dataclass(slots=True)
class History:
    """All jobs of a run, and those that wait now. Call `observe` with every event of the engine."""

    jobs: dict[int, RecordedJob] = field(default_factory=dict)
    waiting: dict[int, RecordedJob] = field(default_factory=dict)
    waiting_of: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The number of waiting jobs by tenant and user. Jobs with the priority SCAVENGER do not count."""
    _running: dict[int, float] = field(default_factory=dict)
    """The start of the present attempt of each running job, in seconds since 1970, by job id."""

    def observe(self, event: Event) -> None:
        """Update the record of the job that the event names."""
        note = self._NOTES.get(type(event))
        if note is not None:
            note(self, event)

    def close(self, now: float) -> None:
        """End the attempts that still run, at the end of the measured time."""
        for job in list(self._running):
            self._leave(job, now)

    def _wait(self, job: RecordedJob) -> None:
        if job.job not in self.waiting:
            self.waiting[job.job] = job
            self.waiting_of[job.tenant, job.user] += not job.scavenges

    def _wait_no_more(self, job: RecordedJob) -> None:
        if self.waiting.pop(job.job, None) is not None:
            self.waiting_of[job.tenant, job.user] -= not job.scavenges

    def _queued(self, event: JobQueued) -> None:
        self.jobs[event.job] = job = RecordedJob(event.job, event.user, event.spec, event.at)
        self._wait(job)

    def _placed(self, event: JobPlaced) -> None:
        self._wait_no_more(self.jobs[event.job])
        self._running[event.job] = event.at

    def _preempted(self, event: JobPreempted) -> None:
        job = self.jobs[event.job]
        job.lost_gpu_hours += event.gpu_hours
        self._leave(event.job, event.at)
        self._wait(job)

    def _requeued(self, event: JobRequeued) -> None:
        self._leave(event.job, event.at)
        self._wait(self.jobs[event.job])

    def _ended(self, event: JobEnded) -> None:
        job = self.jobs[event.job]
        self._leave(event.job, event.at)
        self._wait_no_more(job)
        job.end_s, job.state = event.at, event.state

    def _leave(self, job: int, now: float) -> None:
        started = self._running.pop(job, None)
        if started is not None:
            self.jobs[job].runs.append((started, now))

    _NOTES: ClassVar[dict[type, Callable[[History, Any], None]]] = {
        JobQueued: _queued,
        JobPlaced: _placed,
        JobPreempted: _preempted,
        JobRequeued: _requeued,
        JobEnded: _ended,
    }
