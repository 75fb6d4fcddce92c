"""Carries out one action, such as cancel or hold, on many jobs in one request. A refusal for one job does not
affect the other jobs.

For each job, the engine gets one input (a command such as Cancel). The engine carries an input out
completely, or refuses it. The changes of all jobs are written to the store in as few transactions as
possible.
"""

from __future__ import annotations

import asyncio

from controller.api.handlers.jobs.extensions import CheckedChanges, check_extension
from controller.api.handlers.jobs.jobs import edit_of, known_to, need_known
from controller.api.server.access import CANCEL, HOLD, PREEMPT, RELEASE, REQUEUE, SET
from controller.api.server.errors import Rejected, problem_of, rejected
from controller.api.server.request import Call
from controller.api.views.resources import job_view
from controller.core.input_handlers.bulk_orders import MakeInput, active_jobs, maker_of
from controller.core.model.decision.decision import Refusal
from controller.core.model.job import Job
from controller.core.state.job_and_node_rows import load_job
from wire.api.job_selection import (
    AllJobs,
    ArrayElements,
    InvalidSelection,
    JobRange,
    JobsOf,
    NewestJob,
    parse_selection,
)
from wire.api.jobs import JobChange, JobRefused, JobsAnswer, JobsOrder
from wire.names import JobState
from wire.text import printable

MOST = 10_000
"""The most jobs in one request. This is also the size of the largest array."""

NEEDS = {
    "cancel": CANCEL,
    "hold": HOLD,
    "release": RELEASE,
    "preempt": PREEMPT,
    "requeue": REQUEUE,
    "set": SET,
}
"""For each action: the right that the caller needs for every job of the request."""


async def carry_out(call: Call, order: JobsOrder) -> JobsAnswer:
    """Cancel, hold, release, preempt, requeue or change many jobs.

    Each job may be refused separately.
    """
    if order.action not in NEEDS:
        raise rejected("invalid", f"must be one of {', '.join(NEEDS)}", "action")
    need = NEEDS[order.action]
    await call.permit(need)
    await call.daemon.settled()
    meant, refused = await _chosen(call, order)
    able: list[Job] = []
    for job in meant:
        try:
            await call.permit(need, job)
            need_known(call, job)
        except Rejected as error:
            refused.append(_refused(job.label, error.refusal))
        else:
            able.append(job)
    make = await _maker(call, order, able, refused)
    done = able
    if not order.only_tell:
        done = await _each(call, able, make, refused, cancels=order.action == "cancel")
    engine = call.daemon.engine
    return JobsAnswer(tuple(job_view(engine, job) for job in done), tuple(refused))


async def _each(
    call: Call, jobs: list[Job], make: MakeInput, refused: list[JobRefused], *, cancels: bool
) -> list[Job]:
    """Pass the input `make(job)` to the engine for each job, and return the jobs whose input the engine
    accepted.

    Add refusals to `refused`. Cancelling a job also cancels the jobs that depend on it. If a dependent job is
    itself in `jobs`, the engine refuses the second cancel because the job has already ended. With `cancels`,
    the dependent job counts as accepted.
    """
    lived = {job.id for job in jobs if not job.state.terminal}
    replies = await asyncio.gather(*(call.daemon.ask(make(job)) for job in jobs))
    done = []
    for job, reply in zip(jobs, replies, strict=True):
        known = call.daemon.state.jobs.get(job.id, job)
        if isinstance(reply, Refusal) and cancels and job.id in lived and known.state is JobState.CANCELLED:
            done.append(known)
        elif isinstance(reply, Refusal):
            refused.append(_refused(job.label, reply))
        else:
            done.append(job)
    return done


