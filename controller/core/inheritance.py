"""A job comes as early as the most important of those that wait for it: it inherits their priority."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from controller.core.dependencies import Goal, array_of, goal_of, goals_in
from controller.core.events import PriorityInherited
from controller.core.jobs import Job
from controller.core.state import State
from wire.conditions import Until
from wire.words import JobState, Reason


class Inheritance:
    """Who lends whom a priority. A change costs as much as there are jobs that may inherit something else."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._lent: dict[int, tuple[int, tuple[Goal, ...]]] = {}
        """By job that waits for others: its priority, and what it still waits for in them."""
        self._heaps: dict[Goal, list[tuple[int, int]]] = {}
        """By goal (-priority, job); what is not so any more is passed over when it comes up."""
        self._best: dict[Goal, int] = {}
        """By goal the highest priority of those that wait for it."""
        self._stirred: dict[Goal | int, None] = {}
        """Goals whose jobs, and jobs that may inherit something else now."""

    def __bool__(self) -> bool:
        """Is there anything for settle() to do?"""
        return bool(self._stirred)

    def update(self, job: Job) -> None:
        """Something has become true of the job: does it lend, and how much? Does it still inherit?"""
        if self._inherited(job) != job.wait.inherited and not job.state.terminal:
            self._stirred[job.id] = None
        known = self._lent.get(job.id)
        if known is None and not job.spec.after:
            return
        goals = tuple(lends_to(job))
        lent = (job.priority, goals) if goals else None
        if lent == known:
            return
        if lent is None:
            del self._lent[job.id]
        else:
            self._lent[job.id] = lent
            for goal in goals:
                heapq.heappush(self._heaps.setdefault(goal, []), (-job.priority, job.id))
        for goal in goals if known is None else {**dict.fromkeys(known[1]), **dict.fromkeys(goals)}:
            best = self._first(goal)
            if best != self._best.pop(goal, 0):
                self._stirred[goal] = None
            if best:
                self._best[goal] = best

    def settle(self, now: float) -> Iterator[PriorityInherited]:
        """What has changed, to be made true one by one: whoever inherits may lend on."""
        while self._stirred:
            stirred = next(iter(self._stirred))
            del self._stirred[stirred]
            for job in [*self._jobs(stirred)]:
                inherited = self._inherited(job)
                if inherited != job.wait.inherited and not job.state.terminal:
                    heir = heir_of(self._state, job, inherited) if inherited else None
                    yield PriorityInherited(job.id, now, inherited, heir.label if heir is not None else "")

    def _inherited(self, job: Job) -> int:
        """The highest priority of those that wait for the job or its array, if its own is lower."""
        best = max((self._best.get(goal, 0) for goal in goals_in(job)), default=0) if self._best else 0
        return best if best > job.own_priority else 0

    def _first(self, goal: Goal) -> int:
        heap = self._heaps.get(goal)
        while heap:
            priority, job = heap[0]
            lent = self._lent.get(job)
            if lent is not None and lent[0] == -priority and goal in lent[1]:
                return -priority
            heapq.heappop(heap)
        self._heaps.pop(goal, None)
        return 0

    def _jobs(self, stirred: Goal | int) -> Iterator[Job]:
        if isinstance(stirred, int):
            yield self._state.jobs[stirred]
            return
        array = array_of(self._state, stirred[0])
        if array is not None:
            yield from map(self._state.jobs.__getitem__, array.values())
        elif (job := self._state.find(stirred[0])) is not None:
            yield job


def lends_to(job: Job) -> Iterator[Goal]:
    """What the job waits for in others; nothing while it is held."""
    if job.state is not JobState.QUEUED or job.held or Reason.DEPENDENCY not in job.wait.gates:
        return
    decided = {*job.wait.met, *job.wait.lost}
    for index, each in enumerate(job.spec.after):
        if index not in decided and each.until is not Until.DATA:
            yield goal_of(each)


def heir_of(state: State, job: Job, priority: int) -> Job | None:
    """Whose priority the job has inherited; of several, theirs that came first. Looks at all jobs."""
    goals = {*goals_in(job)}
    for other in state.jobs.values():
        if other.spec.after and other.priority == priority and not goals.isdisjoint(lends_to(other)):
            return other
    return None


def inherits(state: State, job: Job) -> str:
    """The priority that the job has from another; empty if its own is as high."""
    heir = heir_of(state, job, job.wait.inherited) if job.wait.inherited else None
    return f"inherited {job.wait.inherited} from job {heir.label}" if heir is not None else ""
