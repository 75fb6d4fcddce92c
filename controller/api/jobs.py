"""Jobs: submit, list, show, cancel, hold, release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from controller.api.call import Call
from controller.api.errors import Rejected
from controller.api.outcomes import outcomes
from controller.api.views import job_view, moved_view, public
from controller.core import inputs
from controller.core.edits import edited
from controller.core.inputs import Input, Refusal
from controller.core.jobs import Job
from controller.core.records import job_of
from controller.nodes.link import NodeAway
from wire.api.jobs import (
    JobChange,
    JobDetail,
    JobList,
    JobView,
    PreemptAction,
    Preempted,
    SignalRequest,
    SubmitRequest,
    Submitted,
)
from wire.api.reports import Foreseen
from wire.frames import Signal
from wire.spec import SIGNALS, JobSpec, problems, signal_name
from wire.words import JobState


async def submit(call: Call) -> Submitted:
    """Queue a job or an array; it is on disk when this answers."""
    request: SubmitRequest = call.body
    caller = call.caller
    if not caller.owns(caller.user):
        raise Rejected(
            Refusal("not_allowed", "only operators may submit here", hint="[access] others is 'view'.")
        )
    if len(request.key) > 200 or not request.key.isprintable():
        raise Rejected(Refusal("invalid", "must be printable and at most 200 characters", "key"))
    user = caller.user if not request.as_user else await call.identity.acting(caller, request.as_user)
    known = await outcomes(call, request.spec.after) if _readable(request.spec) else {}
    reply = await call.daemon.ask(inputs.Submit(request.spec, user, request.key, known))
    if isinstance(reply, Refusal):
        raise Rejected(replace(reply, where=reply.where and f"spec.{reply.where}"))
    return Submitted(reply.jobs, str(reply.jobs[0]))


def _readable(spec: JobSpec) -> bool:
    """Are the labels in it labels? What else is wrong the engine says."""
    return bool(spec.after) and not any(where.startswith("after") for where, _ in problems(spec))


async def listing(call: Call) -> JobList:
    """Jobs by id: those that live and those that ended lately; all there ever were with history=1."""
    states = frozenset(map(JobState, call.query["state"]))
    user, after, limit = call.query["user"], call.query["after"], call.query["limit"]
    profile = call.query["profile"]

    def wanted(job: Job) -> bool:
        return (
            (not states or job.state in states)
            and (not user or job.user == user)
            and (not profile or job.profile == profile)
        )

    if call.query["history"]:
        return await _history(call, wanted, states, user, after, limit)
    await call.daemon.settled()
    found = [job for job in call.daemon.state.jobs.values() if wanted(job)]
    total = len(found)
    if after:
        found = [job for job in found if job.id > after]
    found.sort(key=lambda job: job.id)
    following = found[limit - 1].id if len(found) > limit else None
    views = tuple(job_view(call.daemon.engine, job) for job in found[:limit])
    return JobList(views, call.daemon.seq, total, following)


async def _history(
    call: Call,
    wanted: Callable[[Job], bool],
    states: frozenset[JobState],
    user: str,
    after: int,
    limit: int,
) -> JobList:
    """Newest first out of the store, with the state's word on every job it still knows."""
    names = [state.value for state in states] or None
    rows = await call.daemon.read(lambda: call.daemon.store.jobs(names, user or None, after or None, limit))
    await call.daemon.settled()
    known = call.daemon.state.jobs
    jobs = [known.get(row.id) or job_of(row) for row in rows]
    views = tuple(job_view(call.daemon.engine, job) for job in jobs if wanted(job))
    following = rows[-1].id if len(rows) == limit else None
    return JobList(views, call.daemon.seq, call.daemon.state.next_job - 1, following)


async def show(call: Call) -> JobDetail:
    """One job: what it asked for, and why it is where it is."""
    job = await call.job()
    engine = call.daemon.engine
    spec = job.spec if call.caller.owns(job.user) else public(job.spec)
    why = engine.explain(job, call.daemon.now())
    history = tuple(Preempted(each.at, each.attempt, each.by, each.gpu_hours) for each in job.preemptions)
    predicted, planned = engine.predicted(job), job.planned_s if job.unended else None
    moves = tuple(moved_view(job, each) for each in job.moves)
    foreseen = tuple(Foreseen(each.kind, each.made_at, each.start) for each in job.foreseen)
    view = job_view(engine, job)
    return JobDetail(
        view, spec, why, job.checkpoint, history, predicted, planned, foreseen=foreseen, moves=moves
    )


async def cancel(call: Call) -> JobView:
    """End a job, whatever it is doing."""
    return await _change(call, "cancel", inputs.Cancel)


async def change(call: Call) -> JobView:
    """Change what a job asks for; what is wrong with it is said as for a submit."""
    asked: JobChange = call.body
    job = await call.own_job("change")
    need_known(call, job)
    await call.ask(inputs.Edit(job.id, call.caller.user, asked.changes, await known_to(call, job, asked)))
    return job_view(call.daemon.engine, job)


async def known_to(call: Call, job: Job, asked: JobChange) -> dict[str, JobState]:
    """How those ended that the job is to wait for, if they are readable and no longer at hand."""
    spec = edited(job, asked.changes) if "after" in asked.changes else None
    return await outcomes(call, spec.after) if isinstance(spec, JobSpec) else {}


async def signal(call: Call) -> JobView:
    """Send a signal to the processes of a running job that have a handler for it; it is not written down."""
    job = await call.own_job("send signals to")
    asked: SignalRequest = call.body
    name = signal_name(asked.signal)
    if not name:
        raise Rejected(Refusal("invalid", f"must be one of {', '.join(SIGNALS)}", "signal"))
    if job.state is not JobState.RUNNING:
        raise Rejected(Refusal("conflict", f"job {job.label} is not running: it is {job.state.value}", "job"))
    links = call.daemon.links
    for member in job.running:
        node = call.daemon.state.nodes.get(member.allocation.node)
        if node is None or not node.up or node.name not in links:
            raise NodeAway(f"node {member.allocation.node} is away")
    for member in job.running:
        links[member.allocation.node].send(Signal(job.id, job.attempt, name))
    return job_view(call.daemon.engine, job)


async def hold(call: Call) -> JobView:
    """Keep a queued job from starting."""
    return await _change(call, "hold", inputs.Hold)


async def release(call: Call) -> JobView:
    """Let a held job start again."""
    return await _change(call, "release", inputs.Release)


async def preempt(call: Call) -> JobView:
    """End the attempt of a job that runs, and queue the job again in its old place."""
    call.need_operator("preempt jobs")
    action: PreemptAction = call.body
    job = await call.job()
    need_known(call, job)
    await call.ask(inputs.Preempt(job.id, call.caller.user, action.hold))
    return job_view(call.daemon.engine, job)


async def _change(call: Call, what: str, make: Callable[[int, str], Input]) -> JobView:
    job = await call.own_job(what)
    need_known(call, job)
    await call.ask(make(job.id, call.caller.user))
    return job_view(call.daemon.engine, job)


def need_known(call: Call, job: Job) -> None:
    """Refuse what is to be done to a job that has left the state: it has ended, and changes no more."""
    if job.id not in call.daemon.state.jobs:
        raise Rejected(Refusal("conflict", f"job {job.label} is {job.state.value} already", "job"))
