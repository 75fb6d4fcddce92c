"""Why a job waits, told by the very filters that decide."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from controller.core.columns import ALL, Columns
from controller.core.heed import HEED_HINT, nobody_heeds
from controller.core.idling import told as idles
from controller.core.inheritance import inherits
from controller.core.inputs import Refusal
from controller.core.jobs import NEVER, Job
from controller.core.keeper import kept_out, waited_for
from controller.core.losses import told
from controller.core.obstacles import (
    due_told,
    fewer_do,
    kept_away,
    lacking,
    limited,
    promised_to_others,
    spared_for,
)
from controller.core.placement import Placer, concerned
from controller.core.requests import Ask, Part
from controller.core.standing import placing, receipt_of
from controller.core.state import State
from wire.api.reasons import FilterLoss, Points, Why
from wire.text import counted, duration
from wire.words import JobState, Reason

if TYPE_CHECKING:
    from controller.core.cycle import Cycle

EXAMPLES = 3


def explain(state: State, placer: Placer, cycle: Cycle, job: Job, now: float) -> Why:
    """The dominant reason, and for a waiting job the nodes each filter took."""
    if job.state is not JobState.QUEUED:
        return Why(job.reason, _told(state, job, now))
    if job.held:
        return Why(Reason.HELD, "held: release it to let it start")
    if job.wait.gates:
        return Why(job.wait.gates[0], kept_out(state, job, now))
    if job.claim and job.reason is Reason.MOVING:
        return Why(Reason.MOVING, _moving(state, job))
    if job.claim:
        return Why(Reason.PREEMPTING, _making_room(state, job, now))
    why = _why_waiting(state, placer, cycle, job, now)
    queue = state.queue_of(job)
    position = queue.ahead(job.id, placing(state, queue, now)) + 1
    if job.wait.doubted:
        why = replace(why, reason=Reason.DEADLINE)
    due = due_told(state, placer, job, now)
    sentence = "; ".join((why.sentence, *due, *waited_for(state, job)))
    return replace(why, sentence=sentence, position=position, receipt=_receipt(state, job, now))


def _receipt(state: State, job: Job, now: float) -> tuple[Points, ...]:
    """With a word about a priority that is not the job's own."""
    found, note = receipt_of(state, job, now), inherits(state, job)
    return tuple(replace(each, note=note) if each.name == "priority" else each for each in found)


def _why_waiting(state: State, placer: Placer, cycle: Cycle, job: Job, now: float) -> Why:
    if not len(state.nodes):
        return Why(Reason.NO_NODES, "no node has joined yet")
    field = placer.unheeded(job.ask.part)
    if field is not None:
        return Why(Reason.RESOURCES, nobody_heeds(field))
    limit = limited(state, placer, cycle.promise(now), job, now)
    if limit is not None:
        return Why(*limit)
    shape = placer.shape(job.ask)
    part = shape.part if shape else job.ask.part
    need = shape.nodes if shape else job.ask.nodes or 1
    found, fitting = losses(placer, part, state.nodes.columns)
    domains = placer.demanded(shape) if shape is not None else None
    if fitting >= need and shape is not None and domains is not None:
        fits = placer.ranking(part).fits.nonzero()[0]
        if domains.spare(fits, need) < 0:
            sentence = f"needs {counted(need, 'node')} with {part} in {shape.topology}; {domains.told(fits)}"
            return Why(Reason.RESOURCES, sentence, found, fitting=fitting)
    if fitting >= need:
        reserved = kept_away(state, placer, part, need, job, now)
        if reserved:
            return Why(Reason.RESERVATION, reserved, found, fitting=fitting)
        lack = lacking(state, job)
        if lack:
            return Why(Reason.LICENCE, lack, found, fitting=fitting)
        spared = spared_for(state, placer, job, now)
        if spared:
            return Why(Reason.OTHERS_DEADLINE, spared, found, fitting=fitting)
        common = cycle.common
        promised = "" if common is None else promised_to_others(state, placer, common, job, now)
        if promised:
            return Why(Reason.PROMISED, promised, found, fitting=fitting)
        return Why(Reason.PRIORITY, _passed_over(state, cycle, job, now), found, fitting=fitting)
    wanted = f"{counted(need, 'node')} with {part}"
    sentence = f"needs {wanted}; {fitting} of {len(state.nodes)} can give that now"
    if found:
        dominant = max(found, key=lambda loss: loss.lost)
        sentence += f": {dominant.message}"
    lack = lacking(state, job)
    besides = f"; besides, it {lack}" if lack else ""
    return Why(Reason.RESOURCES, sentence + fewer_do(job, now) + besides, found, fitting=fitting)


def reason_of(state: State, job: Job) -> Reason:
    """The reason for a table cell, without asking the filters again."""
    if job.state is not JobState.QUEUED or job.held or job.claim:
        return job.reason
    if job.wait.gates:
        return job.wait.gates[0]
    if not len(state.nodes):
        return Reason.NO_NODES
    queue = state.queue_of(job)
    if job.id in queue.fresh:
        return job.reason
    if job.wait.doubted:
        return Reason.DEADLINE
    lane = queue.lane(job.id)
    found = queue.kept_out.get(job.id) if lane is None else queue.shut.get(lane, queue.kept_out.get(job.id))
    if found is not None:
        return found
    blocked = lane is not None and lane.hope.blocked_at == state.nodes.gains
    if lane is not None and blocked:
        return lane.hope.why
    return Reason.LICENCE if state.licences.short(job.ask.licences) else Reason.PRIORITY


