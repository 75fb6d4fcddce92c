"""Routes of workloads: submit, preview, list, show, cancel, retry."""

from __future__ import annotations

from dataclasses import replace

from controller.api.handlers.jobs.dependency_outcomes import outcomes
from controller.api.handlers.service.known_names import need_user
from controller.api.server.access import CANCEL, RETRY, Need, Owner, refusal
from controller.api.server.errors import Rejected, rejected
from controller.api.server.request import Call
from controller.api.views.workloads import workload_view
from controller.core.input_handlers.workload_commands import no_such_workload
from controller.core.model.decision.decision import Refusal
from controller.core.model.inputs import job_inputs
from controller.core.model.inputs.input import Input
from controller.core.state.workloads import Workload
from wire.job.start_conditions import Dependency, condition_problems
from wire.workload.bodies import (
    PlannedJob,
    WorkloadAnswer,
    WorkloadList,
    WorkloadPreview,
    WorkloadRequest,
    WorkloadRetry,
    WorkloadView,
)


async def submit(call: Call, request: WorkloadRequest) -> WorkloadAnswer:
    """Queue all jobs of a workload, or none. The jobs are on disk before the answer is sent."""
    if len(request.key) > 200 or not request.key.isprintable():
        raise rejected("invalid", "must be printable and at most 200 characters", "key")
    given = await _submit_of(call, request)
    if given.user != call.caller.user:
        await need_user(call, given.user, "as_user")
    return await _ordered(call, given)


async def preview(call: Call, request: WorkloadRequest) -> WorkloadPreview:
    """Return the jobs that a submit would queue, with all defaults, or the refusal. Nothing is queued."""
    given = await _submit_of(call, request)
    checked = call.daemon.engine.workloads.check(given, call.daemon.now())
    if isinstance(checked, Refusal):
        raise Rejected(_in_spec(checked))
    return WorkloadPreview(
        tuple(
            PlannedJob(
                task.name,
                job.index,
                tuple(dict.fromkeys(each.task for each in task.after)),
                job.admitted.spec,
            )
            for task, jobs in checked
            for job in jobs
        )
    )


async def listing(call: Call) -> WorkloadList:
    """List workloads by id; with all=1 also workloads whose jobs have all ended."""
    await call.daemon.settled()
    state, ends = call.daemon.state, call.daemon.expected_times.known().ends
    user, after, limit = call.query["user"], call.query["after"], call.query["limit"]
    found = [
        workload
        for number, workload in sorted(state.workloads.by_id.items())
        if number > after
        and (not user or workload.user == user)
        and (call.query["all"] or workload.ended < workload.total)
    ]
    views = tuple(
        workload_view(state, each, ends.get(("workload", each.id)), labels=False) for each in found[:limit]
    )
    return WorkloadList(views, call.daemon.seq)


async def show(call: Call) -> WorkloadView:
    """Show one workload with its tasks and its expected end."""
    await call.daemon.settled()
    workload = _named(call)
    ends = (await call.daemon.expected_times.fresh()).ends if workload.ended < workload.total else {}
    return workload_view(call.daemon.state, workload, ends.get(("workload", workload.id)), labels=True)


async def cancel(call: Call) -> WorkloadAnswer:
    """Cancel all jobs of a workload that have not ended."""
    workload = await _permitted(call, CANCEL)
    return await _ordered(call, job_inputs.CancelWorkload(workload.id, call.caller.user, call.asker))


async def retry(call: Call, request: WorkloadRetry) -> WorkloadAnswer:
    """Queue new jobs in place of failed jobs, and of dependent jobs that were cancelled after a failure."""
    workload = await _permitted(call, RETRY)
    return await _ordered(
        call, job_inputs.RetryWorkload(workload.id, call.caller.user, request.cancelled, call.asker)
    )


async def _submit_of(call: Call, request: WorkloadRequest) -> job_inputs.SubmitWorkload:
    caller = call.caller
    user = caller.user if not request.as_user else await call.identity.acting(caller, request.as_user)
    after: dict[Dependency, None] = {}
    for task in request.spec.tasks:
        if task.spec.after and not any(
            where.startswith("after") for where, _ in condition_problems(task.spec)
        ):
            after.update(dict.fromkeys(task.spec.after))
    known = await outcomes(call, tuple(after))
    return job_inputs.SubmitWorkload(request.spec, user, request.key, known, call.asker)


async def _ordered(call: Call, given: Input) -> WorkloadAnswer:
    """Pass a command about a workload to the engine. Return the workload after the command, and the ids of
    the jobs that the command has queued or cancelled.
    """
    reply = await call.daemon.ask(given)
    if isinstance(reply, Refusal):
        raise Rejected(_in_spec(reply) if isinstance(given, job_inputs.SubmitWorkload) else reply)
    state = call.daemon.state
    workload = state.workloads.by_id[reply.workload or 0]
    return WorkloadAnswer(workload_view(state, workload, None, labels=True), reply.jobs)


def _in_spec(refused: Refusal) -> Refusal:
    return replace(refused, where=refused.where and f"spec.{refused.where}")


async def _permitted(call: Call, need: Need) -> Workload:
    """Return the workload that the URL names. Raise Rejected if the caller does not have the right `need` for
    the workload.
    """
    await call.daemon.settled()
    workload = _named(call)
    privileged = await call.identity.privileged_user(workload.user)
    state = call.daemon.state
    jobs = [state.jobs.get(job) for task in workload.tasks.values() for job in task.ids()]
    # Check every project of the workload, because the caller may have the right for some of them only.
    for project in {job.spec.project for job in jobs if job is not None} or {""}:
        refused = refusal(need, call.caller, Owner(workload.user, privileged, project))
        if refused is not None:
            raise Rejected(refused)
    return workload


def _named(call: Call) -> Workload:
    text = call.path["workload"]
    known = text.isascii() and text.isdigit() and len(text) < 19
    found = call.daemon.state.workloads.by_id.get(int(text)) if known else None
    if found is None:
        raise Rejected(no_such_workload(text))
    return found
