"""Explains in a sentence why a job waits, from the filters and limits that keep it from starting.

Four reasons come first: the job is held, or it waits for a dependency, a start time or the end of preempted
jobs. For any other job, `_why_waiting` checks the possible reasons in the order of the scheduling pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from controller.core.explain.blockers import (
    deadline_blocker,
    deadline_texts,
    fewer_nodes_text,
    licence_blocker,
    limit_blocker,
    model_quota_blocker,
    other_profile_blocker,
    reservation_blocker,
    starts_next_pass,
)
from controller.core.explain.filter_losses import (
    MAX_EXAMPLES,
    BindingFilters,
    binding_filters,
    filter_losses,
    uneven_gpus_hint,
)
from controller.core.explain.largest_jobs import too_many_gpus_hint
from controller.core.explain.node_scores import common_switch_text, nearness_note, node_scores
from controller.core.framework.interfaces import Reserves
from controller.core.framework.unfiltered_constraints import UNFILTERED_HINT, unfiltered_message
from controller.core.lifecycle.idle_gpus import idle_text
from controller.core.lifecycle.limit_warnings import limit_warning_text
from controller.core.lifecycle.node_loss import silent_node_text
from controller.core.lifecycle.waiting.gates import gates_text, waiting_effects
from controller.core.lifecycle.waiting.priority_inheritance import inherited_text
from controller.core.model.events.nominations import move_cause
from controller.core.model.inputs import Refusal
from controller.core.model.job import NEVER, Job
from controller.core.model.request import PerNodeRequest, ResourceRequest
from controller.core.placement.placer import Placer
from controller.core.state.order_view import overdue_gangs, position_key, priority_points
from controller.core.state.state import State
from wire.api.reasons import Ahead, FilterLoss, Points, Why
from wire.names import PRIORITIES, GpuHealth, JobState, Reason, priority_name
from wire.text import counted, duration, printable

if TYPE_CHECKING:
    from controller.core.backfill.cycle import Cycle

NAMED = 8
"""The most jobs ahead in the queue, and the most GPUs out of service, that an explanation lists."""

RATIONED = "its user has used more than the part of the project, so backfill tries the job after all others"
CONSIDERED_NEXT = "fits now: considered in the next pass"
"""The text for a job that will start in the next scheduling pass."""


def explain(state: State, placer: Placer, cycle: Cycle, job: Job, now: float) -> Why:
    """Return why the job is in its state. For a waiting job, also return how many nodes each filter
    rejects.
    """
    if job.state is not JobState.QUEUED:
        return Why(job.reason, _state_text(state, job, now) + common_switch_text(placer, job))
    if job.held:
        return Why(Reason.HELD, held_text(job))
    if job.wait.gates:
        return Why(job.wait.gates[0], gates_text(state, job, now))
    if job.claim and job.reason is Reason.MOVING:
        return Why(Reason.MOVING, _moving(state, job))
    if job.claim:
        return Why(Reason.PREEMPTING, _making_room(state, job, now))
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
            *_notes(state, placer, job, now),
            *(RATIONED for tenant in cycle.rationed if tenant == state.tenant(job)),
            *(_hours_note(state, now) if why.reason is Reason.QUOTA else ()),
        ),
        nodes=node_scores(placer, job) if len(state.nodes) else (),
    )


def held_text(job: Job) -> str:
    """Return a sentence that says that the job is held, and which users may release the job."""
    if job.operator_hold:
        return f"held by operator {printable(job.operator_hold)}: only an operator can release it"
    return f"held until a release: corral job release {job.label}"


def request_text(job: Job) -> str:
    """Return the request of a waiting job as text, such as `8 GPUs on 2 nodes, 1h00m00s, priority normal`."""
    spec = job.spec
    what = [counted(spec.gpus, "GPU")] if spec.gpus else [f"{counted(spec.cpu_milli / 1000, 'CPU')} per node"]
    what += [counted(spec.nodes, "node")] if (spec.nodes or 1) > 1 and spec.nodes else []
    limit = "no time limit" if spec.time_limit_s is None else f"{duration(spec.time_limit_s)}"
    return f"{' on '.join(what)}, {limit}, priority {priority_name(job.priority).lower()}"


def _notes(state: State, placer: Placer, job: Job, now: float) -> Iterator[str]:
    """Yield more facts about a waiting job, each as a text. They are limits and budgets that move the job
    back in the queue, an unusually long wait, and suitable GPUs that are out of service.
    """
    soft = state.over_soft_quota(job, now)
    if soft is not None:
        yield f"it is ordered behind all jobs within their soft limits: {soft}"
    if state.budgets.comes_last(job.spec.project, now):
        standing = state.budgets.standing(job.spec.project, now)
        used = "" if standing is None else f" ({standing.text})"
        yield f"its project has used its budget{used}, so the job is ordered behind those of other projects"
    if state.scavengers_last and job.granted_priority <= PRIORITIES["SCAVENGER"]:
        yield "it has the priority SCAVENGER, so it is ordered behind all other jobs"
    if job.spec.time_min_s is not None and job.spec.time_min_s < job.limit:
        yield f"may start with a shorter time limit, at least {duration(job.spec.time_min_s)} (--time-min)"
    if job.wait.alarmed:
        yield "it has waited much longer than jobs of its queue and width usually wait (wait_alarm)"
    if job.id in overdue_gangs(state, state.queue_of(job), now):
        after = f"it has waited longer than {duration(state.gang_after_s)} (gang_after_s)"
        why = "it was preempted and needs several nodes" if job.preemptions else after
        yield f"{why}, so it comes before all other jobs"
    yield from nearness_note(placer, job) if len(state.nodes) else ()
    if job.ask.part.wants_gpus:
        shape = placer.shape(job.ask)
        possible = placer.possible_nodes(shape.part) if shape is not None else state.nodes.columns.open
        out = [
            f"{node.name}:{gpu.number} ({node.health_of(gpu).value})"
            for node in state.nodes.rows
            if possible[node.row]
            for gpu in node.facts.gpus
            if node.health_of(gpu) is not GpuHealth.OK
        ]
        if out:
            more = f" and {len(out) - NAMED} more" if len(out) > NAMED else ""
            yield f"takes no new work: GPU {', '.join(out[:NAMED])}{more}"


def _hours_note(state: State, now: float) -> Iterator[str]:
    """Yield a text about the tables [hours.NAME] in force, if there are such tables."""
    timetable = state.quotas.rules.timetable
    if timetable.tables:
        until = timetable.next_change(now)
        present = _tables_text(timetable.in_force(now))
        wait = (
            f"; in {duration(until - now)}: {_tables_text(timetable.in_force(until))}"
            if until < NEVER
            else ""
        )
        yield f"limits in force: {present}{wait}"


def _tables_text(tables: tuple[str, ...]) -> str:
    """Return the names of tables [hours.NAME] as in scheduler.toml. Return [quota] if there are no such
    tables.
    """
    return " and ".join(f"[hours.{printable(name)}]" for name in tables) or "[quota]"


def _receipt(state: State, job: Job, now: float) -> tuple[Points, ...]:
    """Return how many points each factor, such as age, adds to the job's priority. A note tells if the
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
    reserved_quota = cycle.quota_delay(job, now)
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
        return Why(Reason.PRIORITY, _passed_over(state, cycle, job, now), found, fitting=fitting)
    sentence = (
        f"needs {counted(need, 'node')} with {part}; {_nodes_that_can(placer, part, need, found, fitting)}"
    )
    lack = licence_blocker(state, job)
    besides = f"; besides, it {lack}" if lack else ""
    if limit is not None:
        # A queue keeps GPUs free, but even these GPUs are not enough for the job.
        besides += f"; besides, {limit[1]}"
    return Why(Reason.RESOURCES, sentence + fewer_nodes_text(job, now) + besides, found, fitting=fitting)