async def _maker(call: Call, order: JobsOrder, jobs: list[Job], refused: list[JobRefused]) -> MakeInput:
    """Return a function that takes a job and returns the engine's input for the requested action, such as
    Cancel. If the request extends time limits, move each job whose longer limit is refused
    (`check_extension`) from `jobs` to `refused`.
    """
    if order.action != "set" or not jobs:
        return maker_of(order, call.caller.user, call.asker)
    # Look up the final states of the jobs in the new dependencies only once, because all jobs in `jobs` get
    # the same dependencies.
    known = await known_to(call, jobs[0], JobChange(order.changes))
    checked: dict[int, CheckedChanges] = {}
    for job in list(jobs):
        found = await check_extension(call, job, order.changes, order.extend_s)
        if isinstance(found, Refusal):
            jobs.remove(job)
            refused.append(_refused(job.label, found))
        else:
            checked[job.id] = found
    return lambda job: edit_of(call, job, checked[job.id], known)


async def _chosen(call: Call, order: JobsOrder) -> tuple[list[Job], list[JobRefused]]:
    """Return the jobs that the request selects, each once, and a refusal for each selector without a job. A
    selector is a text such as 17, 12_3, 12_[0-9], 1-5, user:ada, last or all.
    """
    words = order.jobs or (("all",) if order.mine else ())
    if not words:
        raise rejected("invalid", "no job is named", "jobs", "Name jobs, or set mine.")
    if len(words) > MOST:
        raise rejected("invalid", f"may have at most {MOST:,} entries", "jobs")
    found: dict[int, Job] = {}
    refused = []
    for word in words:
        try:
            meant = await _meant(call, word)
        except Rejected as error:
            refused.append(_refused(word, error.refusal))
        else:
            found.update((job.id, job) for job in meant if not order.mine or job.user == call.caller.user)
    if len(found) > MOST:
        message = f"these are {len(found):,} jobs, and one request may choose at most {MOST:,}"
        raise rejected("invalid", message, "jobs", "Name fewer jobs, for example a range such as 1-5000.")
    return list(found.values()), refused


async def _meant(call: Call, word: str) -> list[Job]:
    try:
        meant = parse_selection(word)
    except InvalidSelection as unreadable:
        raise rejected("invalid", str(unreadable), "jobs", unreadable.hint) from None
    match meant:
        case AllJobs() | JobRange() | JobsOf():
            return active_jobs(call.daemon.state, meant)
        case ArrayElements(array, indices):
            return await _elements(call, array, indices)
        case NewestJob():
            return [await _newest(call)]
    job = await call.find(word)
    return _unended_elements(call, job) if job.array == job.id and meant.is_id else [job]


async def _elements(call: Call, array: int, indices: tuple[int, ...]) -> list[Job]:
    """Return the elements of a job array with these indices, including elements that have ended. Raise
    Rejected if there is no element with one of these indices.
    """
    known = {
        index: call.daemon.state.jobs[job] for index, job in call.daemon.state.arrays.get(array, {}).items()
    }
    if any(index not in known for index in indices):
        rows = await call.daemon.read(lambda: call.daemon.store.jobs_of_array(array))
        known = {job.index or 0: job for job in map(load_job, rows)} | known
    for index in indices:
        if index not in known:
            hint = "'corral queue --all' lists all jobs."
            raise rejected("not_found", f"there is no job {array}_{index}", "job", hint)
    return [known[index] for index in indices]


def _unended_elements(call: Call, first: Job) -> list[Job]:
    """Return the unended elements of the job array whose first element is `first`. Raise Rejected if all
    elements have ended.
    """
    state = call.daemon.state
    elements = [state.jobs[each] for _, each in sorted(state.arrays.get(first.id, {}).items())]
    living = [job for job in elements if not job.state.terminal]
    if not living:
        raise rejected("conflict", f"every job of array {first.id} has ended already", "job")
    return living


async def _newest(call: Call) -> Job:
    """Return the job that the caller submitted last. Raise Rejected if the caller has submitted none."""
    user, store = call.caller.user, call.daemon.store
    mine = [job.id for job in call.daemon.state.jobs.values() if job.user == user]
    if mine:
        return call.daemon.state.jobs[max(mine)]
    rows = await call.daemon.read(lambda: store.jobs(None, user, None, 1))
    if not rows:
        hint = "Submit one: corral submit -- hostname"
        raise rejected("not_found", "you have no job yet", "job", hint)
    return load_job(rows[0])


def _refused(job: str, refusal: Refusal) -> JobRefused:
    return JobRefused(printable(job, 40), problem_of(refusal))
