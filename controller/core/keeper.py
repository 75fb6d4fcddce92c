"""Keeps jobs out of the queue until their time has come, and ends those whose time is over."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from controller.core import events
from controller.core.dependencies import (
    Followers,
    Goal,
    canonical,
    find_cycle,
    goal_of,
    lost,
    verdict,
    waits_for,
)
from controller.core.events import Event, JobEvent
from controller.core.gates import GATES, WaitRules, closed
from controller.core.inheritance import Inheritance, inherits
from controller.core.inputs import Refusal
from controller.core.jobs import NEVER, Job
from controller.core.slots import Slots, wastes_slot
from controller.core.state import State
from wire.conditions import Dependency, Until
from wire.spec import JobSpec, array_most
from wire.text import duration
from wire.words import JobState, Reason

NOTHING: Mapping[Dependency, bool] = {}
HOLDING = (JobState.SCHEDULED, JobState.RUNNING)
_OF_MEMBERS = (events.AttemptStarted, events.AttemptExited, events.MembersStarted, events.MembersExited)
"""Nothing becomes due earlier or later by these, and of a gang there are many."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A spec as it is queued, and what keeps it out of its lane."""

    spec: JobSpec
    gates: tuple[Reason, ...]
    met: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()

    def gates_of(self, number: int) -> tuple[Reason, ...]:
        """Those of an array's element: the first that may run have a slot, unless they are held."""
        most = None if self.spec.array is None else array_most(self.spec.array)
        if most is None or (number < most and not self.spec.hold):
            return self.gates
        return closed(self.gates, Reason.ARRAY)