def _nodes_that_can(
    placer: Placer, part: PerNodeRequest, need: int, found: tuple[FilterLoss, ...], fitting: int
) -> str:
    """Return a text that says how many nodes can hold the request now, and what the other nodes lack.
    `fitting` is the number of nodes that can hold the request, `found` has the lack of the others, and `need`
    is the number of nodes that the job requests.
    """
    bound, total = binding_filters(placer, part), len(placer.nodes)
    if bound.suitable < need:
        # Even if all nodes were idle, too few could hold the request, for example because nodes were removed
        # or tainted after the submit. Therefore the text says what idle nodes lack.
        never, _ = filter_losses(placer, part, placer.nodes.idle)
        return f"{fitting} of {total} can give that now: {BindingFilters(bound.suitable, never or found)}"
    suitable = f"{bound.suitable} suitable nodes" if bound.suitable < total else f"{total}"
    if bound.suitable == 1 < total:
        suitable = "1 suitable node"
    return f"{fitting} of {suitable} can give that now: {bound}"


def reason_of(state: State, job: Job) -> Reason:
    """Return the pending reason that the last scheduling pass recorded. Lists of jobs show this reason.

    No filter is called, because this function runs for each job of a list.
    """
    if job.held and job.state is JobState.QUEUED and job.reason is Reason.PREEMPTED:
        # The job was preempted by an order that also holds it.
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


