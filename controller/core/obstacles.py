"""What keeps a job waiting although there is room for it."""

from __future__ import annotations

import numpy as np

from controller.core.allowance import Allowance
from controller.core.jobs import NEVER, Job
from controller.core.placement import Placer
from controller.core.requests import Part
from controller.core.shadow import Shadow
from controller.core.state import State
from wire.text import counted, duration, plain


def short_of_quota(state: State, placer: Placer, promise: Shadow | None, job: Job, now: float) -> str:
    """Which quota keeps a job from starting; empty if none does."""
    allowance = Allowance(state, placer)
    over = allowance.over(job, now)
    if over is not None:
        return str(over)
    ahead = promise is not None and promise.job != job.id and promise.job in state.queue
    if promise is None or not ahead or not allowance.borrows(job, now):
        return ""
    lent = state.beyond(job, now)
    return f"nothing is lent while job {state.jobs[promise.job].label} waits: {lent}" if lent else ""


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
