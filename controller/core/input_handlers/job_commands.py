"""Handles the commands of users: submit, edit, cancel, hold, release, preempt and requeue jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from controller.core.cluster.hypothetical_nodes import with_hypothetical
from controller.core.cluster.licences import never_available
from controller.core.explain.never_fits import never_fits
from controller.core.framework import profiles
from controller.core.input_handlers.context import Context
from controller.core.input_handlers.job_edits import apply_changes, changed_fields, labels_of_queue
from controller.core.input_handlers.resource_sizes import DefaultSizes, has_provisional_size
from controller.core.input_handlers.submission_checks import (
    NO_OTHER_JOBS,
    apply_queue_rule,
    hours_refusal,
    labels_added_by_queue,
    quota_refusal,
    unknown_reservation,
)
from controller.core.lifecycle import node_loss
from controller.core.lifecycle.waiting import gates
from controller.core.lifecycle.waiting.gates import AdmittedSpec
from controller.core.model.decision.decision import DONE, Accepted, Refusal, Reply
from controller.core.model.events.attempts import JobEnded
from controller.core.model.events.queued import (
    JobEdited,
    JobHeld,
    JobQueued,
    JobReleased,
    StartEstimated,
    WaitAlarmed,
)
from controller.core.model.inputs import controller_inputs, job_inputs
from controller.core.model.inputs.input import Requester
from controller.core.model.job import Job
from controller.core.model.request import ResourceRequest, without_relaxed
from controller.core.model.services import Replica
from controller.core.model.start_estimates import should_record
from controller.core.placement.placer import Placer
from controller.core.quota.projects import project_notes
from controller.core.quota.usage_counters import TenantKey
from wire.job.arrays import array_indices
from wire.job.placement.affinity import Effect, untolerated_taint
from wire.job.spec import JobSpec, is_storable, spec_problems
from wire.job.start_conditions import Until
from wire.names import JobState, Reason

BY_CONTROLLER = ""
"""The name that events record as the author of a change made by the controller."""

LOST_BY_CANCEL = (Until.STARTED, Until.OK, Until.CHECKPOINT)
"""The conditions of dependencies that a waiting job can never meet after its cancel. Jobs that depend on it
with such a condition are then cancelled too.
"""

MOST_POOL_NODES = 16
"""For a job that does not set its number of nodes: at most this many nodes of each shape of a machine pool
are considered.
"""
MAX_KEY = 200
"""An idempotency key (a client's id of a submit) has at most this many characters."""


class JobCommands:
    """Handles commands of users on jobs. A command is executed completely, or refused without any change.

    Checks of a submit (`examine`; an edit has the same checks for the changed fields)
    1. The spec must be valid, and its queue and its scheduler profile must accept the spec. The user must be
       allowed to use the project. The request must be within the ceilings (the most that the user may
       request).
    2. Missing CPU and memory are filled in (`DefaultSizes`).
    3. The job's dependencies, begin time and deadline must be possible. These fields also decide which gates
       (reasons that keep the job out of the queue) are closed at first.
    4. The cluster must be able to hold the job when no other job runs, and no quota may be too small for the
       job alone. The limits on waiting jobs must allow the new jobs.

    Cost: O(1) for a repeated submit. Otherwise one search for suitable nodes for each class of equal
    requests, and then O(array elements).
    """

    def __init__(self, context: Context) -> None:
        self._state = context.state
        self._pipeline = context.pipeline
        self._cycles = context.cycles
        self._stopper = context.stopper
        self._record = context.record
        self._dependencies = context.due_jobs.dependencies
        self._sizes = DefaultSizes(context.pipeline.rules)

    def submit(self, given: job_inputs.Submit, now: float, replica: Replica | None = None) -> Reply:
        """Queue a job, or all elements of an array. `replica` is set for a job of a service: the name of the
        service and the replica number. `replica` is None for a job that a user submits.

        If the user has already submitted with this idempotency key, return the jobs of the earlier submit and
        queue nothing.
        """
        known = self._state.keys.get((given.user, given.key)) if given.key else None
        if known:
            return Accepted(tuple(known))
        examined = key_refusal(given.key) or self.examine(given, now)
        if isinstance(examined, Refusal):
            return examined
        admitted, from_queue, indices = examined
        spec = admitted.spec
        first = self._state.next_job
        array = None if spec.array is None else first
        met, lost = admitted.met, admitted.lost
        for number, index in enumerate(indices):
            closed, job = admitted.gates_of(number), first + number
            self.note_size(job, spec)
            self._record(
                JobQueued(
                    *(job, now, spec, given.user, given.key, array, index, closed, met, lost, from_queue),
                    replica,
                )
            )
        return Accepted(tuple(range(first, first + len(indices))), project_notes(given.spec, spec))

    def note_size(self, job: int, spec: JobSpec) -> None:
        """Remember a new job if its default CPU or memory is provisional. The default is computed again when
        a suitable node joins.
        """
        self._sizes.note(job, spec)

    def preview(self, given: job_inputs.Submit, now: float) -> JobSpec | Refusal:
        """Return the spec that a submit would queue, with its defaults filled in. Nothing is queued."""
        examined = self.examine(given, now)
        return examined if isinstance(examined, Refusal) else examined[0].spec

    def examine(
        self,
        given: job_inputs.Submit,
        now: float,
        count: int | None = None,
        with_these: Mapping[TenantKey, int] = NO_OTHER_JOBS,
    ) -> Refusal | tuple[AdmittedSpec, tuple[str, ...], Sequence[int | None]]:
        """Check a submit. Return a refusal, or (admitted spec, names of the node labels that its queue added,
        indices of its array elements).

        `count` is the number of jobs with this request. None means all elements of the array. `with_these`
        contains the number of other jobs, by tenant, that will be queued together with these jobs.
        """
        wrong = spec_problems(given.spec)
        if wrong:
            where, message = wrong[0]
            return Refusal("invalid", message, where)
        asked = self._in_project(
            given.asker, self._pipeline.rules.projects.with_default(given.spec, given.user)
        )
        if isinstance(asked, Refusal):
            return asked
        spec = self._allowed(given.asker, apply_queue_rule(self._pipeline.rules, asked, given.user))
        from_queue = () if isinstance(spec, Refusal) else labels_added_by_queue(asked, spec)
        if not isinstance(spec, Refusal):
            spec = profiles.profile_refusal(self._state.profiles, spec, given.user) or spec
        if not isinstance(spec, Refusal):
            spec = node_loss.with_loss_policy(self._pipeline.losses, spec)
        if not isinstance(spec, Refusal):
            spec = unknown_reservation(self._state.reservations.by_name, spec) or spec
        if isinstance(spec, Refusal):
            return spec
        placer = self._placer_for(spec, given.user)
        admitted = gates.admit(
            self._state, self._pipeline.waiting, self._sizes.fill(spec, placer), given.known, now
        )
        if isinstance(admitted, Refusal):
            return admitted
        spec = admitted.spec
        ask = self._state.ask(spec, given.user)
        indices: Sequence[int | None] = [None] if spec.array is None else array_indices(spec.array)
        refusal = (
            self._never(placer, spec, ask, from_queue, given.user)
            or hours_refusal(self._state.quotas, spec, now)
            or quota_refusal(
                *(self._state.quotas, placer, spec, ask, given.user),
                len(indices) if count is None else count,
                now,
                with_these=with_these,
            )
        )
        return refusal or (admitted, from_queue, indices)

    def edit(self, given: job_inputs.Edit, now: float) -> Reply:
        """Change the spec of a job. The new spec must pass the checks of a submit."""
        job = self._state.jobs[given.job]
        if job.state.terminal:
            return Refusal("conflict", f"job {job.label} is {job.state.value} already", "job")
        if job.replica is not None:
            message = f"job {job.label} is a replica of service {job.replica.service}"
            return Refusal("conflict", message, "job", "Change the service in scheduler.toml.")
        asked = apply_changes(job, given.changes)
        if not isinstance(asked, Refusal) and asked.project != job.spec.project:
            asked = self._in_project(given.asker, asked)
        if isinstance(asked, Refusal):
            return asked
        extends = job.unended and "time_limit_s" in given.changes and asked.time_limit_s != job.limit
        refused = self._extension_refusal(job, asked, given, now) if extends else None
        if refused is not None:
            return refused
        spec = self._allowed(given.asker, self._in_queue(job, asked, given.asker), job.spec)
        if not isinstance(spec, Refusal) and profiles.may_change_profile(job.spec, spec):
            spec = profiles.profile_refusal(self._state.profiles, spec, job.user) or spec
        if not isinstance(spec, Refusal) and spec.reservation != job.spec.reservation:
            spec = unknown_reservation(self._state.reservations.by_name, spec) or spec
        if isinstance(spec, Refusal):
            return spec
        from_queue = labels_of_queue(job, given.changes, asked, spec)
        spec = node_loss.with_loss_policy(self._pipeline.losses, spec)
        if job.state is JobState.QUEUED:
            spec = self.with_defaults(job, spec, frozenset(given.changes))
            self._sizes.note(job.id, spec)
        admitted = gates.readmit(self._state, self._pipeline.waiting, job, spec, given.known, now)
        if isinstance(admitted, Refusal):
            return admitted
        spec, ask = admitted.spec, self._state.ask(admitted.spec, job.user)
        fields = changed_fields(job.spec, spec)
        if extends and not fields:
            # The spec stays the same if a job with --time-min has started with a shorter limit, and the edit
            # requests the limit in the spec. The edit then only makes the limit of the attempt longer.
            fields = ("time_limit_s",)
        if not fields:
            return Accepted((job.id,))
        moves = int((spec.project, spec.queue) != (job.spec.project, job.spec.queue))
        other = spec.profile != job.spec.profile
        if moves or other or ask != job.ask or spec.time_limit_s != job.spec.time_limit_s:
            placer = self._placer_for(spec, job.user)
            refusal = self._never(placer, spec, ask, from_queue, job.user) or quota_refusal(
                self._state.quotas, placer, spec, ask, job.user, moves, now, job.spec
            )
            if refusal is not None:
                return refusal
        if job.state is JobState.QUEUED:
            self._stopper.unclaim(job, f"a change by {given.by}", now)
            self._cycles.forget(job.id)
        closed, met, lost = admitted.gates, admitted.met, admitted.lost
        self._record(JobEdited(job.id, now, spec, given.by, fields, closed, met, lost, from_queue))
        if extends:
            self._stopper.send_limit(job)
        return Accepted((job.id,))

    def _in_queue(self, job: Job, asked: JobSpec, asker: Requester | None) -> JobSpec | Refusal:
        """Return the edited spec with the time limit and node labels that its queue sets. Return a refusal if
        the queue does not accept the job.

        Operators may extend a running job beyond the longest time limit of its queue. Later edits of this job
        are not refused because of the longer limit.
        """
        most = self._pipeline.rules.queue(asked.queue).max_time_limit_s
        extended = job.unended and (_operates(asker) or asked.time_limit_s == job.spec.time_limit_s)
        if most is None or not extended or asked.time_limit_s is None or asked.time_limit_s <= most:
            return apply_queue_rule(self._pipeline.rules, asked, job.user)
        ruled = apply_queue_rule(self._pipeline.rules, replace(asked, time_limit_s=most), job.user)
        return ruled if isinstance(ruled, Refusal) else replace(ruled, time_limit_s=asked.time_limit_s)

    def _extension_refusal(
        self, job: Job, asked: JobSpec, given: job_inputs.Edit, now: float
    ) -> Refusal | None:
        """Return a refusal if the user may not extend the time limit of a running job; otherwise None.

        An operator always may. The owner may if three conditions hold: the configuration allows it, a
        forecast shows that no planned start of another job is delayed, and the quotas of GPU time are large
        enough.
        """
        if _operates(given.asker):
            return None
        if not self._pipeline.limits.owners_may_extend:
            hint = "[jobs] owners_may_extend is false. Ask an operator."
            return Refusal("not_allowed", "only operators may extend running jobs here", "time_limit_s", hint)
        if not given.delays_nobody:
            message = "it is not known whether the longer time limit would delay other jobs"
            return Refusal("conflict", message, "time_limit_s", "Try again, or ask an operator.")
        accounts = self._state.accounts
        more = accounts.gpu_time(job, asked.time_limit_s) - accounts.gpu_time(job, job.limit)
        need = (0, 0, 0, 0, 0, more, *(0 for _ in accounts.models))
        over = self._state.quotas.over_hard(job.user, asked, need, now)
        return None if over is None else Refusal("over_quota", str(over), "time_limit_s")

    def with_defaults(self, job: Job, spec: JobSpec, changed_fields: frozenset[str]) -> JobSpec:
        """Return the edited spec of a waiting job. If the default CPU and memory depend on one of
        `changed_fields`, such as `gpus`, compute the defaults again.
        """
        return self._sizes.refill(spec, self._placer_for(spec, job.user), changed_fields)

    def settle_defaults(self, now: float) -> None:
        """Compute provisional default sizes of waiting jobs again. Call this when a node has joined, because
        the node may be able to hold these jobs.
        """
        for number in self._sizes.waiting(lambda: self._state.jobs.values()):
            job = self._state.jobs.get(number)
            if job is None or job.state is not JobState.QUEUED or not has_provisional_size(job.spec):
                self._sizes.settled(number)
                continue
            spec = self.with_defaults(job, job.spec, frozenset(("nodes",)))
            if has_provisional_size(spec):
                continue
            self._sizes.settled(number)
            self._stopper.unclaim(job, "its defaults for CPU and memory are known now", now)
            self._cycles.forget(number)
            self._record(
                JobEdited(
                    *(number, now, spec, BY_CONTROLLER, changed_fields(job.spec, spec)),
                    *(job.wait.gates, job.wait.met, job.wait.lost, job.from_queue),
                )
            )

    def _in_project(self, asker: Requester | None, spec: JobSpec) -> JobSpec | Refusal:
        """Return the spec. Its project is "default" if the given project is not declared and `[scheduler]
        unknown_projects` is "default". Return a refusal if `asker` may not use the project.
        """
        return self._pipeline.rules.projects.admit(asker, spec, self._projects_set_live)

    def _projects_set_live(self) -> set[str]:
        """Return the projects for which operators have set a quota, weight or limit."""
        return self._state.quotas.projects_set_live() | self._state.shares.projects_set_live()

    def _allowed(
        self, asker: Requester | None, spec: JobSpec | Refusal, was: JobSpec | None = None
    ) -> JobSpec | Refusal:
        """Return the spec. Return a refusal if the spec exceeds a ceiling (the most that `asker` may
        request). If `spec` is already a refusal, return this refusal.

        For an edit, `was` is the spec before the edit.
        """
        if isinstance(spec, Refusal):
            return spec
        return self._pipeline.rules.ceilings.refusal(asker, spec, was) or spec

    def _placer_for(self, spec: JobSpec, user: str) -> Placer:
        """Return the placer of the scheduler profile that a job with this spec gets. A placer chooses nodes
        for jobs.
        """
        return self._cycles.named(profiles.profile_of(self._state.profiles, spec, user)).placer

    def _never(
        self, placer: Placer, spec: JobSpec, ask: ResourceRequest, from_queue: tuple[str, ...], user: str
    ) -> Refusal | None:
        """Return a refusal if the job could not run even on an empty cluster; otherwise None. Constraints
        that the job drops after some time (`relax`) are ignored.

        `from_queue` contains the node labels that the queue has added. These labels are never dropped.
        """
        lacking = never_available(self._state.licences.total, ask.licences)
        if lacking is not None:
            return lacking
        refusal = self._never_fits(placer, ask)
        if refusal is not None and spec.relax:
            return self._never_fits(placer, self._state.ask(without_relaxed(spec, from_queue), user))
        return refusal

    def _never_fits(self, placer: Placer, ask: ResourceRequest) -> Refusal | None:
        """Return a refusal if neither the nodes nor the nodes that machine pools could start can hold the
        request.
        """
        refusal = never_fits(placer, ask)
        # Leave out machine pools with taints that the job does not tolerate, because each new node of a pool
        # has these taints. The check of the present nodes ignores taints, because operators may remove them.
        tolerations = ask.part.tolerations
        pools = [
            each
            for each in self._pipeline.pool_nodes
            if not untolerated_taint(each.taints, tolerations, Effect.NO_SCHEDULE, Effect.NO_EXECUTE)
        ]
        if refusal is None or not pools:
            return refusal
        grown = with_hypothetical(placer.nodes, pools, ask.nodes or MOST_POOL_NODES)
        return refusal if never_fits(Placer(grown, placer.pipeline), ask) is not None else None

    def cancel(self, given: job_inputs.Cancel, now: float) -> Reply:
        job = self._state.jobs[given.job]
        if job.state.terminal:
            return Refusal("conflict", f"job {job.label} is {job.state.value} already", "job")
        refused = self.cascade_refusal(job, given.asker)
        if refused is not None:
            return refused
        if job.state is JobState.QUEUED:
            self._stopper.unclaim(job, f"cancelled by {given.by}", now)
            self._record(JobEnded(job.id, now, JobState.CANCELLED, Reason.USER, f"cancelled by {given.by}"))
        elif job.stopping is not Reason.USER:
            self._stopper.unclaim(job, f"cancelled by {given.by}", now)
            self._stopper.stop(job, Reason.USER, given.by, now)
        return Accepted((job.id,))

    def cascade_refusal(self, job: Job, asker: Requester | None) -> Refusal | None:
        """Return a refusal if the cancel of this job would also cancel a dependent job of a project to which
        the token of the caller does not apply. Otherwise return None.
        """
        if asker is None or asker.projects is None or not self._pipeline.waiting.cancel_hopeless:
            return None
        seen, left = {job.id}, [job]
        while left:
            current = left.pop()
            for target in self._dependencies.targets(current):
                if target[1] not in LOST_BY_CANCEL:
                    continue
                for number, _ in self._dependencies.waiting(target):
                    dependent = self._state.jobs[number]
                    if dependent.spec.project not in asker.projects:
                        message = (
                            f"cancelling job {job.label} would cancel job {dependent.label} of project "
                            f"{dependent.spec.project}, to which this token does not apply"
                        )
                        return Refusal("not_allowed", message, "job", "Cancel the job without this token.")
                    if number not in seen:
                        seen.add(number)
                        left.append(dependent)
        return None

    def preempt(self, given: job_inputs.Preempt, now: float) -> Reply:
        """Preempt a running job. The job saves a checkpoint if possible, ends, and is queued again. With
        `given.hold`, it is then held.
        """
        job = self._state.jobs[given.job]
        if not job.unended:
            return Refusal("conflict", f"job {job.label} is {job.state.value}: it holds no resources", "job")
        if job.stopping is not None:
            return Refusal("conflict", f"job {job.label} is being stopped already", "job")
        if given.hold:
            self._record(JobHeld(job.id, now, given.by, operator=given.by != job.user))
        self._stopper.stop(
            job, Reason.PREEMPTED, given.by, now, now + self._cycles.of(job).preemption.grace(job)
        )
        return Accepted((job.id,))

    def requeue(self, given: job_inputs.Requeue, now: float) -> Reply:
        """Stop the running attempt of a job and queue the job again.

        If the job succeeds before the stop order arrives, the job is completed and not queued again.
        """
        job = self._state.jobs[given.job]
        if job.state.terminal:
            message = f"job {job.label} is {job.state.value} already"
            return Refusal(
                "conflict", message, "job", "A job that has ended does not run again: submit it again."
            )
        if not job.unended:
            return Refusal("conflict", f"job {job.label} is {job.state.value} already", "job")
        if job.stopping is not None:
            return Refusal("conflict", f"job {job.label} is being stopped already", "job")
        self._stopper.stop(job, Reason.REQUEUED, given.by, now)
        return Accepted((job.id,))

    def hold(self, given: job_inputs.Hold, now: float) -> Reply:
        """Set a hold on a waiting job: the job does not start until the hold is released.

        If an operator holds the job of another user, the operator's hold replaces a hold that the user has
        set.
        """
        job = self._state.jobs[given.job]
        if job.state is not JobState.QUEUED:
            return Refusal(
                "conflict", f"job {job.label} is {job.state.value}; only queued jobs can be held", "job"
            )
        operator = _operates(given.asker) and given.by != job.user
        if not job.held or (operator and not job.operator_hold):
            self._stopper.unclaim(job, f"held by {given.by}", now)
            self._record(JobHeld(job.id, now, given.by, operator))
        return Accepted((job.id,))

    def release(self, given: job_inputs.Release, now: float) -> Reply:
        """Remove the hold of a waiting job. The job enters the queue when all of its gates are open."""
        job = self._state.jobs[given.job]
        if not job.held or job.state is not JobState.QUEUED:
            return Refusal("conflict", f"job {job.label} is not held", "job")
        if job.operator_hold and not _operates(given.asker):
            message = f"only operators may release job {job.label}: operator {job.operator_hold} holds it"
            return Refusal("not_allowed", message, "job", f"Ask {job.operator_hold} to release it.")
        self._record(JobReleased(job.id, now, given.by))
        return Accepted((job.id,))

    def note_start(self, given: controller_inputs.NoteStart, now: float) -> Reply:
        """Record a start estimate, unless enough estimates of the job are recorded. When the job starts, its
        start time is compared with the estimate.
        """
        job = self._state.jobs.get(given.job)
        waits = job is not None and job.state is JobState.QUEUED
        if waits and job is not None and should_record(job.foreseen, given.kind, now):
            self._record(StartEstimated(job.id, now, given.kind, given.start))
        return DONE

    def note_long_wait(self, given: controller_inputs.NoteLongWait, now: float) -> Reply:
        """Record that a waiting job has waited much longer than usual. The long wait of a job is recorded
        only once.
        """
        job = self._state.jobs.get(given.job)
        if job is not None and job.ready and not job.wait.alarmed:
            self._record(WaitAlarmed(job.id, now, now - job.ready_at, given.usual_s))
        return DONE


def key_refusal(key: str) -> Refusal | None:
    """Return a refusal if the idempotency key cannot be stored, otherwise None."""
    if is_storable(key) and len(key) <= MAX_KEY:
        return None
    return Refusal("invalid", f"must be Unicode text of at most {MAX_KEY} characters", "key")


def _operates(asker: Requester | None) -> bool:
    return asker is None or asker.operator