def never_fits(placer: Placer, ask: ResourceRequest) -> Refusal | None:
    """Return a refusal if the nodes could not hold the request even if all were idle; otherwise None.

    Also return None while some node has not connected since the controller started. Its hardware is unknown
    or may have changed.
    """
    if placer.shape(ask) is not None:
        return None
    nodes, field = placer.nodes, placer.unsupported_request(ask.part)
    if field is not None:
        return Refusal(
            "never_fits", f"can never be placed: {unfiltered_message(field)}", field, UNFILTERED_HINT
        )
    if not len(nodes) or nodes.never_connected:
        return None
    if any(node.reconnect_expected for node in nodes.rows):
        return None
    part, need = ask.part, ask.nodes or 1
    topology = ask.topology
    too_many = too_many_gpus_hint(nodes.columns, ask)
    if ask.one_model and placer.shape(replace(ask, one_model=False)) is not None:
        what = counted(part.gpus, "GPU") if ask.nodes is None else f"{counted(need, 'node')} with {part}"
        message = f"can never be placed: it needs {what} of one GPU model"
        hint = too_many or "--mixed-models allows nodes with different GPU models."
        return Refusal("never_fits", message, "gpus" if ask.nodes is None else "nodes", hint)
    if topology is not None and placer.shape(replace(ask, topology=None)) is not None:
        values = ", ".join(placer.domains(topology).names[:10]) or "none"
        message = (
            f"can never be placed: it needs {counted(need, 'node')} with {part} in {topology}, "
            "and no such set of nodes exists, even when idle"
        )
        hint = f"The values of the label {topology.label} are: {values}."
        return Refusal("never_fits", message, "topology", hint)
    largest = int(nodes.columns.gpu_count.max())
    if part.wants_gpus and not largest:
        return _without_gpus(placer, ask)
    found, fitting = filter_losses(placer, part, nodes.idle)
    counts = "; ".join(f"{counted(loss.lost, 'node')}: {loss.message}" for loss in found)
    message = (
        f"can never be placed: it needs {counted(need, 'node')} with {part}, and {fitting} of {len(nodes)} "
        "could give that when idle" + (f" ({counts})" if counts else "")
    )
    where = "gpus" if part.gpus > largest else "nodes" if need > len(nodes) else ""
    if any(loss.filter == "image" for loss in found):
        hint = "Images need podman, docker or apptainer: 'corral nodes show NODE' shows what the node has."
        return Refusal("never_fits", message, "image", hint)
    hint = too_many or (uneven_gpus_hint(part.gpus, len(nodes), largest) if ask.nodes is None else "")
    if not hint:
        size = f"The largest node has {counted(largest, 'GPU')}: 'corral nodes'."
        hint = size if where == "gpus" else "'corral nodes' shows what each node has."
    return Refusal("never_fits", message, where, hint)


