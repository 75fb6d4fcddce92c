"""Routes of jobs: submit, list, show, change, cancel, hold, release, preempt, requeue, signal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from controller.api.handlers.jobs.dependency_outcomes import outcomes
from controller.api.handlers.jobs.extensions import CheckedChanges, check_extension
from controller.api.handlers.jobs.reasons import explained, why
from controller.api.handlers.service.known_names import need_user
from controller.api.server.access import READ_SPEC
from controller.api.server.errors import Rejected, rejected
from controller.api.server.request import Call
from controller.api.views.job_groups import folded
from controller.api.views.job_stats import job_stats
from controller.api.views.queue_places import queue_places
from controller.api.views.resources import job_view, moved_view, public_spec
from controller.core.input_handlers.job_edits import apply_changes
from controller.core.model.decision.decision import Refusal
from controller.core.model.inputs import job_inputs
from controller.core.model.inputs.input import Input
from controller.core.model.job import Job
from controller.core.state.job_and_node_rows import load_job
from controller.nodes.link import NodeAway
from controller.questions.deadline_note import deadline_note
from controller.questions.engine_copy.engine_copy import QuestionRefused
from wire.agent.orders import Save, Signal
from wire.api.jobs import (
    JobChange,
    JobDetail,
    JobGroup,
    JobList,
    JobView,
    KeepRequest,
    PreemptAction,
    Preempted,
    QueuePlace,
    SignalRequest,
    StepRecorded,
    StepRequest,
    SubmitRequest,
    Submitted,
)
from wire.api.service.job_stats import JobStats
from wire.api.service.reports import Foreseen
from wire.job.spec import SIGNALS, JobSpec, signal_name, spec_problems
from wire.job.steps import Step
from wire.names import JobState
from wire.text import printable

YEAR_S = 31_536_000.0


async def submit(call: Call, request: SubmitRequest) -> Submitted:
    """Queue a job or an array. The jobs are stored on disk before the answer is sent."""
    caller = call.caller
    if len(request.key) > 200 or not request.key.isprintable():
        raise rejected("invalid", "must be printable and at most 200 characters", "key")
    user = caller.user if not request.as_user else await call.identity.acting(caller, request.as_user)
    if user != caller.user:
        await need_user(call, user, "as_user")
    before = await _submitted_before(call, user, request.key)
    if before:
        return Submitted(before, str(before[0]))
    _need_engine(call, request.spec, user)
    known = await outcomes(call, request.spec.after) if _has_valid_dependencies(request.spec) else {}
    reply = await call.daemon.ask(job_inputs.Submit(request.spec, user, request.key, known, call.asker))
    if isinstance(reply, Refusal):
        raise Rejected(replace(reply, where=reply.where and f"spec.{reply.where}"))
    notes = reply.notes
    if request.spec.deadline_at is not None:
        notes = (*notes, *await _deadline_notes(call, user, reply.jobs[-1]))
    return Submitted(reply.jobs, str(reply.jobs[0]), notes)


def _need_engine(call: Call, spec: JobSpec, user: str) -> None:
    """Refuse a job that the engine which it names can never run."""
    refused = call.daemon.engines.refusal(spec, user)
    if refused:
        hint = "Change the request, or submit the job without this engine."
        raise rejected("invalid", refused, "spec.selector.engine", hint)


async def _deadline_notes(call: Call, user: str, job: int) -> tuple[str, ...]:
    """Return a sentence about the job's deadline as a tuple. If the job will miss the deadline, the sentence
    names a change that would help.

    The result is empty if the job has no deadline, or if the forecast takes too long.
    """
    try:
        note = await call.daemon.questions.ask(user, deadline_note, job, now=call.daemon.now)
    except QuestionRefused:
        return ()
    return () if note is None else (note,)


async def preview(call: Call, request: SubmitRequest) -> JobSpec:
    """Return the job that a submit would queue, with all defaults, or the refusal. Nothing is queued."""
    user = (
        call.caller.user if not request.as_user else await call.identity.acting(call.caller, request.as_user)
    )
    _need_engine(call, request.spec, user)
    known = await outcomes(call, request.spec.after) if _has_valid_dependencies(request.spec) else {}
    given = job_inputs.Submit(request.spec, user, "", known, call.asker)
    reply = call.daemon.engine.preview(given, call.daemon.now())
    if isinstance(reply, Refusal):
        raise Rejected(replace(reply, where=reply.where and f"spec.{reply.where}"))
    return reply


async def _submitted_before(call: Call, user: str, key: str) -> tuple[int, ...]:
    """Return from the store the ids of the jobs that an earlier submit with this idempotency key made.

    The result is empty if there was no earlier submit with this key. It is also empty if the jobs of that
    submit are still in memory, because the engine then finds the repeated key itself.
    """
    state, store = call.daemon.state, call.daemon.store
    if not key or not state.forgot or (user, key) in state.keys:
        return ()
    return await call.daemon.read(lambda: store.numbers_of_key(user, key))


def _has_valid_dependencies(spec: JobSpec) -> bool:
    return bool(spec.after) and not any(where.startswith("after") for where, _ in spec_problems(spec))


async def listing(call: Call) -> JobList:
    """List unended and recently ended jobs by id; with history=1 all jobs in the store, newest first."""
    states = frozenset(map(JobState, call.query["state"]))
    user, after, limit = call.query["user"], call.query["after"], call.query["limit"]
    profile = call.query["profile"]

    def wanted(job: Job) -> bool:
        return (
            (not states or job.state in states)
            and (not user or job.user == user)
            and (not profile or job.profile == profile)
        )

    daemon = call.daemon
    groups: list[JobGroup] = []
    first = call.query["places"] and not after
    starts = (await daemon.expected_times.recent()).starts if first and len(daemon.state.queue) else {}
    places: dict[int, QueuePlace] = {}
    if call.query["history"]:
        names = [state.value for state in states] or None
        rows = await daemon.read(lambda: daemon.store.jobs(names, user or None, after or None, limit))
        await daemon.settled()
        found = [daemon.state.jobs.get(row.id) or load_job(row) for row in rows]
        page, total = [job for job in found if wanted(job)], daemon.state.next_job - 1
        following = rows[-1].id if len(rows) == limit else None
    else:
        await daemon.settled()
        found = [job for job in daemon.state.jobs.values() if wanted(job)]
        total = len(found)
        places = queue_places(daemon.state, starts, daemon.now()) if first else {}
        if call.query["folded"]:
            ends = daemon.expected_times.known().ends
            groups, found = folded(daemon.state, found, ends, places)
        behind = sorted((job for job in found if job.id > after), key=lambda job: job.id)
        page = behind[:limit]
        following = page[-1].id if len(behind) > limit else None
    views = tuple(job_view(daemon.engine, job, daemon.agents.running_usage.of(job)) for job in page)
    shown = () if after else tuple(groups)
    listed = {job.id for job in found}
    waiting = tuple(place for place in places.values() if place.job in listed)
    return JobList(views, daemon.seq, total, following, shown, waiting)


async def show(call: Call) -> JobDetail:
    """Show one job: its request, its state, and why the job waits."""
    may_read = await call.may(READ_SPEC, await call.job())
    reason = await why(call, await call.job())
    # Read the job again, because it may have changed while the reason for its waiting was computed.
    job = await call.job()
    engine = call.daemon.engine
    spec = job.spec if may_read else public_spec(job.spec)
    if not job.ready:
        # Compute the reason again, because the job is no longer ready to start: the job may have started,
        # ended or been held in the meantime.
        reason = explained(call, job)
    history = tuple(Preempted(each.at, each.attempt, each.by, each.gpu_hours) for each in job.preemptions)
    predicted, planned = engine.predicted(job), job.planned_s if job.unended else None
    moves = tuple(moved_view(job, each) for each in job.moves)
    foreseen = tuple(Foreseen(each.kind, each.made_at, each.start) for each in job.foreseen)
    view = job_view(engine, job, call.daemon.agents.running_usage.of(job))
    return JobDetail(
        view, spec, reason, job.checkpoint, history, predicted, planned, foreseen=foreseen, moves=moves
    )


async def stats(call: Call) -> JobStats:
    """Show the resources that the last attempt of a job requested and used, and which options to change."""
    job, daemon = await call.job(), call.daemon
    return job_stats(daemon.state, job, daemon.agents.running_usage.of(job), daemon.now())


async def cancel(call: Call) -> JobView:
    """Cancel a job that has not ended."""
    return await _change(call, partial(job_inputs.Cancel, asker=call.asker))


async def change(call: Call, request: JobChange) -> JobView:
    """Change the request of a job. The new request passes the same checks as a submit."""
    job = await call.job()
    need_known(call, job)
    known = await known_to(call, job, request)
    checked = await check_extension(call, job, request.changes, request.extend_s)
    if isinstance(checked, Refusal):
        raise Rejected(checked)
    await call.ask(edit_of(call, job, checked, known))
    return job_view(call.daemon.engine, job)


def edit_of(call: Call, job: Job, checked: CheckedChanges, known: dict[str, JobState]) -> job_inputs.Edit:
    """Return the engine's input that makes the changes in `checked`. `known` is the result of `known_to` for
    this change.
    """
    return job_inputs.Edit(
        job.id,
        call.caller.user,
        checked.changes,
        known,
        asker=call.asker,
        delays_nobody=checked.delays_nobody,
    )


async def known_to(call: Call, job: Job, request: JobChange) -> dict[str, JobState]:
    """Return a dict from display id (17 or 12_3) to final state, for the ended jobs on which the job depends
    after the change.

    Only jobs that are in the store and no longer in memory are included.
    """
    spec = apply_changes(job, request.changes) if "after" in request.changes else None
    return await outcomes(call, spec.after) if isinstance(spec, JobSpec) else {}


async def signal(call: Call, request: SignalRequest) -> JobView:
    """Send a signal to the processes of a running job. No journal entry is written."""
    job = await call.job()
    name = signal_name(request.signal)
    step = request.step
    if step is not None and request.signal.upper().removeprefix("SIG") == "KILL":
        name = "KILL"
    if not name:
        raise rejected("invalid", f"must be one of {', '.join(SIGNALS)}", "signal")
    if step is not None and not any(
        each.number == step and each.ended_at is None for each in _steps(call, job)
    ):
        raise rejected("not_found", f"no step {job.label}.{step} runs", "step")
    by = call.caller.user if step is not None and request.cancel else ""
    return _send_to_members(call, job, Signal(job.id, job.attempt, name, request.to, step, by))


def _steps(call: Call, job: Job) -> Iterator[Step]:
    return call.daemon.agents.running_steps.of(job)


async def record_step(call: Call, request: StepRequest) -> StepRecorded:
    """Record a step (one srun command) of a running job, for an srun on a host without an agent.

    The agent of the job's first node records the step. The journal gets the step only at the end of the
    attempt.
    """
    job = await call.job()
    if job.state is not JobState.RUNNING:
        raise rejected("conflict", f"job {job.label} is not running: it is {job.state.value}", "job")
    answer = await call.daemon.agents.step_relay.record(job, replace(request.step, pid=0))
    if answer.error:
        raise rejected("not_found", answer.error, "step")
    return StepRecorded(answer.number)


async def checkpoint(call: Call) -> JobView:
    """Order a running job to save a checkpoint. The job continues to run.

    A journal entry is written only when the agent has found the checkpoint.
    """
    job = await call.job()
    if job.state.terminal:
        raise rejected("conflict", f"job {job.label} has ended: it is {job.state.value}", "job")
    if not job.spec.saves:
        message = f"job {job.label} has neither a checkpoint command nor a checkpoint signal"
        hint = "Submit the job with --checkpoint-command or --checkpoint-signal."
        raise Rejected(Refusal("conflict", message, "job", hint))
    return _send_to_members(call, job, Save(job.id, job.attempt))


def _send_to_members(call: Call, job: Job, frame: Signal | Save) -> JobView:
    """Send a message to the agent of each node on which the job runs."""
    if job.state is not JobState.RUNNING:
        raise rejected("conflict", f"job {job.label} is not running: it is {job.state.value}", "job")
    links = call.daemon.agents.links
    for member in job.running:
        node = call.daemon.state.nodes.get(member.allocation.node)
        if node is None or not node.up or node.name not in links:
            raise NodeAway(f"node {member.allocation.node} is away")
    for member in job.running:
        links[member.allocation.node].send(frame)
    return job_view(call.daemon.engine, job)


async def hold(call: Call) -> JobView:
    """Hold a queued job, so that the job does not start until a release."""
    return await _change(call, partial(job_inputs.Hold, asker=call.asker))


async def release(call: Call) -> JobView:
    """Release a held job."""
    return await _change(call, partial(job_inputs.Release, asker=call.asker))


async def keep(call: Call, request: KeepRequest) -> JobView:
    """Keep a running job for a time although its GPUs are idle.

    For this time, the job is neither flagged nor ended because of its idle GPUs.
    """
    if not 0 < request.for_s <= YEAR_S:
        raise rejected("invalid", "must be more than 0 seconds and at most a year", "for_s")
    if len(request.why) > 200:
        raise rejected("invalid", "must have at most 200 characters", "why")
    why = printable(request.why)
    return await _change(call, partial(job_inputs.KeepIdle, for_s=request.for_s, why=why, asker=call.asker))


async def preempt(call: Call, action: PreemptAction) -> JobView:
    """Preempt a running job: end its attempt, and queue the job again at its old position."""
    return await _change(call, partial(job_inputs.Preempt, hold=action.hold))


async def requeue(call: Call) -> JobView:
    """End the attempt of a running job, and queue the job again at its old position."""
    return await _change(call, job_inputs.Requeue)


async def _change(call: Call, make: Callable[[int, str], Input]) -> JobView:
    job = await call.job()
    need_known(call, job)
    await call.ask(make(job.id, call.caller.user))
    return job_view(call.daemon.engine, job)


def need_known(call: Call, job: Job) -> None:
    """Raise Rejected if the job ended so long ago that it is no longer in memory, because the engine can then
    not change the job.
    """
    if job.id not in call.daemon.state.jobs:
        raise rejected("conflict", f"job {job.label} is {job.state.value} already", "job")