class Keeper:
    """Knows when something is due for which job: one moment a job, on a heap, worked out from the state.

    A job costs it something when something happens to the job, and nothing while it waits.
    """

    def __init__(
        self, state: State, rules: WaitRules, record: Callable[[Event], None], stop: Callable[..., None]
    ) -> None:
        self._state = state
        self._rules = rules
        self._record = record
        self._stop = stop
        self.kept: set[int] = set()
        """Jobs that nothing but gates keeps out of the queue."""
        self.followers = Followers(state)
        self.inheritance = Inheritance(state)
        self.moved: list[int] = []
        """Jobs in whose lives something has happened that others wait for."""
        self.slots: dict[int, Slots] = {}
        """Of arrays that may not run all at once, while any element lives."""
        self.unsettled: dict[int, list[int]] = {}
        """Of these, those where a slot may be free, with the elements that are held and have one."""
        self._due: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []
        for job in state.live():
            self._schedule(job)
            self.followers.update(job)
            self.inheritance.update(job)
            self._update_slots(job)
        # What was decided before was settled then.
        self.slots = {array: slots for array, slots in self.slots.items() if not slots.unused}
        self.unsettled.clear()

    @property
    def restless(self) -> bool:
        """Is there anything for settle() to do?"""
        return bool(self.moved or self.unsettled or self.inheritance)

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

    def readmit(
        self, job: Job, spec: JobSpec, known: Mapping[str, JobState], now: float
    ) -> Admission | Refusal:
        """The same for a job that is here and is to ask for this from now on."""
        old, wait = job.spec, job.wait
        same = (old.after, old.after_count) == (spec.after, spec.after_count)
        decided = {old.after[index]: index in wait.met for index in (*wait.met, *wait.lost)}
        admitted = self.admit(replace(spec, after=()) if same else spec, known, now, decided)
        if isinstance(admitted, Refusal):
            return admitted
        cycle = [] if same else find_cycle(self._state, job, admitted.spec.after)
        if cycle:
            return Refusal("invalid", f"the jobs would wait for each other: {' → '.join(cycle)}", "after")
        kept = {Reason.BACKOFF, Reason.ARRAY} | ({Reason.DEPENDENCY} if same else set())
        gates = {*admitted.gates, *(gate for gate in wait.gates if gate in kept)}
        met, gone = (wait.met, wait.lost) if same else (admitted.met, admitted.lost)
        if job.state is not JobState.QUEUED:
            return Admission(spec, wait.gates, met, gone)
        ordered = tuple(gate for gate in GATES if gate in gates)
        return Admission(spec if same else admitted.spec, ordered, met, gone)

    def admit(
        self,
        spec: JobSpec,
        known: Mapping[str, JobState],
        now: float,
        decided: Mapping[Dependency, bool] = NOTHING,
    ) -> Admission | Refusal:
        """What keeps a job out of the queue that comes now, or why it is over before it began."""
        late = _impossible_deadline(spec, now)
        if late is not None:
            return late
        gates: list[Reason] = []
        met: list[int] = []
        gone: list[int] = []
        if spec.after:
            state = self._state
            spec = replace(spec, after=tuple(dict.fromkeys(canonical(state, each) for each in spec.after)))
            refusal = self._unknown(spec, known, decided)
            if refusal is not None:
                return refusal
            for index, each in enumerate(spec.after):
                found = decided[each] if each in decided else verdict(state, each, known)
                if found is not None:
                    (met if found else gone).append(index)
            need = needed(spec)
            if len(spec.after) - len(gone) < need:
                why = lost(state, goal_of(spec.after[gone[-1]]), known)
                return Refusal("invalid", f"the job could never start: {why}", "after")
            if len(met) < need:
                gates.append(Reason.DEPENDENCY)
        if spec.begin_at is not None and spec.begin_at > now:
            gates.append(Reason.BEGIN)
        return Admission(spec, tuple(gates), tuple(met), tuple(gone))

    def _unknown(
        self, spec: JobSpec, known: Mapping[str, JobState], decided: Mapping[Dependency, bool]
    ) -> Refusal | None:
        """A refusal if there is nothing that could be waited for."""
        state, roots = self._state, self._rules.data_roots
        for index, each in enumerate(spec.after):
            where = f"after[{index}]"
            if each.until is Until.DATA:
                if not any(each.path.startswith(root.rstrip("/") + "/") for root in roots):
                    allowed = f"only below {', '.join(roots)}" if roots else "nowhere on this cluster"
                    hint = "An operator names directories in [scheduler.waiting] data_roots."
                    return Refusal("invalid", f"{each.path}: jobs may wait for data {allowed}", where, hint)
            elif each not in decided and state.find(each.job) is None and each.job not in known:
                hint = "'corral queue --all' shows what there is."
                return Refusal("invalid", f"there is no job {each.job} to wait for", where, hint)
        return None

    def notice(self, event: Event) -> None:
        """Something has become true: when is what due for this job now?"""
        of_member = isinstance(event, _OF_MEMBERS)
        if not isinstance(event, JobEvent) or (of_member and not self.followers and not self.slots):
            return
        job = self._state.jobs[event.job]
        if not of_member:
            self._schedule(job)
        if isinstance(event, events.DependencyDecided):
            self.followers.leave(event.job, event.index)
        if not of_member or job.spec.after:
            self.followers.update(job)
            self.inheritance.update(job)
        if self.followers.goals(job):
            self.moved.append(job.id)
        if job.array is not None:
            self._update_slots(job)

    def _update_slots(self, job: Job) -> None:
        array, slots = job.array, self.slots.get(job.array or 0)
        if array is None or (slots is None and (most := array_most(job.spec.array or "")) is None):
            return
        if slots is None:
            slots = self.slots[array] = Slots(most or 0)
        slots.update(job)
        wasted = wastes_slot(job)
        if wasted or slots.next() is not None or slots.unused:
            held = self.unsettled.setdefault(array, [])
            if wasted:
                held.append(job.id)

    def _settle_slots(self, array: int, held: list[int], now: float) -> None:
        """Take slots from those who are held, and give what is free to those who come next."""
        for job in held:
            self._record(events.GateClosed(job, now, Reason.ARRAY))
        slots = self.slots[array]
        while (following := slots.next()) is not None:
            self._record(events.GateOpened(following, now, Reason.ARRAY))
        self.unsettled.pop(array, None)  # what was just done needs no second look
        if slots.unused:
            del self.slots[array]

    def settle(self, now: float) -> None:
        """Tell the followers of all that moved; what that leads to is followed up as well."""
        while self.restless:
            for number in self.moved:  # it grows on the way
                job = self._state.jobs[number]
                for goal in self.followers.goals(job):
                    reached = self.followers.reached(goal, job)
                    if reached is not None:
                        self._decide(goal, reached, now)
            self.moved.clear()
            if self.unsettled:
                self._settle_slots(*self.unsettled.popitem(), now)
            for inherited in self.inheritance.settle(now):
                self._record(inherited)

    def found(self, path: str, now: float) -> None:
        """A path that jobs wait for is there."""
        self._decide((path, Until.DATA), True, now)

    def _decide(self, goal: Goal, met: bool, now: float) -> None:
        detail = "" if met else lost(self._state, goal, {})
        for number, index in self.followers.waiting(goal):
            job = self._state.jobs[number]
            if job.state.terminal or Reason.DEPENDENCY not in job.wait.gates:
                continue
            path = goal[0] if goal[1] is Until.DATA else ""
            self._record(events.DependencyDecided(number, now, index, met, detail, path))
            wait, need = job.wait, needed(job.spec)
            if len(wait.met) >= need:
                self._record(events.GateOpened(number, now, Reason.DEPENDENCY))
            elif len(job.spec.after) - len(wait.lost) < need and self._rules.cancel_hopeless:
                self._end(job, Reason.DEPENDENCY, detail, now, JobState.CANCELLED)

    def open_due(self, now: float) -> None:
        """Before a cycle: open what is to be opened, end what has no chance any more."""
        last_chances = []
        while self.next_at <= now:
            at, number = heapq.heappop(self._heap)
            job = self._state.jobs[number]
            if job.ready and at == now and now in (job.latest_start, _patience(job)):
                last_chances.append((at, number))
            else:
                self._act(job, now)
        for each in last_chances:
            heapq.heappush(self._heap, each)

    def end_due(self, now: float) -> bool:
        """After a cycle: end those for whom it was the last chance. False if there was nobody."""
        found = self.next_at <= now
        while self.next_at <= now:
            self._act(self._state.jobs[heapq.heappop(self._heap)[1]], now)
        return found

    def _schedule(self, job: Job) -> None:
        if job.wait.gates and job.state is JobState.QUEUED and not job.held:
            self.kept.add(job.id)
        elif self.kept:
            self.kept.discard(job.id)
        at = min(_next_of(job), self._promotes_at(job))
        if self._due.get(job.id, NEVER) == at:
            return
        if at == NEVER:
            del self._due[job.id]
        else:
            self._due[job.id] = at
            heapq.heappush(self._heap, (at, job.id))

    def _promotes_at(self, job: Job) -> float:
        """When the job has waited long enough to be raised, once more."""
        rules, wait = self._rules, job.wait
        if rules.promote_after_s is None or not job.ready or job.own_priority >= rules.promote_most:
            return NEVER
        return max(job.ready_at, wait.promoted_at or 0.0) + rules.promote_after_s

    def _act(self, job: Job, now: float) -> None:
        """Do what is due for the job first; every way through records something about it."""
        del self._due[job.id]
        if job.state in HOLDING:
            self._stop(job, Reason.DEADLINE, "its deadline", now)
        elif now >= job.latest_start:
            self._end(job, Reason.DEADLINE, _too_late(job), now)
        elif job.ready and now >= _patience(job):
            waited = duration(job.spec.start_within_s)
            self._end(job, Reason.START_TIMEOUT, f"found no place within {waited}", now)
        elif job.ready and now >= _relaxes_at(job):
            self._record(events.JobRelaxed(job.id, now, job.spec.relax))
        elif job.ready:
            raised = min(job.own_priority + self._rules.promote_by, self._rules.promote_most)
            self._record(events.JobPromoted(job.id, now, raised))
        else:
            gate = next(gate for gate in job.wait.gates if _opens_at(job, gate) <= now)
            if gate is Reason.DEPENDENCY:
                waited = duration(job.spec.after_within_s)
                detail = f"still {waits_for(self._state, job, now)} after {waited}"
                self._end(job, gate, detail, now, JobState.CANCELLED)
            else:
                self._record(events.GateOpened(job.id, now, gate))

    def _end(
        self, job: Job, reason: Reason, detail: str, now: float, state: JobState = JobState.FAILED
    ) -> None:
        if job.claim:
            self._record(events.PreemptionDropped(job.id, now, f"given up: {detail}"))
        self._record(events.JobEnded(job.id, now, state, reason, detail))


