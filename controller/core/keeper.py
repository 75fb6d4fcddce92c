"""Keeps jobs out of the queue until their time has come, and ends those whose time is over."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from controller.core import events
from controller.core.events import Event, JobEvent
from controller.core.inputs import Refusal
from controller.core.jobs import NEVER, Job
from controller.core.state import State
from wire.spec import JobSpec
from wire.text import duration
from wire.words import JobState, Reason

HOLDING = (JobState.SCHEDULED, JobState.RUNNING)


class Keeper:
    """Knows when something is due for which job: one moment a job, on a heap, worked out from the state.

    A job costs it something when something happens to the job, and nothing while it waits.
    """

    def __init__(self, state: State, record: Callable[[Event], None], stop: Callable[..., None]) -> None:
        self._state = state
        self._record = record
        self._stop = stop
        self.kept: set[int] = set()
        """Jobs that nothing but gates keeps out of the queue."""
        self._due: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []
        for job in state.live():
            self._schedule(job)

    @property
    def moments(self) -> dict[int, float]:
        """When something is due, by job."""
        return dict(self._due)

    @property
    def next_at(self) -> float:
        """When the next cycle is needed although nothing happens."""
        heap, due = self._heap, self._due
        while heap and due.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else NEVER

    def refusal(self, spec: JobSpec, now: float) -> Refusal | None:
        """Why a job with this spec would be over before it began."""
        if spec.deadline_at is not None and now + (spec.time_limit_s or 0.0) > spec.deadline_at:
            left = spec.deadline_at - now
            if left <= 0:
                return Refusal("invalid", f"has passed {duration(-left)} ago", "deadline_at")
            asked = f"with a time limit of {duration(spec.time_limit_s)} the job cannot end by then"
            return Refusal("invalid", f"is {duration(left)} away: {asked}", "deadline_at")
        return None

    def gates(self, spec: JobSpec, now: float) -> tuple[Reason, ...]:
        """The gates that are closed for a job that comes now."""
        return (Reason.BEGIN,) if spec.begin_at is not None and spec.begin_at > now else ()

    def notice(self, event: Event) -> None:
        """Something has become true: when is what due for this job now?"""
        if isinstance(event, JobEvent):
            self._schedule(self._state.jobs[event.job])

    def open_due(self, now: float) -> None:
        """Before a cycle: open what is to be opened, end what has no chance any more."""
        last_chances = []
        while self.next_at <= now:
            at, number = heapq.heappop(self._heap)
            job = self._state.jobs[number]
            if job.ready and at == now:
                last_chances.append((at, number))
            else:
                self._act(job, now)
        for each in last_chances:
            heapq.heappush(self._heap, each)

    def end_due(self, now: float) -> None:
        """After a cycle: end those for whom it was the last chance."""
        while self.next_at <= now:
            self._act(self._state.jobs[heapq.heappop(self._heap)[1]], now)

    def _schedule(self, job: Job) -> None:
        if job.wait.gates and job.state is JobState.QUEUED and not job.held:
            self.kept.add(job.id)
        elif self.kept:
            self.kept.discard(job.id)
        at = _next_of(job)
        if self._due.get(job.id, NEVER) == at:
            return
        if at == NEVER:
            del self._due[job.id]
        else:
            self._due[job.id] = at
            heapq.heappush(self._heap, (at, job.id))

    def _act(self, job: Job, now: float) -> None:
        """Do what is due for the job first; every way through records something about it."""
        del self._due[job.id]
        if job.state in HOLDING:
            self._stop(job, Reason.DEADLINE, "its deadline", now)
        elif now >= latest_start(job):
            self._end(job, Reason.DEADLINE, _too_late(job), now)
        elif job.ready:
            waited = duration(job.spec.start_within_s)
            self._end(job, Reason.START_TIMEOUT, f"found no place within {waited}", now)
        else:
            gate = next(gate for gate in job.wait.gates if _opens_at(job, gate) <= now)
            self._record(events.GateOpened(job.id, now, gate))

    def _end(self, job: Job, reason: Reason, detail: str, now: float) -> None:
        self._record(events.JobEnded(job.id, now, JobState.FAILED, reason, detail))


def latest_start(job: Job) -> float:
    """The last moment at which the job can start and still keep its deadline."""
    deadline = job.spec.deadline_at
    return NEVER if deadline is None else deadline - (job.spec.time_limit_s or 0.0)


def _patience(job: Job) -> float:
    """When a job that could start gives up."""
    within = job.spec.start_within_s
    return NEVER if within is None else job.ready_at + within


def _opens_at(job: Job, gate: Reason) -> float:
    moment = job.spec.begin_at if gate is Reason.BEGIN else job.wait.again_at
    return NEVER if moment is None else moment


def _next_of(job: Job) -> float:
    """When the next thing is due for the job; NEVER for most jobs."""
    if job.state in HOLDING:
        return job.spec.deadline_at if job.spec.deadline_at is not None and job.stopping is None else NEVER
    if job.state is not JobState.QUEUED:
        return NEVER
    at = latest_start(job)
    if job.ready:
        return min(at, _patience(job))
    for gate in job.wait.gates:
        at = min(at, _opens_at(job, gate))
    return at


def _too_late(job: Job) -> str:
    if job.spec.time_limit_s is None:
        return "its deadline came before it could start"
    return f"can no longer end by its deadline: it may run for {duration(job.spec.time_limit_s)}"


def kept_out(job: Job, now: float) -> str:
    """What keeps the job out of the queue, in a sentence."""
    return "; ".join(_kept_by(job, gate, now) for gate in job.wait.gates)


def _kept_by(job: Job, gate: Reason, now: float) -> str:
    left = duration(_opens_at(job, gate) - now)
    if gate is Reason.BEGIN:
        return f"may not begin yet: in {left}"
    return f"waits {left} before it starts again ({job.detail})"