def _without_gpus(placer: Placer, ask: ResourceRequest) -> Refusal:
    """Return the refusal of a GPU job on a cluster without GPUs.

    The refusal mentions the GPU driver, because a host with GPUs but without a driver reports no GPUs.
    """
    names = [node.name for node in placer.nodes.rows]
    silent_node_text = ", ".join(names[:MAX_EXAMPLES]) + (", …" if len(names) > MAX_EXAMPLES else "")
    message = (
        f"can never be placed: it needs {ask.part}, and no node has a GPU: "
        f"no NVIDIA driver (NVML) was found on {silent_node_text}"
    )
    hint = (
        f"Does 'nvidia-smi' work there? To try Corral without GPUs, write gpus = \"simulated:8xH100\" under "
        f"[nodes.{names[0]}] in scheduler.toml and restart the controller, or submit without GPUs."
    )
    return Refusal("never_fits", message, "gpus", hint)


def _passed_over(state: State, cycle: Cycle, job: Job, now: float) -> str:
    """Return why a job that fits now does not start. Usually it would delay the reserved start of another
    job.
    """
    if starts_next_pass(cycle, job, now):
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


def _making_room(state: State, job: Job, now: float) -> str:
    """Return a sentence that names the preempted jobs that must end before this job starts."""
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
    return f"starts on {nodes} as soon as job {names} has left, in {left} at the latest"


def _moving(state: State, job: Job) -> str:
    """Return a sentence that names the nodes to which a job is being moved. After a failed move, these are
    the nodes to which it returns.
    """
    last = job.moves[-1]
    if last.undone:
        nodes, why = ", ".join(each.node for each in last.origin), last.undone
        return f"goes back to its former nodes, {nodes}: it could not be moved to {', '.join(last.to)}: {why}"
    other = state.jobs.get(last.for_job or 0)
    why = f" so that job {other.label} can start" if other is not None else ""
    then = "it starts there in the next cycle" if job.state is JobState.QUEUED else "it saves its state first"
    return f"is moved to {', '.join(last.to)}{why} ({move_cause(last.kind, last.proposal)}): {then}"


def _running_remarks(state: State, job: Job, now: float) -> tuple[str, ...]:
    return short_limit_text(job), limit_warning_text(job, now), _drain_text(state, job, now)


def short_limit_text(job: Job) -> str:
    """Return a sentence about the time limit of the attempt if it is shorter than the job requests; otherwise
    an empty text.
    """
    if job.short is None:
        return ""
    asked = job.spec.time_limit_s
    instead = "" if asked is None else f" instead of {duration(asked)}"
    why = f": {job.short.why}" if job.short.why else ""
    return f"its time limit is {duration(job.short.limit_s)}{instead} (--time-min), to start earlier{why}"


def _drain_text(state: State, job: Job, now: float) -> str:
    """Return a sentence about the timed drain of a node if the running job must leave the node before its own
    end; otherwise an empty text.
    """
    for member in job.running if state.reservations.drains else ():
        node = state.nodes.by_name[member.allocation.node]
        drain = node.timed_drain
        if drain is not None and job.latest_end > drain.empty_by and job.stopping is None:
            why = f" ({printable(drain.why)})" if drain.why else ""
            left = duration(max(0.0, drain.empty_by - now))
            return f"node {node.name} is to be empty in {left}{why}, so the job is told to stop before"
    return ""


def _state_text(state: State, job: Job, now: float) -> str:
    if job.reason is Reason.MOVING:
        return _moving(state, job)
    if job.detail:
        return job.detail
    if job.reason is Reason.GRACE:
        return f"is being stopped: preempted by {job.stopped_by}"
    nodes = ", ".join(member.allocation.node for member in job.staying)
    if job.idle_since is not None:
        return f"running on {nodes}; {idle_text(job, now)}"
    remarks = [text for text in _running_remarks(state, job, now) if text]
    if remarks and job.state in (JobState.RUNNING, JobState.SCHEDULED):
        return f"{'starting' if job.started_at is None else 'running'} on {nodes}; {'; '.join(remarks)}"
    silent = [state.nodes.by_name[member.allocation.node] for member in job.running]
    silent = [node for node in silent if not node.up]
    if silent:
        return f"was on {silent[0].name}, which is silent: it {silent_node_text(job, silent[0])}"
    sentences = {
        JobState.SCHEDULED: f"starting on {nodes}",
        JobState.RUNNING: f"running on {nodes}",
        JobState.COMPLETED: "completed with exit code 0",
    }
    return sentences.get(job.state, job.state.value.lower())