def _patience(job: Job) -> float:
    """When a job that could start gives up."""
    within = job.spec.start_within_s
    return NEVER if within is None else job.ready_at + within


def _relaxes_at(job: Job) -> float:
    """When a job that could start does without what it named for that."""
    return job.ready_at + job.spec.relax_after_s if job.spec.relax and not job.wait.relaxed else NEVER


def _opens_at(job: Job, gate: Reason) -> float:
    """When something is due at a closed gate by itself; at that of the dependencies, the end of patience."""
    if gate is Reason.DEPENDENCY:
        within = job.spec.after_within_s
        return NEVER if within is None else job.submitted_at + within
    moment = {Reason.BEGIN: job.spec.begin_at, Reason.BACKOFF: job.wait.again_at}.get(gate)
    return NEVER if moment is None else moment


def _next_of(job: Job) -> float:
    """When the next thing is due for the job; NEVER for most jobs."""
    if job.state in HOLDING:
        return job.spec.deadline_at if job.spec.deadline_at is not None and job.stopping is None else NEVER
    if job.state is not JobState.QUEUED:
        return NEVER
    at = job.latest_start
    if job.ready:
        return min(at, _patience(job), _relaxes_at(job))
    for gate in job.wait.gates:
        at = min(at, _opens_at(job, gate))
    return at


