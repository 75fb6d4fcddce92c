"""What keeps a job waiting although there is room for it."""

from __future__ import annotations

import numpy as np

from controller.core.allowance import Allowance
from controller.core.common import Common, Pledge
from controller.core.deadlines import Guarded, promised
from controller.core.gangs import ripe_from
from controller.core.jobs import NEVER, Job
from controller.core.licences import Lack, holds
from controller.core.placement import Placer
from controller.core.plugin import Deadlines
from controller.core.requests import Part
from controller.core.shadow import cast_shadow
from controller.core.shares import Stopped
from controller.core.state import State
from wire.text import counted, duration, plain
from wire.words import Reason

HOLDERS = 8
"""Jobs that are named."""


def limited(
    state: State, placer: Placer, promise: Pledge | None, job: Job, now: float
) -> tuple[Reason, str] | None:
    """Which quota or share keeps a job from starting, and what is said of it; None if none does."""
    allowance = Allowance(state, placer)
    over = allowance.over(job, now)
    if isinstance(over, Stopped):
        return over.reason, stopped_text(state, over, now)
    if over is not None and not (now >= ripe_from(job) and allowance.nodes_within(job, now)):
        return over.reason, f"{over}{fewer_do(job, now)}"
    ahead = promise is not None and promise.job != job.id and promise.job in state.queue
    if promise is None or not ahead or not allowance.borrows(job, now):
        return None
    lent, first = state.beyond(job, now), state.jobs[promise.job].label
    return (Reason.QUOTA, f"nothing is lent while job {first} waits: {lent}") if lent else None


def ends_of(state: State, stopped: Stopped, now: float) -> float:
    """When a share may start something again at the latest: as its jobs end, or at their limits."""
    depth = len(stopped.path)
    jobs = [state.jobs[job] for _, job in state.releases]
    ends = [
        (job.expected_end, job.charge)
        for job in jobs
        if job.placed_at is not None and state.tenant(job)[:depth] == stopped.path
    ]
    return state.shares.falls_below(stopped.path, stopped.limit, now, ends)


def stopped_text(state: State, stopped: Stopped, now: float) -> str:
    """What is said of a share at its hard limit."""
    at = ends_of(state, stopped, now)
    if at < NEVER:
        return f"{stopped}: nothing of it starts for another {duration(at - now)} at most"
    if not stopped.limit:
        return f"{stopped}: nothing of it starts until its hard limit is raised"
    return f"{stopped}: nothing of it starts before jobs of it have ended, and they have no time limit"


def fewer_do(job: Job, now: float) -> str:
    """With how few nodes a gang will do, and when; empty for any other job."""
    if job.ask.least is None:
        return ""
    left = ripe_from(job) - now
    return f"; {counted(job.ask.least, 'node')} will do" + (f" in {duration(left)}" if left > 0 else "")


def lacking(state: State, job: Job) -> str:
    """Which licences keep a job from starting, and who has them; empty if there are enough."""
    return "; ".join(_lack_text(state, lack) for lack in state.licences.lacks(job.ask.licences))


def _lack_text(state: State, lack: Lack) -> str:
    if lack.wanted > lack.total:
        return f"waits for {lack.wanted} of licence {lack.name}, and there are {lack.total}"
    told = f"waits for {lack.wanted} of licence {lack.name}; {lack.used} of {lack.total} in use"
    holders = holders_of(state, lack.name)
    names = ", ".join(job.label for job in holders[:HOLDERS])
    more = f" and {len(holders) - HOLDERS} more" if len(holders) > HOLDERS else ""
    return f"{told} by {'jobs' if len(holders) > 1 else 'job'} {names}{more}"


def holders_of(state: State, name: str) -> list[Job]:
    """The jobs that hold a licence, in the order of their ids."""
    jobs = (state.jobs[job] for job in sorted(job for _, job in state.releases))
    return [job for job in jobs if holds(job) and any(name == each for each, _ in job.ask.licences)]


