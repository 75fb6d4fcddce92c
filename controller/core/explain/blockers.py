"""Finds the reason why a job does not start although it fits on free nodes: a quota, fair-share limit,
licence, reservation or deadline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from controller.core.backfill.easy.beside_reservation import find_beside_reservation
from controller.core.backfill.easy.easy_reservation import earliest_reservation
from controller.core.backfill.profiles.shared_reservations import SharedReservations
from controller.core.backfill.start_rules.deadline_guard import DeadlineGuard, deadline_reservation
from controller.core.backfill.start_rules.start_limits import StartLimits
from controller.core.cluster.licences import LicenceShortage, holds_licences
from controller.core.cluster.node_table import either_mask
from controller.core.fairshare.share_tree import TenantAtLimit
from controller.core.framework.interfaces import DeadlinePolicy, Reserves
from controller.core.lifecycle.gang_barrier import accepts_fewer_from
from controller.core.model.job import NEVER, Job
from controller.core.model.request import PerNodeRequest
from controller.core.placement.placer import Placer
from controller.core.quota.hours.week_hours import HoursClosed
from controller.core.reservations.reservations import ReservationClosed
from controller.core.state.barred_nodes import barred_nodes, full_models, nodes_at_model_quota, reserved_nodes
from controller.core.state.order_view import position_key
from controller.core.state.state import State
from wire.names import Reason
from wire.text import counted, duration, printable

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle

HOLDERS = 8
"""A sentence about a licence names at most this many jobs that hold the licence."""


def starts_next_pass(cycle: Cycle, job: Job, now: float, placer: Placer | None = None) -> bool:
    """Return whether a waiting job that fits on free nodes will start in the next cycle of its scheduler
    profile. The answer assumes that nothing else changes before that cycle.

    If `placer` is not None, it chooses the nodes in place of the profile's own placer. Between two cycles,
    callers pass another placer, because the profile's own placer must not compute scores then.
    """
    state, queue = cycle.state, cycle.queue
    if cycle.backfill.reserves is Reserves.ALL_JOBS:
        reserved = cycle.reservations.by_job.get(job.id)
        return job.id in queue.new_jobs if reserved is None else reserved.starts_at <= now
    if _is_tried_in_order(cycle, job, now):
        return True
    if not cycle.backfill.starts_behind:
        return False
    barred = barred_nodes(state, job, now)
    if cycle.shared is not None:
        if placer is None:
            return cycle.shared.find(job, barred, now) is not None
        return placer.find(job.ask, either_mask(barred, cycle.shared.barred(job, now))) is not None
    easy, shape = cycle.easy.reservation(now), cycle.placer.shape(job.ask)
    if shape is None:
        return False
    if easy is None or now + cycle.runtime(job) <= cycle.easy.backfill_ends_by(easy):
        return True
    return find_beside_reservation(placer or cycle.placer, shape, easy, barred) is not None


def _is_tried_in_order(cycle: Cycle, job: Job, now: float) -> bool:
    """Return whether the next cycle tries the job before backfill: the job is the first waiting job or comes
    before it, or no job waits at the head of the queue.
    """
    head, queue = cycle.head, cycle.queue
    if head is None or head[1] not in queue or head[1] == job.id or job.id not in queue:
        return True
    own, position_of = queue.entry(job.id), position_key(cycle.state, queue, now)
    return own < head if position_of is None else position_of(own) < position_of(head)


def _is_tried_on_fewer_nodes(cycle: Cycle, job: Job, now: float) -> bool:
    """Return whether the next cycle tries to start a job with `--min-nodes` on fewer nodes. Backfill behind
    the first waiting job tries only all nodes; conservative backfill makes no such difference.
    """
    if now < accepts_fewer_from(job):
        return False
    return cycle.backfill.reserves is Reserves.ALL_JOBS or _is_tried_in_order(cycle, job, now)


def limit_blocker(cycle: Cycle, job: Job, now: float) -> tuple[Reason, str] | None:
    """Return the pending reason and a sentence if a limit keeps the job from starting: a quota, a fair-share
    limit, a budget, start hours, GPUs kept for another queue, or the reservation that the job names.
    Otherwise return None.
    """
    state = cycle.state
    allowance = StartLimits(state, cycle.placer, cycle.shared)
    over = allowance.over(job, now)
    if isinstance(over, TenantAtLimit):
        return over.reason, share_limit_text(state, over, now)
    if isinstance(over, HoursClosed | ReservationClosed):
        return over.reason, str(over)
    if over is not None and not (
        _is_tried_on_fewer_nodes(cycle, job, now) and allowance.nodes_within(job, now)
    ):
        return over.reason, f"{over}{fewer_nodes_text(job, now)}"
    return None


def model_quota_blocker(state: State, placer: Placer, job: Job) -> str:
    """Return a sentence about the quota of a GPU model that keeps the job from using free nodes. Return an
    empty text if there is no such quota.
    """
    full, shape = nodes_at_model_quota(state, job), placer.shape(job.ask)
    if full is None or shape is None or placer.find(job.ask, full) is not None:
        return ""
    return "; ".join(dict.fromkeys(str(each) for each in full_models(state, job).values()))


def joint_blocker(state: State, placer: Placer, job: Job, now: float) -> str:
    """Return a sentence if a quota of a GPU model and an operator's reservation keep the job from starting
    only together. Return an empty text in all other cases.

    Example: a quota allows only the nodes with A100 GPUs, and these nodes are reserved. The job would fit on
    nodes with H100 GPUs.
    """
    full, reserved = nodes_at_model_quota(state, job), reserved_nodes(state, job, now)
    if full is None or reserved is None or placer.find(job.ask, full | reserved) is not None:
        return ""
    quotas = "; ".join(dict.fromkeys(str(each) for each in full_models(state, job).values()))
    return f"fits now only with nodes that are reserved or at a quota: {quotas}"


def share_free_at(state: State, stopped: TenantAtLimit, now: float) -> float:
    """Return the time at which jobs of the tenant `stopped`, which is at its hard limit, may start again.
    Return NEVER if no such time is known.

    The running jobs of the tenant are assumed to end at their time limits.
    """
    depth = len(stopped.path)
    jobs = [state.jobs[job] for _, job in state.releases]
    ends = [
        (job.latest_end, job.charge)
        for job in jobs
        if job.placed_at is not None and state.tenant(job)[:depth] == stopped.path
    ]
    return state.shares.falls_below(stopped.path, stopped.limit, now, ends)


def share_limit_text(state: State, stopped: TenantAtLimit, now: float) -> str:
    """Return a sentence about the tenant `stopped`, which is at its hard limit. The sentence says for how
    long none of its jobs starts.
    """
    at = share_free_at(state, stopped, now)
    if at < NEVER:
        return f"{stopped}: none of its jobs starts for another {duration(at - now)} at most"
    if not stopped.limit:
        return f"{stopped}: none of its jobs starts until its hard limit is raised"
    return f"{stopped}: none of its jobs starts until running ones end, and they have no time limit"


def fewer_nodes_text(job: Job, now: float) -> str:
    """Return a phrase about a job with `--min-nodes`: the least number of nodes for a start, and the time
    from which fewer nodes than `--nodes` are accepted. Return an empty text for any other job, and for a job
    that requires topology domains, because such a job starts on all its nodes only.
    """
    topology = job.ask.topology
    if job.ask.least is None or (topology is not None and not topology.prefer):
        return ""
    left = accepts_fewer_from(job) - now
    return f"; may start on {counted(job.ask.least, 'node')}" + (f" in {duration(left)}" if left > 0 else "")


def licence_blocker(state: State, job: Job) -> str:
    """Return a text that names the licences that a job lacks, and the jobs that hold these licences. Return
    an empty text if the job lacks no licence.
    """
    return "; ".join(_lack_text(state, lack) for lack in state.licences.shortages(job.ask.licences))


def _lack_text(state: State, lack: LicenceShortage) -> str:
    if lack.wanted > lack.total:
        return f"waits for {lack.wanted} of licence {lack.name}, but the cluster has {lack.total}"
    text = f"waits for {lack.wanted} of licence {lack.name}; {lack.used} of {lack.total} in use"
    holders = licence_holders(state, lack.name)
    names = ", ".join(job.label for job in holders[:HOLDERS])
    more = f" and {len(holders) - HOLDERS} more" if len(holders) > HOLDERS else ""
    return f"{text} by {'jobs' if len(holders) > 1 else 'job'} {names}{more}"


def licence_holders(state: State, name: str) -> list[Job]:
    """Return the jobs that hold the licence with this name, sorted by job id."""
    jobs = (state.jobs[job] for job in sorted(job for _, job in state.releases))
    return [job for job in jobs if holds_licences(job) and any(name == each for each, _ in job.ask.licences)]


def reservation_blocker(
    state: State, placer: Placer, part: PerNodeRequest, need: int, job: Job, now: float
) -> str:
    """Return a sentence about the operator's reservation that keeps the job from using free nodes. Return an
    empty text if there is no such reservation.

    `part` is the request for each node, and `need` the number of nodes.
    """
    barred = reserved_nodes(state, job, now)
    if barred is None:
        return ""
    fits = placer.ranking(part).fits
    left, lost = int(np.count_nonzero(fits & ~barred)), fits & barred
    # Also call `find` if enough nodes are unreserved, because the job may need nodes with one GPU model or in
    # one topology domain, and only `find` checks this.
    if not lost.any() or (left >= need and placer.find(job.ask, barred) is not None):
        return ""
    span = state.assumed_span(job)
    first = min(
        (
            each
            for each in state.reservations.excluding(job.user, job.spec.project)
            if each.overlaps(now, now + span) and lost[state.reservations.rows(state.nodes, each)].any()
        ),
        key=lambda each: (each.next_change, each.spec.name),
        default=None,
    )
    fitting = counted(int(np.count_nonzero(fits)), "node")
    own = state.reservations.named_by(job.spec, job.user)
    if own is not None:
        return f"fits on {fitting}, of which {left} can be used in {own.title}"
    if first is None:
        return ""
    counts = f"fits on {fitting}, of which {left} are not reserved: "
    if first.began:
        return counts + f"{first.title} lasts for another {duration(first.ends_at - now)}"
    begins = f"{first.title} begins in {duration(first.starts_at - now)}"
    if span == NEVER:
        return counts + f"{begins}, and the job has no time limit"
    if job.limit == NEVER:
        return (
            counts + f"{begins}, and the job has no time limit and probably runs for up to {duration(span)}"
        )
    return counts + f"{begins}, and the job may hold them for {duration(span)}"


def deadline_blocker(state: State, placer: Placer, job: Job, now: float) -> str:
    """Return a sentence about another job whose deadline keeps this job from using free nodes. Return an
    empty text if there is no such job.
    """
    shape = placer.shape(job.ask)
    if placer.pipeline.deadlines is DeadlinePolicy.NONE or shape is None:
        return ""
    guarded, barred = (
        DeadlineGuard(state, placer, StartLimits(state, placer), state.queue_of(job)),
        barred_nodes(state, job, now),
    )
    against = guarded.against(job, now)
    if not against or placer.find(job.ask, guarded.kept_from(job, shape, barred, now)) is not None:
        return ""
    other, start = state.jobs[against[0].job].label, duration(against[0].starts_at - now)
    limit = "has no time limit" if job.limit == NEVER else f"may run for {duration(job.limit)}"
    return f"fits now, but {limit} on nodes that job {other} needs within {start} to keep its deadline"


def deadline_texts(state: State, placer: Placer, job: Job, now: float) -> list[str]:
    """Return texts about the job's deadline; an empty list without a deadline.

    The texts name the time by which the job must start. The texts warn if the job will probably start later.
    """
    if job.latest_start == NEVER:
        return []
    text = f"has to start within {duration(job.latest_start - now)} to keep its deadline"
    if placer.fits(job.ask) or deadline_reservation(state, placer, job, job.latest_start) is not None:
        return [text]
    free = earliest_reservation(state, placer, job.ask, job.id, now)
    if free is None or free.starts_at == NEVER:
        return [f"{text}, and the jobs that run there have no time limit"]
    return [f"{text}, but enough nodes may become free only in {duration(free.starts_at - now)}"]


def other_profile_blocker(
    state: State, placer: Placer, common: SharedReservations, job: Job, now: float
) -> str:
    """Return a sentence if backfill reservations keep this job from starting: on nodes that it shares with a
    job of another scheduler profile, or for licences that any other job will need. Return an empty text
    otherwise.

    `common` contains the reservations on nodes that several profiles use.
    """
    barred, shape = common.barred(job, now), placer.shape(job.ask)
    if common.needs_reserved_licences(job, now):
        return "there are enough licences now, but other jobs need them before this job would end"
    if barred is None or shape is None:
        return ""
    fits = placer.ranking(shape.part).fits
    left = int(np.count_nonzero(fits & ~barred))
    to = [each for row in np.flatnonzero(fits & barred) for each in common.starts_on(int(row), job)]
    others = [each for each in sorted(to) if state.jobs[each[1]].profile != job.profile]
    if not others or (left >= shape.nodes and placer.find(job.ask, barred) is not None):
        return ""
    at, number = others[0]
    other = state.jobs[number]
    limit = "has no time limit" if job.limit == NEVER else f"may run for {duration(job.limit)}"
    return (
        f"fits on {counted(int(np.count_nonzero(fits)), 'node')}, of which {left} are not reserved: "
        f"the job {limit}, and job {other.label} of profile {printable(other.profile)} "
        f"starts there in {duration(max(0.0, at - now))} at the latest"
    )
