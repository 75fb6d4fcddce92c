"""One action on many jobs in one request: what is refused for one is told, and done for the others.

Each job is an input of its own, whole or not at all; all of them land together, in as few commits as can be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from controller.api.call import Call
from controller.api.errors import Rejected, problem_of
from controller.api.jobs import known_to, need_known
from controller.api.views import job_view
from controller.core import inputs
from controller.core.inputs import Input, Refusal
from controller.core.jobs import Job
from controller.core.records import job_of
from wire.api.jobs import JobChange, JobRefused, JobsAnswer, JobsOrder
from wire.selection import Elements, Every, Newest, Span, Unreadable, meaning
from wire.text import plain

MOST = 10_000
"""Jobs of one order: the largest array there is."""

Make = Callable[[Job], Input]


async def carry_out(call: Call) -> JobsAnswer:
    """Cancel, hold, release, preempt or change many jobs; some of it may be refused."""
    order: JobsOrder = call.body
    if order.action == "preempt":
        call.need_operator("preempt jobs")
    await call.daemon.settled()
    meant, refused = await _chosen(call, order)
    make = await _action(call, order, meant)
    able: list[Job] = []
    for job in meant:
        try:
            call.need_owner(job, "change" if order.action == "set" else order.action)
            need_known(call, job)
        except Rejected as rejected:
            refused.append(_refused(job.label, rejected.refusal))
        else:
            able.append(job)
    done = able if order.only_tell else await _each(call, able, make, refused)
    engine = call.daemon.engine
    return JobsAnswer(tuple(job_view(engine, job) for job in done), tuple(refused))


async def _each(call: Call, jobs: list[Job], make: Make, refused: list[JobRefused]) -> list[Job]:
    """Hand in an input for each; those that were accepted."""
    replies = await asyncio.gather(*(call.daemon.ask(make(job)) for job in jobs))
    done = []
    for job, reply in zip(jobs, replies, strict=True):
        if isinstance(reply, Refusal):
            refused.append(_refused(job.label, reply))
        else:
            done.append(job)
    return done


async def _action(call: Call, order: JobsOrder, jobs: list[Job]) -> Make:
    """What makes the input for each of the jobs."""
    user = call.caller.user
    if order.action == "set":
        # What the changes wait for is the same for all.
        known = await known_to(call, jobs[0], JobChange(order.changes)) if jobs else {}
        return lambda job: inputs.Edit(job.id, user, order.changes, known)
    actions: dict[str, Make] = {
        "cancel": lambda job: inputs.Cancel(job.id, user),
        "hold": lambda job: inputs.Hold(job.id, user),
        "release": lambda job: inputs.Release(job.id, user),
        "preempt": lambda job: inputs.Preempt(job.id, user, order.stay_held),
    }
    if order.action not in actions:
        raise Rejected(Refusal("invalid", f"must be one of {', '.join(actions)}, set", "action"))
    return actions[order.action]


async def _chosen(call: Call, order: JobsOrder) -> tuple[list[Job], list[JobRefused]]:
    """The jobs that are meant, each once, and the words that mean none."""
    words = order.jobs or (("all",) if order.mine else ())
    if not words:
        raise Rejected(Refusal("invalid", "no job is named", "jobs", "Name jobs, or set mine."))
    if len(words) > MOST:
        raise Rejected(Refusal("invalid", f"may have at most {MOST:,} entries", "jobs"))
    found: dict[int, Job] = {}
    refused = []
    for word in words:
        try:
            meant = await _meant(call, word)
        except Rejected as rejected:
            refused.append(_refused(word, rejected.refusal))
        else:
            found.update((job.id, job) for job in meant if not order.mine or job.user == call.caller.user)
    if len(found) > MOST:
        message = f"these are {len(found):,} jobs, and at most {MOST:,} can be meant at once"
        raise Rejected(Refusal("invalid", message, "jobs", "Name fewer: ranges such as 1-5000 may help."))
    return list(found.values()), refused


async def _meant(call: Call, word: str) -> list[Job]:
    state = call.daemon.state
    try:
        meant = meaning(word)
    except Unreadable as unreadable:
        raise Rejected(Refusal("invalid", str(unreadable), "jobs", unreadable.hint)) from None
    match meant:
        case Every():
            return sorted(state.live(), key=lambda job: job.id)
        case Span(low, high):
            return sorted((job for job in state.live() if low <= job.id <= high), key=lambda job: job.id)
        case Elements(array, indices):
            return await _elements(call, array, indices)
        case Newest():
            return [await _newest(call)]
    job = await call.find(word)
    return _living(call, job) if job.array == job.id and meant.is_id else [job]


async def _elements(call: Call, array: int, indices: tuple[int, ...]) -> list[Job]:
    """Elements by their indices, ended long ago or not."""
    known = {
        index: call.daemon.state.jobs[job] for index, job in call.daemon.state.arrays.get(array, {}).items()
    }
    if any(index not in known for index in indices):
        rows = await call.daemon.read(lambda: call.daemon.store.jobs_of_array(array))
        known = {job.index or 0: job for job in map(job_of, rows)} | known
    for index in indices:
        if index not in known:
            hint = "'corral queue --all' shows what there is."
            raise Rejected(Refusal("not_found", f"there is no job {array}_{index}", "job", hint))
    return [known[index] for index in indices]


def _living(call: Call, first: Job) -> list[Job]:
    """What has not ended of an array, which is called by the id of its first element."""
    state = call.daemon.state
    elements = [state.jobs[each] for _, each in sorted(state.arrays.get(first.id, {}).items())]
    living = [job for job in elements if not job.state.terminal]
    if not living:
        raise Rejected(Refusal("conflict", f"every job of array {first.id} has ended already", "job"))
    return living


async def _newest(call: Call) -> Job:
    """The last job of whoever asks."""
    user, store = call.caller.user, call.daemon.store
    mine = [job.id for job in call.daemon.state.jobs.values() if job.user == user]
    if mine:
        return call.daemon.state.jobs[max(mine)]
    rows = await call.daemon.read(lambda: store.jobs(None, user, None, 1))
    if not rows:
        hint = "Submit one: corral submit -- hostname"
        raise Rejected(Refusal("not_found", "you have no job yet", "job", hint))
    return job_of(rows[0])


def _refused(job: str, refusal: Refusal) -> JobRefused:
    return JobRefused(plain(job, 40), problem_of(refusal))
