"""What users ask: to submit, change, cancel, hold, release and preempt jobs."""

from __future__ import annotations

from collections.abc import Callable

from controller.core import events, inputs, losses, profiles
from controller.core.admission import added_labels, admit, over_quota
from controller.core.edits import changed, edited, labels_of_queue
from controller.core.ender import Ender
from controller.core.events import Event
from controller.core.explain import explain_never
from controller.core.foresight import worth_keeping
from controller.core.inputs import DONE, Accepted, Refusal, Reply, no_such_job
from controller.core.keeper import Keeper
from controller.core.licences import unobtainable
from controller.core.placement import Placer
from controller.core.plugin import Pipeline
from controller.core.requests import Ask, relaxed
from controller.core.schedulers import Schedulers
from controller.core.state import State
from wire.spec import JobSpec, array_indices, problems, storable
from wire.words import JobState, Reason

MAX_KEY = 200
"""Characters of an idempotency key."""


class Clerk:
    """Takes jobs and changes to them, or says what is wrong with them."""

    def __init__(
        self,
        state: State,
        pipeline: Pipeline,
        schedulers: Schedulers,
        keeper: Keeper,
        ender: Ender,
        record: Callable[[Event], None],
    ) -> None:
        self._state = state
        self._pipeline = pipeline
        self._schedulers = schedulers
        self._keeper = keeper
        self._ender = ender
        self._record = record

    def submit(self, given: inputs.Submit, now: float) -> Reply:
        """Take a job, or all elements of an array, if it could ever start and its owner may have it."""
        known = self._state.keys.get((given.user, given.key)) if given.key else None
        if known:
            return Accepted(tuple(known))
        if not storable(given.key) or len(given.key) > MAX_KEY:
            return Refusal("invalid", f"must be Unicode text of at most {MAX_KEY} characters", "key")
        wrong = problems(given.spec)
        if wrong:
            where, message = wrong[0]
            return Refusal("invalid", message, where)
        spec = admit(self._pipeline.rules, given.spec, given.user)
        from_queue = () if isinstance(spec, Refusal) else added_labels(given.spec, spec)
        if not isinstance(spec, Refusal):
            spec = profiles.refuse(self._state.profiles, spec, given.user) or spec
        if not isinstance(spec, Refusal):
            spec = losses.with_lease(self._pipeline.losses, spec)
        admitted = spec if isinstance(spec, Refusal) else self._keeper.admit(spec, given.known, now)
        if isinstance(admitted, Refusal):
            return admitted
        spec = admitted.spec
        ask, indices = self._state.ask(spec), array_indices(spec.array) if spec.array is not None else [None]
        placer = self._placer_for(spec, given.user)
        refusal = self._never(placer, spec, ask, from_queue) or over_quota(
            self._state.quotas, placer, spec, ask, given.user, len(indices), now
        )
        if refusal is not None:
            return refusal
        first = self._state.next_job
        array = None if spec.array is None else first
        met, lost = admitted.met, admitted.lost
        for number, index in enumerate(indices):
            gates, job = admitted.gates_of(number), first + number
            self._record(
                events.JobQueued(
                    job, now, spec, given.user, given.key, array, index, gates, met, lost, from_queue
                )
            )
        return Accepted(tuple(range(first, first + len(indices))))

    def edit(self, given: inputs.Edit, now: float) -> Reply:
        """Let a job ask for something else, under the rules of a submit."""
        job = self._state.jobs.get(given.job)
        if job is None:
            return no_such_job(given.job)
        if job.state.terminal:
            return Refusal("conflict", f"job {job.label} is {job.state.value} already", "job")
        asked = edited(job, given.changes)
        if isinstance(asked, Refusal):
            return asked
        spec = admit(self._pipeline.rules, asked, job.user)
        if not isinstance(spec, Refusal) and profiles.moves(job.spec, spec):
            spec = profiles.refuse(self._state.profiles, spec, job.user) or spec
        if isinstance(spec, Refusal):
            return spec
        from_queue = labels_of_queue(job, given.changes, asked, spec)
        spec = losses.with_lease(self._pipeline.losses, spec)
        admitted = self._keeper.readmit(job, spec, given.known, now)
        if isinstance(admitted, Refusal):
            return admitted
        spec, ask = admitted.spec, self._state.ask(admitted.spec)
        fields = changed(job.spec, spec)
        if not fields:
            return Accepted((job.id,))
        moves = int((spec.project, spec.queue) != (job.spec.project, job.spec.queue))
        other = spec.profile != job.spec.profile
        if moves or other or ask != job.ask or spec.time_limit_s != job.spec.time_limit_s:
            placer = self._placer_for(spec, job.user)
            refusal = self._never(placer, spec, ask, from_queue) or over_quota(
                self._state.quotas, placer, spec, ask, job.user, moves, now, job.spec
            )
            if refusal is not None:
                return refusal
        if job.state is JobState.QUEUED:
            self._ender.unclaim(job, f"a change by {given.by}", now)
            self._schedulers.forget(job.id)
        gates, met, lost = admitted.gates, admitted.met, admitted.lost
        self._record(events.JobEdited(job.id, now, spec, given.by, fields, gates, met, lost, from_queue))
        return Accepted((job.id,))

    def _placer_for(self, spec: JobSpec, user: str) -> Placer:
        """That of the profile which the job has, or will have."""
        return self._schedulers.named(profiles.profile_of(self._state.profiles, spec, user)).placer

    def _never(self, placer: Placer, spec: JobSpec, ask: Ask, from_queue: tuple[str, ...]) -> Refusal | None:
        """Why it could never start, not even when it does without what it can do without."""
        lacking = unobtainable(self._state.licences.total, ask.licences)
        if lacking is not None:
            return lacking
        refusal = explain_never(placer, ask)
        if refusal is not None and spec.relax:
            return explain_never(placer, self._state.ask(relaxed(spec, from_queue)))
        return refusal

    def cancel(self, given: inputs.Cancel, now: float) -> Reply:
        """End a job, whatever it does."""
        job = self._state.jobs.get(given.job)
        if job is None:
            return no_such_job(given.job)
        if job.state.terminal:
            return Refusal("conflict", f"job {job.label} is {job.state.value} already", "job")
        if job.state is JobState.QUEUED:
            self._ender.unclaim(job, f"cancelled by {given.by}", now)
            self._record(
                events.JobEnded(job.id, now, JobState.CANCELLED, Reason.USER, f"cancelled by {given.by}")
            )
        elif job.stopping is not Reason.USER:
            self._ender.unclaim(job, f"cancelled by {given.by}", now)
            self._ender.stop(job, Reason.USER, given.by, now)
        return Accepted((job.id,))

    def preempt(self, given: inputs.Preempt, now: float) -> Reply:
        """Let a running job make room and wait again."""
        job = self._state.jobs.get(given.job)
        if job is None:
            return no_such_job(given.job)
        if not job.unended:
            return Refusal("conflict", f"job {job.label} is {job.state.value}: it holds nothing", "job")
        if job.stopping is not None:
            return Refusal("conflict", f"job {job.label} is being stopped already", "job")
        if given.hold:
            self._record(events.JobHeld(job.id, now, given.by))
        self._ender.stop(
            job, Reason.PREEMPTED, given.by, now, now + self._schedulers.of(job).preemption.grace(job)
        )
        return Accepted((job.id,))

    def hold(self, given: inputs.Hold, now: float) -> Reply:
        """Let a waiting job wait until it is released."""
        job = self._state.jobs.get(given.job)
        if job is None:
            return no_such_job(given.job)
        if job.state is not JobState.QUEUED:
            return Refusal("conflict", f"job {job.label} is {job.state.value}; only queued jobs wait", "job")
        if not job.held:
            self._ender.unclaim(job, f"held by {given.by}", now)
            self._record(events.JobHeld(job.id, now, given.by))
        return Accepted((job.id,))

    def release(self, given: inputs.Release, now: float) -> Reply:
        """Let a held job have its turn again."""
        job = self._state.jobs.get(given.job)
        if job is None:
            return no_such_job(given.job)
        if not job.held or job.state is not JobState.QUEUED:
            return Refusal("conflict", f"job {job.label} is not held", "job")
        self._record(events.JobReleased(job.id, now, given.by))
        return Accepted((job.id,))

    def note_start(self, given: inputs.NoteStart, now: float) -> Reply:
        """Keep what somebody was told of a start, to be scored when it comes."""
        job = self._state.jobs.get(given.job)
        waits = job is not None and job.state is JobState.QUEUED
        if waits and job is not None and worth_keeping(job.foreseen, given.kind, now):
            self._record(events.StartEstimated(job.id, now, given.kind, given.start))
        return DONE
