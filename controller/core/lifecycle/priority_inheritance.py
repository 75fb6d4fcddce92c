"""Priority inheritance: a job inherits the highest priority of the jobs that wait for it.

A job lends the priority that it got at submit or by an edit, or that it has inherited itself. It does not
lend what waiting has added, because a user's job would then lift others above the ceiling of that user
(quota/ceilings.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from controller.core.lifecycle.dependencies import Target, array_elements, target_of, targets_of_job
from controller.core.model.events import PriorityInherited
from controller.core.model.job import Job
from controller.core.state.state import State
from wire.job.start_conditions import Until
from wire.names import JobState, Reason


class PriorityInheritance:
    """Keeps the inherited priority of each job up to date.

    1. Each job that waits for others lends its priority to its targets. A heap per target has the lent
       priorities; an entry that is no longer true is dropped when it comes to the top.
    2. `update`, after an event about a job, compares what the job lends now with what it lent before. A
       target whose highest lent priority has changed is noted in `changed`.
    3. `settle` gives an event for each job of the noted targets that inherits something else. That job may
       lend more now, so the caller applies each event (and calls `update`) before it asks for the next.

    Cost: O(targets of the job) for an event; O(elements) for an array target whose priority has changed.

    Example: job 9 (priority 75) waits for job 8, which waits for job 7 (both priority 50). Job 8 inherits 75
    and lends it on, so job 7 inherits 75 as well.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._lent: dict[int, tuple[int, tuple[Target, ...]]] = {}
        """By waiting job: the priority that it lends, and its undecided targets."""
        self._heaps: dict[Target, list[tuple[int, int]]] = {}
        """By target: (-priority, job). Outdated entries are dropped at the top."""
        self._best: dict[Target, int] = {}
        """By target: the highest lent priority."""
        self.changed: dict[Target | int, None] = {}
        """Targets whose jobs may inherit another priority now, and single such jobs."""

    def update(self, job: Job) -> None:
        """Note what the job lends and inherits after an event about it."""
        if self._inherited(job) != job.wait.inherited and not job.state.terminal:
            self.changed[job.id] = None
        known = self._lent.get(job.id)
        if known is None and not job.spec.after:
            return
        targets = tuple(lend_targets(job))
        lent = (lent_priority(job), targets) if targets else None
        if lent == known:
            return
        if lent is None:
            del self._lent[job.id]
        else:
            self._lent[job.id] = lent
            for target in targets:
                heapq.heappush(self._heaps.setdefault(target, []), (-lent_priority(job), job.id))
        for target in targets if known is None else {**dict.fromkeys(known[1]), **dict.fromkeys(targets)}:
            best = self._first(target)
            if best != self._best.pop(target, 0):
                self.changed[target] = None
            if best:
                self._best[target] = best

    def settle(self, now: float) -> Iterator[PriorityInherited]:
        """The events for jobs that inherit another priority now; apply each before asking for the next."""
        while self.changed:
            changed = next(iter(self.changed))
            del self.changed[changed]
            for job in [*self._jobs(changed)]:
                inherited = self._inherited(job)
                if inherited != job.wait.inherited and not job.state.terminal:
                    lender = inherited_from(self._state, job, inherited) if inherited else None
                    yield PriorityInherited(
                        job.id, now, inherited, lender.label if lender is not None else ""
                    )

    def _inherited(self, job: Job) -> int:
        """The highest priority lent to the job or its array; 0 if it is not above the job's own.

        It is compared with the priority of the spec and not with the priority raised by waiting, because the
        job lends on what it inherits and would lend less after waiting had raised it.
        """
        best = (
            max((self._best.get(target, 0) for target in targets_of_job(job)), default=0) if self._best else 0
        )
        return best if best > job.spec.priority else 0

    def _first(self, target: Target) -> int:
        heap = self._heaps.get(target)
        while heap:
            priority, job = heap[0]
            lent = self._lent.get(job)
            if lent is not None and lent[0] == -priority and target in lent[1]:
                return -priority
            heapq.heappop(heap)
        self._heaps.pop(target, None)
        return 0

    def _jobs(self, changed: Target | int) -> Iterator[Job]:
        if isinstance(changed, int):
            yield self._state.jobs[changed]
            return
        array = array_elements(self._state, changed[0])
        if array is not None:
            yield from map(self._state.jobs.__getitem__, array.values())
        elif (job := self._state.find(changed[0])) is not None:
            yield job


def lent_priority(job: Job) -> int:
    """The priority that a job lends to the jobs it waits for."""
    return max(job.spec.priority, job.wait.inherited)


def lend_targets(job: Job) -> Iterator[Target]:
    """The undecided targets of a queued job; none while it is held."""
    if job.state is not JobState.QUEUED or job.held or Reason.DEPENDENCY not in job.wait.gates:
        return
    decided = {*job.wait.met, *job.wait.lost}
    for index, each in enumerate(job.spec.after):
        if index not in decided and each.until is not Until.DATA:
            yield target_of(each)


def inherited_from(state: State, job: Job, priority: int) -> Job | None:
    """The job whose priority this job has inherited, the oldest of several. Looks at all jobs."""
    targets = {*targets_of_job(job)}
    for other in state.jobs.values():
        if (
            other.spec.after
            and lent_priority(other) == priority
            and not targets.isdisjoint(lend_targets(other))
        ):
            return other
    return None


def inherited_text(state: State, job: Job) -> str:
    """Words such as `inherited 75 from job 9`; empty if the job's own priority is as high."""
    lender = inherited_from(state, job, job.wait.inherited) if job.wait.inherited > job.own_priority else None
    return f"inherited {job.wait.inherited} from job {lender.label}" if lender is not None else ""
