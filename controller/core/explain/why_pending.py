"""Explains in a sentence why a job waits: which filter or limit keeps the job from starting.

Three reasons come first: a hold; a closed gate, such as a dependency or a begin time in the future; and a
nomination (nodes are kept for the job until preempted jobs have ended, or the job is being moved). For any
other job, `_why_waiting` checks the possible reasons in the order of the scheduling cycle.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from controller.core.explain.blockers import (
    deadline_blocker,
    deadline_texts,
    fewer_nodes_text,
    joint_blocker,
    licence_blocker,
    limit_blocker,
    model_quota_blocker,
    other_profile_blocker,
    reservation_blocker,
    starts_next_pass,
)
from controller.core.explain.filter_losses import BindingFilters, binding_filters, filter_losses
from controller.core.explain.node_scores import common_switch_text, node_scores
from controller.core.explain.pending_notes import NAMED, RATIONED, hours_note, pending_notes
from controller.core.explain.state_text import held_text, making_room_text, moving_text, state_text
from controller.core.framework.interfaces import Reserves
from controller.core.framework.unfiltered_constraints import unfiltered_message
from controller.core.lifecycle.node_loss import NodeLossPolicy
from controller.core.lifecycle.waiting.gates import gates_text, waiting_effects
from controller.core.lifecycle.waiting.priority_inheritance import inherited_text
from controller.core.model.job import NEVER, Job
from controller.core.model.request import PerNodeRequest
from controller.core.placement.placer import Placer
from controller.core.state.order_view import position_key, priority_points
from controller.core.state.state import State
from wire.api.reasons import Ahead, FilterLoss, Points, Why
from wire.names import JobState, Reason, priority_name
from wire.text import counted, duration

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle

CONSIDERED_NEXT = "fits now: considered in the next pass"
"""The text for a job that will start in the next scheduling cycle."""


def explain(state: State, placer: Placer, cycle: Cycle, losses: NodeLossPolicy, job: Job, now: float) -> Why:
    """Return why the job is in its state. For a job in the queue, also return its queue position, its
    priority points, and how many nodes each filter rejects.
    """
    if job.state is not JobState.QUEUED:
        return Why(job.reason, state_text(state, job, losses, now) + common_switch_text(placer, job))
    if job.held:
        return Why(Reason.HELD, held_text(job))
    if job.wait.gates:
        return Why(job.wait.gates[0], gates_text(state, job, now))
    if job.claim and job.reason is Reason.MOVING:
        return Why(Reason.MOVING, moving_text(state, job))
    if job.claim:
        return Why(Reason.PREEMPTING, making_room_text(state, job, now))
    why = _why_waiting(state, placer, cycle, job, now)
    if job.replica is not None:
        why = replace(
            why, sentence=f"replica {job.replica.number} of service {job.replica.service}: {why.sentence}"
        )
    queue = state.queue_of(job)
    position = queue.ahead(job.id, position_key(state, queue, now)) + 1
    if job.wait.doubted:
        why = replace(why, reason=Reason.DEADLINE)
    due = deadline_texts(state, placer, job, now)
    sentence = "; ".join((why.sentence, *due, *waiting_effects(state, job)))
    ahead = [
        state.jobs[each] for each in islice(queue.first_ahead(job.id, position_key(state, queue, now)), NAMED)
    ]
    return replace(
        why,
        sentence=sentence,
        position=position,
        receipt=_receipt(state, job, now),
        ahead=tuple(Ahead(each.id, each.label, each.user, request_text(each)) for each in ahead),
        notes=(
            *pending_notes(state, placer, job, now),
            *(RATIONED for tenant in cycle.queue.rationed if tenant == state.tenant(job)),
            *(hours_note(state, now) if why.reason is Reason.QUOTA else ()),
        ),
        nodes=node_scores(placer, job) if len(state.nodes) else (),
    )


def request_text(job: Job) -> str:
    """Return the request of a waiting job as text, such as `8 GPUs on 2 nodes, 1h00m00s, priority normal`."""
    spec = job.spec
    what = [counted(spec.gpus, "GPU")] if spec.gpus else [f"{counted(spec.cpu_milli / 1000, 'CPU')} per node"]
    what += [counted(spec.nodes, "node")] if (spec.nodes or 1) > 1 and spec.nodes else []
    limit = "no time limit" if spec.time_limit_s is None else f"{duration(spec.time_limit_s)}"
    return f"{' on '.join(what)}, {limit}, priority {priority_name(job.priority).lower()}"


def _receipt(state: State, job: Job, now: float) -> tuple[Points, ...]:
    """Return how many points each factor, such as age, adds to the job's priority. A note says whether the
    priority is inherited from another job.
    """
    found, note = priority_points(state, job, now), inherited_text(state, job)
    return tuple(replace(each, note=note) if each.name == "priority" else each for each in found)


def _why_waiting(state: State, placer: Placer, cycle: Cycle, job: Job, now: float) -> Why:
    if not len(state.nodes):
        return Why(Reason.NO_NODES, "no node has joined yet")
    field = placer.unsupported_request(job.ask.part)
    if field is not None:
        return Why(Reason.RESOURCES, unfiltered_message(field))
    limit = limit_blocker(cycle, job, now)
    if limit is not None and limit[0] is not Reason.RESOURCES:
        return Why(*limit)
    reserved_quota = cycle.quota_reservations.delay_of(job, now)
    if reserved_quota is not None:
        return Why(Reason.QUOTA, str(reserved_quota))
    shape = placer.shape(job.ask)
    part = shape.part if shape else job.ask.part
    need = shape.nodes if shape else job.ask.nodes or 1
    found, fitting = filter_losses(placer, part, state.nodes.columns)
    domains = placer.required_grouping(shape) if shape is not None else None
    if fitting >= need and shape is not None and domains is not None:
        fits = placer.ranking(part).fits.nonzero()[0]
        if domains.spare_rows(fits, need) < 0:
            where = (
                f" in {shape.topology}"
                if shape.topology_required
                else " of one GPU model (--mixed-models allows several)"
            )
            sentence = f"needs {counted(need, 'node')} with {part}{where}; {domains.description(fits)}"
            return Why(Reason.RESOURCES, sentence, found, fitting=fitting)
    if fitting >= need:
        full = model_quota_blocker(state, placer, job)
        if full:
            return Why(Reason.QUOTA, full, found, fitting=fitting)
        reserved = reservation_blocker(state, placer, part, need, job, now)
        if reserved:
            return Why(Reason.RESERVATION, reserved, found, fitting=fitting)
        jointly = joint_blocker(state, placer, job, now)
        if jointly:
            return Why(Reason.RESERVATION, jointly, found, fitting=fitting)
        lack = licence_blocker(state, job)
        if lack:
            return Why(Reason.LICENCE, lack, found, fitting=fitting)
        spared = deadline_blocker(state, placer, job, now)
        if spared:
            return Why(Reason.OTHERS_DEADLINE, spared, found, fitting=fitting)
        common = cycle.shared
        elsewhere = "" if common is None else other_profile_blocker(state, placer, common, job, now)
        if elsewhere:
            return Why(Reason.PROMISED, elsewhere, found, fitting=fitting)
        return Why(Reason.PRIORITY, _passed_over(state, placer, cycle, job, now), found, fitting=fitting)
    sentence = (
        f"needs {counted(need, 'node')} with {part}; {_nodes_that_can(placer, part, need, found, fitting)}"
    )
    lack = licence_blocker(state, job)
    besides = f"; besides, it {lack}" if lack else ""
    own = state.reservations.named_by(job.spec, job.user)
    if own is not None:
        besides += f"; {own.title} has {counted(len(own.nodes), 'node')}"
    if limit is not None:
        # Also name the queue that keeps GPUs free, although the job would not fit even with these GPUs.
        besides += f"; besides, {limit[1]}"
    return Why(Reason.RESOURCES, sentence + fewer_nodes_text(job, now) + besides, found, fitting=fitting)


def _nodes_that_can(
    placer: Placer, part: PerNodeRequest, need: int, found: tuple[FilterLoss, ...], fitting: int
) -> str:
    """Return a text that says how many nodes can hold the request now, and what the other nodes lack.

    `need` is the number of nodes that the job requests, and `fitting` the number of nodes that can hold the
    request now. `found` contains the counts of the nodes that each filter rejects now.
    """
    bound, total = binding_filters(placer, part), len(placer.nodes)
    if bound.suitable < need:
        # Even with all nodes idle, too few nodes could hold the request, for example because nodes were
        # removed or tainted after the submit. Say what idle nodes lack.
        never, _ = filter_losses(placer, part, placer.nodes.idle)
        return f"{fitting} of {total} can give that now: {BindingFilters(bound.suitable, never or found)}"
    suitable = f"{bound.suitable} suitable nodes" if bound.suitable < total else f"{total}"
    if bound.suitable == 1 < total:
        suitable = "1 suitable node"
    return f"{fitting} of {suitable} can give that now: {bound}"


def reason_of(state: State, job: Job) -> Reason:
    """Return the reason of the job's state, for lists of jobs. For a job in the queue, this is the pending
    reason that the last scheduling cycle recorded.

    No filter is called, because this function runs for each job of a list.
    """
    if job.held and job.state is JobState.QUEUED and job.reason is Reason.PREEMPTED:
        # Show the hold and not the preemption, because the job starts only after its release.
        return Reason.HELD
    if job.state is not JobState.QUEUED or job.held or job.claim:
        return job.reason
    if job.wait.gates:
        return job.wait.gates[0]
    if not len(state.nodes):
        return Reason.NO_NODES
    queue = state.queue_of(job)
    if job.id in queue.new_jobs:
        return job.reason
    if job.wait.doubted:
        return Reason.DEADLINE
    lane = queue.lane(job.id)
    found = (
        queue.pending_reasons.get(job.id)
        if lane is None
        else queue.lane_pending_reasons.get(lane, queue.pending_reasons.get(job.id))
    )
    if found is not None:
        return found
    blocked = lane is not None and lane.fit.blocked_at == state.nodes.room_version
    if lane is not None and blocked:
        return lane.fit.why
    return Reason.LICENCE if state.licences.insufficient(job.ask.licences) else Reason.PRIORITY


def _passed_over(state: State, placer: Placer, cycle: Cycle, job: Job, now: float) -> str:
    """Return why a job that fits now does not start. Usually, its start would delay the reserved start of
    another job.
    """
    if starts_next_pass(cycle, job, now, placer if cycle.shared is None else None):
        return CONSIDERED_NEXT
    own, first_start = cycle.reservations.by_job.get(job.id), cycle.first_reservation(now)
    if own is not None:
        wait = duration(own.starts_at - now)
        return f"fits now, but would delay jobs before it: it can start in {wait} at the latest"
    if cycle.backfill.reserves is Reserves.ALL_JOBS:
        return _without_reservation(cycle)
    if cycle.shared is not None:
        barred = cycle.search.barred(job, now, for_deadlines=True)
        first_start = cycle.shared.delayed_by(job, barred, now) or first_start
    if first_start is None:
        return "fits now, but no job may start before the first waiting job"
    first = state.jobs[first_start.job].label
    if first_start.starts_at == NEVER:
        return f"fits now, but job {first} before it could then not start at all"
    limit = "has no time limit" if job.limit == NEVER else f"may run for {duration(job.limit)}"
    wait = duration(first_start.starts_at - now)
    when = f"in {wait} at the latest"
    if state.assumes_ends(first_start.starts_at):
        assumed = duration(cycle.estimating.default_s)
        when = f"in {wait} if jobs without a time limit end as planned (after {assumed} or their prediction)"
    return f"fits now, but {limit} and would delay job {first}, which can start {when}"


def _without_reservation(cycle: Cycle) -> str:
    """Return why conservative backfill has made no reservation for a job that fits now."""
    reservations, depth = cycle.reservations, cycle.backfill.depth
    if depth is not None and len(reservations.by_job) + len(reservations.refused) >= depth:
        jobs = "the first waiting job has a" if depth == 1 else f"the first {depth} waiting jobs have a"
        return (
            f"fits now, but only {jobs} reservation (backfill_depth), and a start of this job would delay a "
            "reservation or use quota of a job that has one"
        )
    return "fits now, but could not start at its reserved time: it is tried again when a job ends"