def kept_away(state: State, placer: Placer, part: Part, need: int, job: Job, now: float) -> str:
    """Which reservation keeps a job that would fit from starting; empty if none does."""
    barred = state.barred(job, now)
    if barred is None:
        return ""
    fits = placer.ranking(part).fits
    left = int(np.count_nonzero(fits & ~barred))
    if left >= need:
        return ""
    lost = fits & barred
    first = min(
        (
            each
            for each in state.reservations.against(job.user, job.spec.project)
            if each.meets(now, now + job.span) and lost[state.reservations.rows(state.nodes, each)].any()
        ),
        key=lambda each: (each.turns_at, each.spec.name),
    )
    counts = f"fits on {counted(int(np.count_nonzero(fits)), 'node')}, of which {left} are not kept: "
    name = f"reservation {plain(first.spec.name)!r}"
    if first.began:
        return counts + f"{name} is on for another {duration(first.ends_at - now)}"
    begins = f"{name} begins in {duration(first.starts_at - now)}"
    if job.limit == NEVER:
        return counts + f"{begins}, and the job has no time limit"
    return counts + f"{begins}, and the job may hold them for {duration(job.span)}"


def spared_for(state: State, placer: Placer, job: Job, now: float) -> str:
    """Whose deadline keeps a job waiting that would fit; empty if nobody's does."""
    shape = placer.shape(job.ask)
    if placer.pipeline.deadlines is Deadlines.NONE or shape is None:
        return ""
    guarded, barred = (
        Guarded(state, placer, Allowance(state, placer), state.queue_of(job)),
        state.barred(job, now),
    )
    against = guarded.against(job, now)
    if not against or placer.find(job.ask, guarded.kept_from(job, shape, barred, now)) is not None:
        return ""
    other, start = state.jobs[against[0].job].label, duration(against[0].at - now)
    limit = "has no time limit" if job.limit == NEVER else f"may run for {duration(job.limit)}"
    return f"fits now, but {limit} in room that job {other} needs within {start} to keep its deadline"


def due_told(state: State, placer: Placer, job: Job, now: float) -> list[str]:
    """What a waiting job's deadline demands, and whether it can be kept as things stand."""
    if job.latest_start == NEVER:
        return []
    told = f"has to start within {duration(job.latest_start - now)} to keep its deadline"
    if placer.fits(job.ask) or promised(state, placer, job, job.latest_start) is not None:
        return [told]
    free = cast_shadow(state, placer, job.ask, job.id, now)
    if free is None or free.at == NEVER:
        return [f"{told}, and what runs there may run for ever"]
    return [f"{told}, and room for it may come free only in {duration(free.at - now)}"]


def promised_to_others(state: State, placer: Placer, common: Common, job: Job, now: float) -> str:
    """To which job of another profile the nodes are promised that this one fits on; empty if to none."""
    barred, shape = common.in_the_way(job, now), placer.shape(job.ask)
    if common.keeps_licences(job, now):
        return "there are licences enough now, but not for so long: they are promised to others"
    if barred is None or shape is None:
        return ""
    fits = placer.ranking(shape.part).fits
    left = int(np.count_nonzero(fits & ~barred))
    to = [each for row in np.flatnonzero(fits & barred) for each in common.promised(int(row), job)]
    others = [each for each in sorted(to) if state.jobs[each[1]].profile != job.profile]
    if left >= shape.nodes or not others:
        return ""
    at, number = others[0]
    other = state.jobs[number]
    limit = "has no time limit" if job.limit == NEVER else f"may run for {duration(job.limit)}"
    return (
        f"fits on {counted(int(np.count_nonzero(fits)), 'node')}, of which {left} are not promised: "
        f"the job {limit}, and job {other.label} of profile {plain(other.profile)} "
        f"starts there in {duration(max(0.0, at - now))} at the latest"
    )