def losses(placer: Placer, part: Part, columns: Columns) -> tuple[tuple[FilterLoss, ...], int]:
    """Nodes lost to each filter in turn, and how many are left."""
    left = np.ones(columns.height, dtype=np.bool_)
    found = []
    for each in concerned(part, placer.pipeline):
        keeps = each.keep(part, columns, ALL)
        lost = np.flatnonzero(left & ~keeps)
        if len(lost):
            names = tuple(placer.nodes.rows[row].name for row in lost[:EXAMPLES])
            found.append(FilterLoss(each.name, len(lost), each.explain(part), names))
        left &= keeps
    return tuple(found), int(np.count_nonzero(left))


def explain_never(placer: Placer, ask: Ask) -> Refusal | None:
    """A refusal if the nodes could not hold the ask even when idle; None while some node is unseen."""
    nodes, field = placer.nodes, placer.unheeded(ask.part)
    if field is not None:
        return Refusal("never_fits", f"can never be placed: {nobody_heeds(field)}", field, HEED_HINT)
    if not len(nodes) or nodes.unseen or placer.shape(ask) is not None:
        return None
    part, need = ask.part, ask.nodes or 1
    topology = ask.topology
    if topology is not None and placer.shape(replace(ask, topology=None)) is not None:
        values = ", ".join(placer.domains(topology).names[:10]) or "none"
        message = (
            f"can never be placed: it needs {counted(need, 'node')} with {part} in {topology}, "
            "and they do not lie so even when idle"
        )
        hint = f"The values of the label {topology.label} are: {values}."
        return Refusal("never_fits", message, "topology", hint)
    found, fitting = losses(placer, part, nodes.idle)
    counts = "; ".join(f"{counted(loss.lost, 'node')}: {loss.message}" for loss in found)
    message = (
        f"can never be placed: it needs {counted(need, 'node')} with {part}, and {fitting} of {len(nodes)} "
        "could give that when idle" + (f" ({counts})" if counts else "")
    )
    largest = int(nodes.columns.gpu_count.max())
    where = "gpus" if part.gpus > largest else "nodes" if need > len(nodes) else ""
    return Refusal(
        "never_fits", message, where, f"The largest node has {counted(largest, 'GPU')}: 'corral nodes'."
    )


def _passed_over(state: State, cycle: Cycle, job: Job, now: float) -> str:
    """Why a job that would fit is not started."""
    if cycle.foresees(job, now):
        return "fits now: looked at in the next cycle"
    promised, promise = cycle.plan.promises.get(job.id), cycle.promise(now)
    if promised is not None:
        wait = duration(promised.start - now)
        return f"fits now, but would delay jobs before it: it can start in {wait} at the latest"
    if promise is None:
        return "fits now, but nobody passes the first of those that wait"
    first = state.jobs[promise.job].label
    if promise.at == NEVER:
        return f"fits now, but would hold what job {first} before it needs to start at all"
    limit = "has no time limit" if job.limit == NEVER else f"may run for {duration(job.limit)}"
    wait = duration(promise.at - now)
    return f"fits now, but {limit} and would delay job {first}, which can start in {wait} at the latest"


def _making_room(state: State, job: Job, now: float) -> str:
    """For whom a job waits that others are ended for."""
    victims = sorted(
        {
            victim
            for allocation in job.claim
            for victim, claimant in state.nodes.by_name[allocation.node].leaving.items()
            if claimant == job.id
        }
    )
    nodes = ", ".join(allocation.node for allocation in job.claim)
    if not victims:
        return f"starts on {nodes} in the next cycle"
    names = ", ".join(state.jobs[victim].label for victim in victims)
    left = duration(max(0.0, (job.stop_by or now) - now))
    return f"starts on {nodes} as soon as job {names} has made room, in {left} at the latest"


def _moving(state: State, job: Job) -> str:
    """Where a job goes that was told to, or that could not go there after all."""
    last = job.moves[-1]
    if last.undone:
        nodes, why = ", ".join(each.node for each in last.origin), last.undone
        return f"goes back to where it was, {nodes}: it could not be moved to {', '.join(last.to)}: {why}"
    other = state.jobs.get(last.for_job or 0)
    why = f" so that job {other.label} can start" if other is not None else ""
    then = "it starts there in the next cycle" if job.state is JobState.QUEUED else "it saves its state first"
    return f"is moved to {', '.join(last.to)}{why} (rebalancing {last.proposal}): {then}"


def _told(state: State, job: Job, now: float) -> str:
    if job.reason is Reason.MOVING:
        return _moving(state, job)
    if job.detail:
        return job.detail
    if job.reason is Reason.GRACE:
        return f"makes room: preempted by {job.stopped_by}"
    if job.idle_since is not None:
        return f"running on {', '.join(job.members)}; {idles(job, now)}"
    silent = [state.nodes.by_name[member.allocation.node] for member in job.running]
    silent = [node for node in silent if not node.up]
    if silent:
        return f"was on {silent[0].name}, which is not heard of: it {told(job, silent[0])}"
    nodes = ", ".join(job.members)
    sentences = {
        JobState.SCHEDULED: f"starting on {nodes}",
        JobState.RUNNING: f"running on {nodes}",
        JobState.COMPLETED: "completed with exit code 0",
    }
    return sentences.get(job.state, job.state.value.lower())
