"""Acts on jobs at their due times. Opens gates (reasons that keep jobs out of the queue), raises priorities,
and ends jobs that have waited too long or can no longer meet their deadlines.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from controller.core.lifecycle.waiting.dependencies import DependencyIndex, waiting_text
from controller.core.lifecycle.waiting.dependency_decisions import DependencyDecisions
from controller.core.lifecycle.waiting.gates import opens_at
from controller.core.lifecycle.waiting.priority_inheritance import PriorityInheritance
from controller.core.lifecycle.waiting.throttle import ARRAYS, WORKLOADS, Throttles
from controller.core.model.events.attempts import (
    AttemptExited,
    AttemptStarted,
    JobEnded,
    MembersExited,
    MembersStarted,
)
from controller.core.model.events.event import Event, JobEvent
from controller.core.model.events.nominations import PreemptionDropped
from controller.core.model.events.queued import DependencyDecided, GateOpened, JobPromoted, JobRelaxed
from controller.core.model.inputs.controller_inputs import DataFound
from controller.core.model.job import NEVER, Job
from controller.core.model.wait_state import WaitRules
from controller.core.state.state import State
from wire.job.start_conditions import Until
from wire.names import JobState, Reason
from wire.text import duration
from wire.workload.spec import OnFailure

PLACED_STATES = (JobState.SCHEDULED, JobState.RUNNING)
_OF_MEMBERS = (AttemptStarted, AttemptExited, MembersStarted, MembersExited)
"""Events about gang members that change no due time. These events are skipped, because a large gang causes
many of them.
"""


class DueJobs:
    """Acts on jobs at their due times. Opens gates (begin times, restart delays), raises priorities and ends
    jobs.

    1. After each event about a job, `on_event` computes the job's next due time and pushes an entry on a
       heap. Entries with an outdated time are skipped when they reach the top of the heap.
    2. `on_event` also updates the dependency index, the array limits and the inherited priorities. Each of
       these keeps a list of the jobs or arrays that need a decision.
    3. `settle` makes these decisions. `settle` repeats this until no decision is left, because one decision
       can make others necessary.
    4. Before a scheduling cycle, `open_due` acts on the jobs that are due. A job for which this cycle is the
       last chance to start stays on the heap. If the job has not started, `end_due` ends the job after the
       cycle.

    Invariant: a DueJobs object that is made from the state has the same due times, dependencies and run slots
    of arrays. tests/engine_harness.py compares both objects after each input. Cost: O(log jobs) for an event
    about a job; nothing while a job waits.

    Example: job 7 may begin at 10:00, has a limit of one hour and a deadline at 12:00. At 10:00 its gate
    opens. Its next due time is 11:00, the latest start that meets the deadline. If the cycle at 11:00 does
    not start the job, the job ends with the reason DEADLINE.
    """

    def __init__(
        self, state: State, rules: WaitRules, record: Callable[[Event], None], stop: Callable[..., None]
    ) -> None:
        self._state = state
        self._rules = rules
        self._record = record
        self._stop = stop
        self.gated: set[int] = set()
        """Ids of queued jobs that are not held and have a closed gate."""
        self.dependencies = DependencyIndex(state)
        self._decisions = DependencyDecisions(
            state, self.dependencies, rules.cancel_hopeless, record, self._end
        )
        self.inheritance = PriorityInheritance(state)
        self.throttles = Throttles(ARRAYS, state)
        self.workload_throttles = Throttles(WORKLOADS, state)
        self.failures: dict[int, int] = {}
        """By workload id, for each workload whose waiting jobs must be cancelled: the id of the failed job
        that is the cause.
        """
        self.due_times: dict[int, float] = {}
        """The next due time of each job. Jobs without a due time are left out."""
        self._heap: list[tuple[float, int]] = []
        for job in state.live():
            self._schedule(job)
            self.dependencies.update(job)
            self.inheritance.update(job)

    @property
    def next_at(self) -> float:
        """The earliest time at which an action is due for any job; NEVER if there is none."""
        heap, due = self._heap, self.due_times
        while heap and due.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else NEVER

    def on_event(self, event: Event) -> None:
        """Update the due time of a job after an event about the job. Also update what depends on the job:
        dependencies, inherited priorities, and the run slots of its array and workload.
        """
        if not isinstance(event, JobEvent):
            return
        job = self._state.jobs[event.job]
        if not isinstance(event, _OF_MEMBERS):
            self._schedule(job)
        if isinstance(event, DependencyDecided):
            self.dependencies.remove(event.job, event.index)
        # Skip these updates for a job without dependencies while no job waits for another job, because they
        # take time.
        if job.spec.after or job.wait.inherited or self.dependencies.by_target:
            self.dependencies.update(job)
            self.inheritance.update(job)
            if self.dependencies.targets(job):
                self._decisions.changed.append(job.id)
        if job.array is not None:
            self.throttles.update(job)
        if job.workload is not None:
            self.workload_throttles.update(job)
            if isinstance(event, JobEnded) and event.state is JobState.FAILED and self._stops(job.workload):
                self.failures[job.workload] = job.id

    def settle(self, now: float) -> None:
        """Make all decisions that recorded events have made necessary. Repeat this until no further decision
        is necessary.

        1. Cancel the waiting jobs of workloads that stop after a failure.
        2. Record which dependencies are met or can never be met.
        3. Record which jobs get a run slot of their array or workload, and which priorities jobs inherit.
        """
        while (
            self.failures
            or self._decisions.changed
            or self.throttles.unsettled
            or self.workload_throttles.unsettled
            or self.inheritance.changed
        ):
            while self.failures:
                self._cancel_waiting(*self.failures.popitem(), now)
            self._decisions.settle(now)
            if self.throttles.unsettled:
                self.throttles.settle(now, self._record)
            if self.workload_throttles.unsettled:
                self.workload_throttles.settle(now, self._record)
            for inherited in self.inheritance.settle(now):
                self._record(inherited)

    def _stops(self, workload: int) -> bool:
        """Return whether the failure of one job cancels all waiting jobs of this workload."""
        found = self._state.workloads.by_id.get(workload)
        return found is not None and found.on_failure is OnFailure.STOP

    def _cancel_waiting(self, workload: int, failed: int, now: float) -> None:
        """Cancel the waiting jobs of a workload, because a job of the workload has failed."""
        detail = f"job {self._state.jobs[failed].label} of its workload has failed"
        for task in self._state.workloads.by_id[workload].tasks.values():
            for number in task.ids():
                job = self._state.jobs.get(number)
                if job is not None and job.state is JobState.QUEUED:
                    self._end(job, Reason.WORKLOAD, detail, now, JobState.CANCELLED)

    def on_data_found(self, given: DataFound, now: float) -> None:
        """Mark the dependencies on a file path as met, because the path exists now."""
        self._decisions.decide((given.path, Until.DATA), True, now)

    def open_due(self, now: float) -> None:
        """Carry out the due actions of all jobs before a scheduling cycle. Leave out a job for which this
        cycle is the last chance to start; `end_due` handles it after the cycle.
        """
        last_chances = []
        while self.next_at <= now:
            at, number = heapq.heappop(self._heap)
            job = self._state.jobs[number]
            if job.ready and at == now and now in (job.latest_start, _gives_up_at(job)):
                last_chances.append((at, number))
            else:
                self._act(job, now)
        for each in last_chances:
            heapq.heappush(self._heap, each)

    def end_due(self, now: float) -> None:
        """End the jobs for which this scheduling cycle was the last chance to start, and which have not
        started.
        """
        while self.next_at <= now:
            self._act(self._state.jobs[heapq.heappop(self._heap)[1]], now)

    def _schedule(self, job: Job) -> None:
        if job.wait.gates and job.state is JobState.QUEUED and not job.held:
            self.gated.add(job.id)
        elif self.gated:
            self.gated.discard(job.id)
        # After its placement, the only due time of a job is its deadline.
        at = _next_due(job) if job.state is JobState.QUEUED or job.spec.deadline_at is not None else NEVER
        if self._rules.promote_after_s is not None:
            at = min(at, self._promotes_at(job, self._rules.promote_after_s))
        if self.due_times.get(job.id, NEVER) == at:
            return
        if at == NEVER:
            del self.due_times[job.id]
        else:
            self.due_times[job.id] = at
            heapq.heappush(self._heap, (at, job.id))

    def _promotes_at(self, job: Job, after_s: float) -> float:
        """Return the time of the next rise of the job's priority because of its wait; NEVER if there is no
        further rise.
        """
        if not job.ready or job.own_priority >= self._rules.promote_most:
            return NEVER
        return max(job.ready_at, job.wait.promoted_at or 0.0) + after_s

    def _act(self, job: Job, now: float) -> None:
        """Carry out the first due action for the job. The action records an event about the job, and this
        event sets the job's next due time.
        """
        del self.due_times[job.id]
        if job.state in PLACED_STATES:
            self._stop(job, Reason.DEADLINE, "its deadline", now)
        elif now >= job.latest_start:
            self._end(job, Reason.DEADLINE, _too_late(job), now)
        elif job.ready and now >= _gives_up_at(job):
            waited = duration(job.spec.start_within_s)
            self._end(job, Reason.START_TIMEOUT, f"did not start within {waited}", now)
        elif job.ready and now >= _relaxes_at(job):
            self._record(JobRelaxed(job.id, now, job.spec.relax))
        elif job.ready:
            raised = min(job.own_priority + self._rules.promote_by, self._rules.promote_most)
            self._record(JobPromoted(job.id, now, raised))
        else:
            gate = next(gate for gate in job.wait.gates if opens_at(job, gate) <= now)
            if gate is Reason.DEPENDENCY:
                waited = duration(job.spec.after_within_s)
                detail = f"still {waiting_text(self._state, job, now)} after {waited}"
                self._end(job, gate, detail, now, JobState.CANCELLED)
            else:
                self._record(GateOpened(job.id, now, gate))

    def _end(
        self, job: Job, reason: Reason, detail: str, now: float, state: JobState = JobState.FAILED
    ) -> None:
        if job.claim:
            self._record(PreemptionDropped(job.id, now, f"the job ended: {detail}"))
        self._record(JobEnded(job.id, now, state, reason, detail))


def _next_due(job: Job) -> float:
    """Return the time at which the next action for the job is due; NEVER if no action is planned. Rises of
    its priority are left out (`_promotes_at`).
    """
    if job.state in PLACED_STATES:
        return job.spec.deadline_at if job.spec.deadline_at is not None and job.stopping is None else NEVER
    if job.state is not JobState.QUEUED:
        return NEVER
    at = job.latest_start
    if job.ready:
        return min(at, _gives_up_at(job), _relaxes_at(job))
    for gate in job.wait.gates:
        at = min(at, opens_at(job, gate))
    return at


def _gives_up_at(job: Job) -> float:
    """Return the time at which a job in the queue is ended because its wait reaches `start_within_s` seconds.
    Return NEVER if `start_within_s` is not set.
    """
    within = job.spec.start_within_s
    return NEVER if within is None else job.ready_at + within


def _relaxes_at(job: Job) -> float:
    """Return the time at which a job in the queue drops the constraints named by `--relax`. Return NEVER if
    there are no such constraints, or if the job has already dropped them.
    """
    return job.ready_at + job.spec.relax_after_s if job.spec.relax and not job.wait.relaxed else NEVER


def _too_late(job: Job) -> str:
    if job.spec.time_limit_s is None:
        return "its deadline came before it could start"
    return f"can no longer end by its deadline: it may run for {duration(job.spec.time_limit_s)}"