def _too_late(job: Job) -> str:
    if job.spec.time_limit_s is None:
        return "its deadline came before it could start"
    return f"can no longer end by its deadline: it may run for {duration(job.spec.time_limit_s)}"


def needed(spec: JobSpec) -> int:
    """How many of the things it waits for have to have happened."""
    return len(spec.after) if spec.after_count is None else spec.after_count


def _impossible_deadline(spec: JobSpec, now: float) -> Refusal | None:
    if spec.deadline_at is None or now + (spec.time_limit_s or 0.0) <= spec.deadline_at:
        return None
    left = spec.deadline_at - now
    if left <= 0:
        return Refusal("invalid", f"has passed {duration(-left)} ago", "deadline_at")
    asked = f"with a time limit of {duration(spec.time_limit_s)} the job cannot end by then"
    return Refusal("invalid", f"is {duration(left)} away: {asked}", "deadline_at")


def waited_for(state: State, job: Job) -> list[str]:
    """What a job that waits for its turn has got for its waiting, or for the sake of others."""
    told = []
    if job.wait.relaxed:
        told.append(f"does without {', '.join(job.spec.relax)} by now")
    if job.wait.promoted:
        told.append(f"its priority was raised from {job.spec.priority} to {job.own_priority} for waiting")
    inherited = inherits(state, job)
    if inherited:
        told.append(f"its priority is {inherited}")
    return told


def kept_out(state: State, job: Job, now: float) -> str:
    """What keeps the job out of the queue, in a sentence."""
    return "; ".join(_kept_by(state, job, gate, now) for gate in job.wait.gates)


def _kept_by(state: State, job: Job, gate: Reason, now: float) -> str:
    at = _opens_at(job, gate)
    left = duration(at - now) if at != NEVER else ""
    if gate is Reason.DEPENDENCY:
        return waits_for(state, job, now) + (f", for {left} more" if left else "")
    if gate is Reason.BEGIN:
        return f"may not begin yet: in {left}"
    if gate is Reason.ARRAY:
        most = array_most(job.spec.array or "")
        return f"waits for a slot: {most} of array {job.array} may run at once"
    return f"waits {left} before it starts again ({job.detail})"
