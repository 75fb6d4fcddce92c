"""Priority inheritance: a job inherits the highest priority among the jobs that wait for this job.

A waiting job lends its priority to the jobs for which it waits. The lent priority is the priority in the
job's spec, or the inherited priority of the job if that is higher. The lent priority does not contain points
that the job has gained by waiting, because it could then be higher than the highest priority that the job's
user may request (quota/ceilings.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from controller.core.lifecycle.waiting.dependencies import Target, array_elements, target_of, targets_of_job
from controller.core.model.events.queued import PriorityInherited
from controller.core.model.job import Job
from controller.core.state.state import State
from wire.job.start_conditions import Until
from wire.names import JobState, Reason


class PriorityInheritance:
    """Keeps the inherited priority of each job up to date.

    1. Each job that waits for other jobs lends its priority to these jobs and arrays (its targets). Each
       target has a heap of the priorities that waiting jobs lend to the target. Outdated entries are dropped
       when they reach the top of the heap.
    2. After an event about a job, `update` compares the priority that the job lends now with the priority
       before the event. It then adds to `changed` each target whose highest lent priority has changed.
    3. `settle` yields an event for each job in `changed` whose inherited priority has changed. The priority
       that this job lends may then change too. Therefore the caller applies each event and calls `update`
       before it requests the next event.

    Cost: O(targets of the job) for an event. A target that is an array costs O(elements) if its highest lent
    priority has changed.

    Example: job 9 (priority 75) waits for job 8, which waits for job 7 (both priority 50). Job 8 inherits 75
    and lends 75 to job 7, so job 7 inherits 75 as well.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._lent: dict[int, tuple[int, tuple[Target, ...]]] = {}
        """For each waiting job, the priority that the job lends, and its targets (the jobs and arrays for
        which it waits).
        """
        self._heaps: dict[Target, list[tuple[int, int]]] = {}
        """For each target (a job or array for which others wait), a heap of (-priority, job). Outdated
        entries are dropped when they reach the top of the heap.
        """
        self._best: dict[Target, int] = {}
        """For each target (a job or array for which others wait), the highest priority that waiting jobs lend
        to the target.
        """
        self.changed: dict[Target | int, None] = {}
        """Job ids, and targets (jobs or arrays), whose inherited priority may have changed."""

    def update(self, job: Job) -> None:
        """Mark the jobs whose inherited priority may have changed by an event about the job. These are the
        job itself, and the jobs and arrays for which the job waits. `settle` then computes the priorities of
        the marked jobs.
        """
        if self._inherited(job) != job.wait.inherited and not job.state.terminal:
            self.changed[job.id] = None
        known = self._lent.get(job.id)
        if known is None and not job.spec.after:
            return
        targets = tuple(lend_targets(job))
        lent = (job.granted_priority, targets) if targets else None
        if lent == known:
            return
        if lent is None:
            del self._lent[job.id]
        else:
            self._lent[job.id] = lent
            for target in targets:
                heapq.heappush(self._heaps.setdefault(target, []), (-job.granted_priority, job.id))
        for target in targets if known is None else {**dict.fromkeys(known[1]), **dict.fromkeys(targets)}:
            best = self._first(target)
            if best != self._best.pop(target, 0):
                self.changed[target] = None
            if best:
                self._best[target] = best

    def settle(self, now: float) -> Iterator[PriorityInherited]:
        """Yield an event for each job that now inherits another priority. The caller must apply each event
        before it requests the next event.
        """
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
        """Return the highest priority that other jobs lend to the job or its array. Return 0 if this priority
        is not above the priority of the job's spec.

        The comparison leaves out points that the job has gained by waiting. Otherwise a job that has waited
        long would inherit nothing, and would lend a lower priority to the jobs for which it waits.
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


def lend_targets(job: Job) -> Iterator[Target]:
    """Yield the jobs and arrays for which a queued job still waits. The job lends its priority to them. Yield
    nothing while the job is held.
    """
    if job.state is not JobState.QUEUED or job.held or Reason.DEPENDENCY not in job.wait.gates:
        return
    decided = {*job.wait.met, *job.wait.lost}
    for index, each in enumerate(job.spec.after):
        if index not in decided and each.until is not Until.DATA:
            yield target_of(each)


def inherited_from(state: State, job: Job, priority: int) -> Job | None:
    """Return the job from which this job has inherited its priority; None if no job is found.

    If several jobs lend this priority, return the job with the lowest id. The search reads all jobs in
    memory.
    """
    targets = {*targets_of_job(job)}
    for other in state.jobs.values():
        if (
            other.spec.after
            and other.granted_priority == priority
            and not targets.isdisjoint(lend_targets(other))
        ):
            return other
    return None


def inherited_text(state: State, job: Job) -> str:
    """Return a text such as `inherited 75 from job 9`; empty if the inherited priority is not above the
    job's own priority.
    """
    lender = inherited_from(state, job, job.wait.inherited) if job.wait.inherited > job.own_priority else None
    return f"inherited {job.wait.inherited} from job {lender.label}" if lender is not None else ""
