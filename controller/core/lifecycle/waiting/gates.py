"""Gates: the reasons that keep a submitted job out of the queue. They are dependencies, a begin time, a
restart delay, and the limit of running jobs of an array or a workload.

Gates are like the scheduling gates of pods in Kubernetes: the scheduler considers a job only while all its
gates are open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from controller.core.lifecycle.waiting.dependencies import (
    canonical,
    dependencies_needed,
    find_cycle,
    outcome_for,
    target_of,
    waiting_text,
    why_impossible,
)
from controller.core.lifecycle.waiting.priority_inheritance import inherited_text
from controller.core.lifecycle.waiting.throttle import workload_limit
from controller.core.model.dataclass import dataclass
from controller.core.model.decision.decision import Refusal
from controller.core.model.job import NEVER, Job
from controller.core.model.wait_state import GATES, WaitRules, with_gate
from controller.core.state.state import State
from wire.job.arrays import array_concurrency_limit
from wire.job.spec import JobSpec
from wire.job.start_conditions import Dependency, Until
from wire.names import JobState, Reason
from wire.text import duration

NOTHING_DECIDED: Mapping[Dependency, bool] = {}


@dataclass(frozen=True, slots=True)
class AdmittedSpec:
    """A job spec that has passed all checks, and the closed gates of the new job. A closed gate is a reason
    that keeps the job out of the queue.
    """

    spec: JobSpec
    gates: tuple[Reason, ...]
    met: tuple[int, ...] = ()
    """Indices in `spec.after` of the dependencies that are met."""
    lost: tuple[int, ...] = ()
    """Indices in `spec.after` of the dependencies that can no longer be met."""

    def gates_of(self, number: int) -> tuple[Reason, ...]:
        """Return the closed gates of array element `number`. An array can have a limit of running elements
        (`--array 0-99%5`). The array gate is then open for the first elements of the array, and closed for
        the other elements. If the array is submitted on hold, the array gate is closed for all elements.
        """
        most = None if self.spec.array is None else array_concurrency_limit(self.spec.array)
        if most is None or (number < most and not self.spec.hold):
            return self.gates
        return with_gate(self.gates, Reason.ARRAY)


def admit(
    state: State,
    rules: WaitRules,
    spec: JobSpec,
    known: Mapping[str, JobState],
    now: float,
    decided: Mapping[Dependency, bool] = NOTHING_DECIDED,
) -> AdmittedSpec | Refusal:
    """Return the spec of a submitted job with its closed gates, or a refusal if the job could never start. A
    closed gate is a reason that keeps the job out of the queue at first.

    `known` contains the final states of old jobs that are only in the store and not in memory. For an edit,
    `decided` contains the dependencies that are already met (True) or impossible (False).
    """
    late = _impossible_deadline(spec, now)
    if late is not None:
        return late
    gates: list[Reason] = []
    met: list[int] = []
    gone: list[int] = []
    if spec.after:
        spec = replace(spec, after=tuple(dict.fromkeys(canonical(state, each) for each in spec.after)))
        refusal = _unknown_target(state, rules, spec, known, decided)
        if refusal is not None:
            return refusal
        for index, each in enumerate(spec.after):
            found = decided[each] if each in decided else outcome_for(state, each, known)
            if found is not None:
                (met if found else gone).append(index)
        need = dependencies_needed(spec)
        if len(spec.after) - len(gone) < need:
            why = why_impossible(state, target_of(spec.after[gone[-1]]), known)
            return Refusal("invalid", f"the job could never start: {why}", "after")
        if len(met) < need:
            gates.append(Reason.DEPENDENCY)
    if spec.begin_at is not None and spec.begin_at > now:
        gates.append(Reason.BEGIN)
    return AdmittedSpec(spec, tuple(gates), tuple(met), tuple(gone))


def readmit(
    state: State, rules: WaitRules, job: Job, spec: JobSpec, known: Mapping[str, JobState], now: float
) -> AdmittedSpec | Refusal:
    """Return the edited spec of a job with its closed gates, or a refusal if the job could never start. A
    closed gate is a reason that keeps the job out of the queue.

    A dependency that the edit does not change stays met or impossible. A closed gate for a restart delay,
    or for the limit of an array or a workload, stays closed.
    """
    old, wait = job.spec, job.wait
    if job.state is not JobState.QUEUED and old.deadline_at == spec.deadline_at:
        return AdmittedSpec(spec, wait.gates, wait.met, wait.lost)
    same = (old.after, old.after_count) == (spec.after, spec.after_count)
    decided = {old.after[index]: index in wait.met for index in (*wait.met, *wait.lost)}
    admitted = admit(state, rules, replace(spec, after=()) if same else spec, known, now, decided)
    if isinstance(admitted, Refusal):
        return admitted
    cycle = [] if same else find_cycle(state, job, admitted.spec.after)
    if cycle:
        return Refusal("invalid", f"the jobs would wait for each other: {' → '.join(cycle)}", "after")
    staying = {Reason.BACKOFF, Reason.ARRAY, Reason.WORKLOAD} | ({Reason.DEPENDENCY} if same else set())
    gates = {*admitted.gates, *(gate for gate in wait.gates if gate in staying)}
    met, gone = (wait.met, wait.lost) if same else (admitted.met, admitted.lost)
    if job.state is not JobState.QUEUED:
        return AdmittedSpec(spec, wait.gates, met, gone)
    ordered = tuple(gate for gate in GATES if gate in gates)
    return AdmittedSpec(spec if same else admitted.spec, ordered, met, gone)


def _unknown_target(
    state: State,
    rules: WaitRules,
    spec: JobSpec,
    known: Mapping[str, JobState],
    decided: Mapping[Dependency, bool],
) -> Refusal | None:
    """Return a refusal if a dependency names a job that does not exist, or a path outside the configured
    directories (`data_roots`). Otherwise return None.
    """
    roots = rules.data_roots
    for index, each in enumerate(spec.after):
        where = f"after[{index}]"
        if each.until is Until.DATA:
            if not any(each.path.startswith(root.rstrip("/") + "/") for root in roots):
                allowed = f"only below {', '.join(roots)}" if roots else "nowhere on this cluster"
                hint = "An operator names directories in [scheduler.waiting] data_roots."
                return Refusal("invalid", f"{each.path}: jobs may wait for data {allowed}", where, hint)
        elif each not in decided and state.find(each.job) is None and each.job not in known:
            hint = "'corral queue --all' lists all jobs."
            return Refusal("invalid", f"there is no job {each.job} to wait for", where, hint)
    return None


def _impossible_deadline(spec: JobSpec, now: float) -> Refusal | None:
    if spec.deadline_at is None or now + (spec.time_limit_s or 0.0) <= spec.deadline_at:
        return None
    left = spec.deadline_at - now
    if left <= 0:
        return Refusal("invalid", f"has passed {duration(-left)} ago", "deadline_at")
    asked = f"with a time limit of {duration(spec.time_limit_s)} the job cannot end by then"
    return Refusal("invalid", f"is {duration(left)} away: {asked}", "deadline_at")


def opens_at(job: Job, gate: Reason) -> float:
    """Return the time at which a closed gate opens by itself, as the gate of a begin time does. Return NEVER
    for a gate that an event must open.

    For the dependency gate, return the end of the job's longest wait for other jobs (`after_within_s`). At
    this time the job is cancelled.
    """
    if gate is Reason.DEPENDENCY:
        within = job.spec.after_within_s
        return NEVER if within is None else job.submitted_at + within
    moment = {Reason.BEGIN: job.spec.begin_at, Reason.BACKOFF: job.wait.again_at}.get(gate)
    return NEVER if moment is None else moment


def gates_text(state: State, job: Job, now: float) -> str:
    """Return one sentence with all reasons (closed gates) that keep the job out of the queue."""
    return "; ".join(_gate_text(state, job, gate, now) for gate in job.wait.gates)


def _gate_text(state: State, job: Job, gate: Reason, now: float) -> str:
    at = opens_at(job, gate)
    left = duration(at - now) if at != NEVER else ""
    if gate is Reason.DEPENDENCY:
        return waiting_text(state, job, now) + (f", for {left} more" if left else "")
    if gate is Reason.BEGIN:
        return f"its begin time is in {left}"
    if gate is Reason.ARRAY:
        most = array_concurrency_limit(job.spec.array or "")
        return f"waits for a slot: {most} of array {job.array} may run at once"
    if gate is Reason.WORKLOAD:
        most = workload_limit(state, job)
        return f"waits for a slot: {most} jobs of workload {job.workload} may run at once"
    return f"waits {left} before it starts again ({job.detail})"


def waiting_effects(state: State, job: Job) -> list[str]:
    """Return texts about the effects of a job's long wait: constraints that no longer apply, and a raised or
    inherited priority.
    """
    effects = []
    if job.wait.relaxed:
        effects.append(f"no longer requires {', '.join(job.spec.relax)}")
    if job.wait.promoted:
        effects.append(f"its priority was raised from {job.spec.priority} to {job.own_priority} for waiting")
    inherited = inherited_text(state, job)
    if inherited:
        effects.append(f"its priority is {inherited}")
    return effects
