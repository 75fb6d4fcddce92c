"""State changes here and nowhere else: one function per event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from controller.core import events
from controller.core.claims import leavers
from controller.core.events import Event
from controller.core.foresight import StartEstimate
from controller.core.gates import FRESH, Wait, closed, opened
from controller.core.health import Condition
from controller.core.jobs import Job, Member, Move, newest
from controller.core.licences import holds
from controller.core.marks import Marks
from controller.core.nodes import Node
from controller.core.offqueue import Stint
from controller.core.requests import relaxed
from controller.core.reservations import Reservation
from controller.core.state import State
from controller.core.transitions import require
from wire.words import GpuHealth, JobState, Reason

RATED = 100_000
_ENDING = {None: Reason.NONE, Reason.PREEMPTED: Reason.GRACE}
"""What a running job's reason is while it is being stopped."""


def apply(state: State, event: Event) -> None:
    """Make the event true."""
    _APPLY[type(event)](state, event)


def _move(job: Job, new: JobState, reason: Reason, detail: str = "") -> None:
    require(job.id, job.state, new)
    job.state, job.reason, job.detail = new, reason, detail


def _stop_charging(state: State, job: Job, at: float) -> None:
    """The attempt is over as a whole; until then its tenant pays for all of it."""
    if job.placed_at is not None:
        state.shares.use(state.tenant(job), -job.charge, at)
        job.charge = 0.0


def _job_queued(state: State, event: events.JobQueued) -> None:
    job = Job(
        id=event.job,
        spec=event.spec,
        user=event.user,
        ask=state.ask(event.spec),
        submitted_at=event.at,
        key=event.key,
        array=event.array,
        index=event.index,
        held=event.spec.hold,
        from_queue=event.from_queue,
        wait=Wait(event.gates, met=event.met, lost=event.lost) if event.gates else FRESH,
        reason=Reason.HELD if event.spec.hold else Reason.NEW,
    )
    state.index(job)
    state.accounts.wait(job)
    state.shares.enter(state.tenant(job))
    if state.nodes.demand.arrive(job.ask.part):
        state.nodes.reappraise()
    if job.ready:
        state.enqueue(job)


def _job_held(state: State, event: events.JobHeld) -> None:
    job = state.jobs[event.job]
    job.held, job.reason = True, Reason.HELD
    state.queue.remove(job.id)  # one that is being preempted is held from the moment it is queued again


def _job_released(state: State, event: events.JobReleased) -> None:
    job = state.jobs[event.job]
    job.held, job.reason = False, Reason.NEW
    _admit(state, job, event.at)


def _job_edited(state: State, event: events.JobEdited) -> None:
    job = state.jobs[event.job]
    moves = (event.spec.project, event.spec.queue) != (job.spec.project, job.spec.queue)
    state.queue.remove(job.id)
    if moves:
        state.accounts.leave(job)
        state.shares.leave(state.tenant(job))
    job.spec, job.from_queue = event.spec, event.from_queue
    state.sort(job)
    if moves:
        state.accounts.wait(job)
        state.shares.enter(state.tenant(job))
    ask = state.ask(relaxed(event.spec, job.from_queue) if job.wait.relaxed else event.spec)
    if ask != job.ask:
        job.ask = ask
        if state.nodes.demand.arrive(ask.part):
            state.nodes.reappraise()
    job.wait = replace(job.wait, gates=event.gates, met=event.met, lost=event.lost)
    if job.ready:
        state.enqueue(job)


def _job_relaxed(state: State, event: events.JobRelaxed) -> None:
    job = state.jobs[event.job]
    state.queue.remove(job.id)
    job.ask = state.ask(relaxed(job.spec, job.from_queue))
    job.wait = replace(job.wait, relaxed=True)
    state.enqueue(job)


def _job_promoted(state: State, event: events.JobPromoted) -> None:
    job = state.jobs[event.job]
    state.queue.remove(job.id)
    promoted = event.priority - job.spec.priority
    job.wait = replace(job.wait, promoted=promoted, promoted_at=event.at)
    state.enqueue(job)


def _priority_inherited(state: State, event: events.PriorityInherited) -> None:
    job = state.jobs[event.job]
    before = job.priority
    job.wait = replace(job.wait, inherited=event.priority)
    if job.ready and job.priority != before:
        state.queue.remove(job.id)
        state.enqueue(job)


def _deadline_doubted(state: State, event: events.DeadlineDoubted) -> None:
    job = state.jobs[event.job]
    job.wait = replace(job.wait, doubted=event.doubted)


def _start_estimated(state: State, event: events.StartEstimated) -> None:
    job = state.jobs[event.job]
    job.foreseen = (*job.foreseen, StartEstimate(event.kind, event.at, event.start))


def _dependency_decided(state: State, event: events.DependencyDecided) -> None:
    job = state.jobs[event.job]
    if event.met:
        job.wait = replace(job.wait, met=(*job.wait.met, event.index))
    else:
        job.wait = replace(job.wait, lost=(*job.wait.lost, event.index))


def _gate_closed(state: State, event: events.GateClosed) -> None:
    job = state.jobs[event.job]
    job.wait = replace(job.wait, gates=closed(job.wait.gates, event.gate))
    state.queue.remove(job.id)


def _gate_opened(state: State, event: events.GateOpened) -> None:
    job = state.jobs[event.job]
    job.wait, job.detail = replace(job.wait, gates=opened(job.wait.gates, event.gate)), ""
    _admit(state, job, event.at)


def _admit(state: State, job: Job, now: float) -> None:
    """From now on it is the job's turn that counts, unless something else keeps it out."""
    if job.ready:
        job.wait = replace(job.wait, ready_at=now)
        state.enqueue(job)


def _job_placed(state: State, event: events.JobPlaced) -> None:
    job = state.jobs[event.job]
    _unclaim(state, job)
    _move(job, JobState.SCHEDULED, Reason.STARTING)
    state.queue.remove(job.id)
    job.attempt, job.quality, job.placed_at = event.attempt, event.quality, event.at
    job.profile = event.profile
    job.predicted_s, job.planned_s = event.predicted_s, event.planned_s
    state.estimates.started(job, event.at)
    job.board(event.allocations)
    _hold(state, job, event.allocations, event.at)
    state.expect(job)
    state.licences.take(job.ask.licences)
    state.accounts.place(job, event.allocations)


def _prediction_outlived(state: State, event: events.PredictionOutlived) -> None:
    job = state.jobs[event.job]
    state.unexpect(job)
    job.planned_s = event.planned_s
    state.expect(job)


def _hold(state: State, job: Job, allocations: tuple[events.Allocation, ...], at: float) -> None:
    """The job holds these from now on, and its tenant uses them."""
    before = job.charge
    state.nodes.hold(job.id, allocations)
    if job.ask.part.social:
        for allocation in allocations:
            state.nodes.meet(job.ask.part, allocation.node)
    for charge in state.shares.sharing.charges(allocations, state.nodes.models):
        job.charge += charge
    state.shares.use(state.tenant(job), job.charge - before, at)


def _job_grew(state: State, event: events.JobGrew) -> None:
    job = state.jobs[event.job]
    more = {allocation.node: Member(allocation) for allocation in event.allocations}
    job.seat({**job.members, **more})  # a launch that is looked at later keeps the members it had
    _hold(state, job, event.allocations, event.at)
    state.accounts.grow(job, event.allocations)


def _job_shrunk(state: State, event: events.JobShrunk) -> None:
    job = state.jobs[event.job]
    for node in event.nodes:
        job.members[node].leaving = True
    state.preempted_at.append(event.at)


def _member_ready(state: State, event: events.MemberReady) -> None:
    state.jobs[event.job].members[event.node].ready = True


def _members_started(state: State, event: events.AttemptStarted | events.MembersStarted) -> None:
    job, pids = state.jobs[event.job], event.pids
    for node, pid in pids.items():
        member = job.members[node]
        member.started_at, member.pid = event.at, pid
    job.unstarted -= len(pids)
    if not job.unstarted and job.state is JobState.SCHEDULED:
        _run(state, job, event.at)


def _run(state: State, job: Job, at: float) -> None:
    """All who can be there are."""
    _move(job, JobState.RUNNING, _ENDING.get(job.stopping, Reason.CANCELLING))
    job.started_at = at
    state.note_elastic(job)
    if job.move is not None and job.attempt > job.move.attempt:
        job.moves = (*job.moves[:-1], replace(job.move, done_at=at))


def _checkpoint_saved(state: State, event: events.CheckpointSaved) -> None:
    job = state.jobs[event.job]
    job.checkpoint = newest(job.checkpoint, event.checkpoint)


def _members_exited(state: State, event: events.AttemptExited | events.MembersExited) -> None:
    job, exits, at = state.jobs[event.job], event.exits, event.at
    members, unborn = job.members, 0
    for node, how in exits.items():
        member = members[node]
        member.ended_at = at
        unborn += member.started_at is None
        member.code, member.signal, member.why = how.code, how.signal, how.why
        member.cpu_s, member.max_rss_mib, member.use = how.cpu_s, how.max_rss_mib, how.use
        if how.checkpoint is not None:
            job.checkpoint = newest(job.checkpoint, how.checkpoint)
    job.unended -= len(exits)
    if unborn:
        job.unstarted -= unborn
        begun = [each.started_at for each in members.values() if each.started_at is not None]
        if begun and not job.unstarted and job.state is JobState.SCHEDULED:
            _run(state, job, max(begun))  # the others do without them
    state.nodes.free(job.id, exits)
    if job.ask.part.social:
        for node in exits:
            state.nodes.company.leave(job.ask.part, node)
    state.accounts.free(job, [members[node].allocation for node in exits], at)
    if not holds(job):
        state.licences.give(job.ask.licences)


def _idle_noted(state: State, event: events.IdleNoted) -> None:
    job = state.jobs[event.job]
    job.idle_since, job.idle_until = event.since, event.until
    if job.stopping is None:
        job.reason = Reason.IDLE


def _idle_ended(state: State, event: events.IdleEnded) -> None:
    job = state.jobs[event.job]
    job.idle_since = job.idle_until = None
    if job.stopping is None:
        job.reason = Reason.NONE


def _stop_requested(state: State, event: events.StopRequested) -> None:
    job = state.jobs[event.job]
    state.unexpect(job)
    job.stopping, job.stopped_by, job.stop_by = event.reason, event.by, event.until
    state.expect(job)
    if event.reason is Reason.USER:
        job.reason = Reason.CANCELLING
    elif event.reason is Reason.PREEMPTED:
        job.reason = Reason.MOVING if job.claim else Reason.GRACE
        state.preempted_at.append(event.at)
        if len(state.preempted_at) > 2 * RATED:
            del state.preempted_at[:RATED]


def _preemption_planned(state: State, event: events.PreemptionPlanned) -> None:
    job = state.jobs[event.job]
    state.queue.remove(job.id)
    job.claim, job.claim_quality, job.stop_by = event.allocations, event.quality, event.by
    job.claim_from = event.victims
    job.reason = Reason.PREEMPTING
    for victim in event.victims:
        if not victim.nodes:
            state.jobs[victim.job].yields_to += (job.id,)
    for allocation in event.allocations:
        state.nodes.claim(job.id, allocation, event.leaving(allocation.node))
        if job.ask.part.social:  # as if it were there: nobody comes meanwhile whom it refuses
            state.nodes.company.enter(job.ask.part, allocation.node)
    state.claims[job.id] = None
    state.licences.take(job.ask.licences)
    state.expect(job)


def _unclaim(state: State, job: Job) -> None:
    if not job.claim:
        return
    if not job.unended:  # else it is being moved, and still holds what it held before
        state.unexpect(job)
        state.licences.give(job.ask.licences)
        job.stop_by = None
    for allocation in job.claim:
        heirs = leavers(state, state.nodes.by_name[allocation.node], without=job.id)
        state.nodes.unclaim(job.id, allocation.node, heirs)
        if job.ask.part.social:
            state.nodes.company.leave(job.ask.part, allocation.node)
    job.claim, job.claim_from, job.claim_quality = (), (), 0
    del state.claims[job.id]


def _preemption_dropped(state: State, event: events.PreemptionDropped) -> None:
    job = state.jobs[event.job]
    _unclaim(state, job)
    if job.state is JobState.QUEUED:
        job.reason = Reason.NEW
        state.enqueue(job)


def _move_planned(state: State, event: events.MovePlanned) -> None:
    job = state.jobs[event.job]
    origin = tuple(member.allocation for member in job.running)
    to = tuple(allocation.node for allocation in event.allocations)
    job.moves += (
        Move(
            event.proposal,
            event.kind,
            event.at,
            event.attempt,
            origin,
            job.quality or 0,
            to,
            event.gpu_hours,
            event.for_job,
            event.node,
        ),
    )
    _keep_place(state, job, event.allocations, event.quality)


def _keep_place(state: State, job: Job, allocations: tuple[events.Allocation, ...], quality: int) -> None:
    """The job starts there next. What it still holds on the same nodes does not count twice."""
    job.claim, job.claim_quality = allocations, quality
    job.claim_from = (events.Victim(job.id, 0.0, job.attempt),)
    for allocation in allocations:
        state.nodes.claim(job.id, allocation, [job.id])
        if job.ask.part.social:
            state.nodes.company.enter(job.ask.part, allocation.node)
    state.claims[job.id] = None
    if not job.unended:
        state.licences.take(job.ask.licences)


def _move_undone(state: State, event: events.MoveUndone) -> None:
    job = state.jobs[event.job]
    _unclaim(state, job)
    job.moves = (*job.moves[:-1], replace(job.moves[-1], undone=event.why))
    if event.allocations:
        state.queue.remove(job.id)
        _keep_place(state, job, event.allocations, job.moves[-1].quality)
        _wait_for_place(state, job, event.at)
    elif job.state is JobState.QUEUED:
        job.reason, job.detail = Reason.NEW, f"was not moved: {event.why}"
        state.enqueue(job)


def _wait_for_place(state: State, job: Job, at: float) -> None:
    """A job that has ended where it was starts in the place that is kept for it when a cycle looks next."""
    if job.state is JobState.QUEUED:
        job.reason, job.stop_by = Reason.MOVING, at
        state.expect(job)
        state.nodes.stirred.add(job.id)


def _job_preempted(state: State, event: events.JobPreempted) -> None:
    job = state.jobs[event.job]
    _move(job, JobState.PREEMPTED, Reason.PREEMPTED, f"preempted by {event.by}")
    job.preemptions = (*job.preemptions, event)


def _job_requeued(state: State, event: events.JobRequeued) -> None:
    job = state.jobs[event.job]
    _move(job, JobState.QUEUED, event.reason, event.detail)
    state.note_elastic(job)
    state.unexpect(job)
    state.accounts.finish(job, again=True)
    _stop_charging(state, job, event.at)
    job.spent_gpu_s += sum(member.gpu_s(0.0, event.at) for member in job.members.values())
    job.spent_wh += sum(member.use.wh for member in job.members.values() if member.use is not None)
    job.seat({})
    job.started_at = job.placed_at = job.quality = job.predicted_s = job.planned_s = None
    job.foreseen = ()
    state.sort(job)
    job.idle_since = job.idle_until = None
    job.stopping, job.stopped_by, job.stop_by, job.yields_to = None, "", None, ()
    wait = replace(job.wait, again_at=event.again_at, restarts=job.wait.restarts + event.restart)
    if event.again_at is not None:
        wait = replace(wait, gates=closed(wait.gates, Reason.BACKOFF))
    job.wait = wait
    _admit(state, job, event.at)
    if job.claim:
        _wait_for_place(state, job, event.at)


def _job_ended(state: State, event: events.JobEnded) -> None:
    job = state.jobs[event.job]
    _move(job, event.state, event.reason, event.detail)
    state.note_elastic(job)
    _unclaim(state, job)
    state.unexpect(job)
    _stop_charging(state, job, event.at)
    job.ended_at, job.code, job.signal = event.at, event.code, event.signal
    job.idle_since = job.idle_until = None
    if job.move is not None:
        job.moves = (*job.moves[:-1], replace(job.move, undone="the job ended before"))
    state.queue.remove(job.id)
    state.accounts.finish(job, again=False)
    state.estimates.settle(job, event.state, event.reason, event.at)
    state.shares.leave(state.tenant(job))
    state.retire(job)


def _node_added(state: State, event: events.NodeAdded) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        marks = Marks(configured=event.taints)
        state.nodes.insert(Node(event.node, dict(event.labels), since=event.at, host=event.host, marks=marks))
    else:
        node.host = event.host
        state.nodes.label(node, event.labels, replace(node.marks, configured=event.taints))


def _node_marked(state: State, event: events.NodeMarked) -> None:
    node = state.nodes.by_name[event.node]
    known = {**node.facts.labels, **node.labels}
    state.nodes.label(node, node.labels, node.marks.changed(event.labels, event.taints, known))


def _node_removed(state: State, event: events.NodeRemoved) -> None:
    state.nodes.remove(state.nodes.by_name[event.node])
    state.host_keys.pop(event.node, None)
    state.offqueue.leave(event.node, event.at, state.shares)


def _stranger_came(state: State, event: events.StrangerCame) -> None:
    stint = Stint(event.node, event.uuid, event.user, event.pid, event.command, event.at, event.rate)
    state.offqueue.begin(stint, state.shares)


def _stranger_left(state: State, event: events.StrangerLeft) -> None:
    state.offqueue.end((event.node, event.uuid, event.user), event.at, state.shares)


def _host_key_pinned(state: State, event: events.HostKeyPinned) -> None:
    state.host_keys[event.node] = event.key


def _node_joined(state: State, event: events.NodeJoined) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        node = Node(event.node, {})
        state.nodes.insert(node)
    node.up, node.why, node.since = True, node.why if node.drained else "", event.at
    node.down = False
    node.version = event.version
    state.nodes.equip(node, event.facts, event.boot_id, event.overcommit)


def _node_went_away(state: State, event: events.NodeWentAway) -> None:
    node = state.nodes.by_name[event.node]
    node.up, node.since = False, event.at
    if not node.drained:
        node.why = event.why
    state.offqueue.leave(event.node, event.at, state.shares)
    state.nodes.refresh(node)


def _node_went_down(state: State, event: events.NodeWentDown) -> None:
    node = state.nodes.by_name[event.node]
    node.down = True
    state.nodes.stirred.update(node.claims)


def _node_declared_lost(state: State, event: events.NodeDeclaredLost) -> None:
    node = state.nodes.by_name[event.node]
    node.down = True
    if not node.drained:
        node.why = f"declared lost by {event.by}"


def _node_drained(state: State, event: events.NodeDrained) -> None:
    node = state.nodes.by_name[event.node]
    node.drained, node.why, node.since = True, event.why, event.at
    state.nodes.refresh(node)


def _node_resumed(state: State, event: events.NodeResumed) -> None:
    node = state.nodes.by_name[event.node]
    node.drained, node.why, node.since = False, "", event.at
    state.nodes.refresh(node)


def _gpu_health_recorded(state: State, event: events.GpuHealthRecorded) -> None:
    node = state.nodes.by_name[event.node]
    node.health[event.uuid] = Condition(
        GpuHealth(event.health), event.why, event.needs, event.falls, event.good, event.at, event.due
    )
    state.nodes.refresh(node)


def _quota_set(state: State, event: events.QuotaSet) -> None:
    state.limit((event.scope, event.name), event.quota)


def _quota_unset(state: State, event: events.QuotaUnset) -> None:
    state.limit((event.scope, event.name), None)


def _share_set(state: State, event: events.ShareSet) -> None:
    if event.weight is not None:
        state.shares.reweigh(event.share, event.weight)
    if event.soft is not None or event.hard is not None:
        state.limit_share(event.share, event.soft, event.hard)


def _reservation_made(state: State, event: events.ReservationMade) -> None:
    state.reservations.put(Reservation(event.asked, event.nodes, event.asked.starts_at, event.by))


def _reservation_began(state: State, event: events.ReservationBegan) -> None:
    state.reservations.begin(event.reservation)


def _reservation_ended(state: State, event: events.ReservationEnded) -> None:
    state.reservations.end(event.reservation, event.again_at)


def _reservation_cancelled(state: State, event: events.ReservationCancelled) -> None:
    state.reservations.drop(event.reservation)


def _gpu_fault_noted(state: State, event: events.GpuFaultNoted) -> None:
    member = state.jobs[event.job].members[event.node]
    member.fault, member.own = event.fault, event.own


_APPLY: dict[type[Any], Callable[[State, Any], None]] = {
    events.JobQueued: _job_queued,
    events.JobHeld: _job_held,
    events.JobReleased: _job_released,
    events.DependencyDecided: _dependency_decided,
    events.JobEdited: _job_edited,
    events.JobRelaxed: _job_relaxed,
    events.JobPromoted: _job_promoted,
    events.DeadlineDoubted: _deadline_doubted,
    events.StartEstimated: _start_estimated,
    events.PriorityInherited: _priority_inherited,
    events.GateClosed: _gate_closed,
    events.GateOpened: _gate_opened,
    events.JobPlaced: _job_placed,
    events.PredictionOutlived: _prediction_outlived,
    events.MemberReady: _member_ready,
    events.AttemptStarted: _members_started,
    events.MembersStarted: _members_started,
    events.CheckpointSaved: _checkpoint_saved,
    events.AttemptExited: _members_exited,
    events.MembersExited: _members_exited,
    events.IdleNoted: _idle_noted,
    events.IdleEnded: _idle_ended,
    events.StopRequested: _stop_requested,
    events.PreemptionPlanned: _preemption_planned,
    events.PreemptionDropped: _preemption_dropped,
    events.MovePlanned: _move_planned,
    events.MoveUndone: _move_undone,
    events.JobShrunk: _job_shrunk,
    events.JobGrew: _job_grew,
    events.JobPreempted: _job_preempted,
    events.JobRequeued: _job_requeued,
    events.JobEnded: _job_ended,
    events.NodeAdded: _node_added,
    events.NodeRemoved: _node_removed,
    events.HostKeyPinned: _host_key_pinned,
    events.StrangerCame: _stranger_came,
    events.StrangerLeft: _stranger_left,
    events.NodeMarked: _node_marked,
    events.NodeJoined: _node_joined,
    events.NodeWentAway: _node_went_away,
    events.NodeWentDown: _node_went_down,
    events.NodeDeclaredLost: _node_declared_lost,
    events.NodeDrained: _node_drained,
    events.NodeResumed: _node_resumed,
    events.GpuHealthRecorded: _gpu_health_recorded,
    events.QuotaSet: _quota_set,
    events.QuotaUnset: _quota_unset,
    events.ShareSet: _share_set,
    # A summary for people: what follows from it is told job by job.
    events.RebalancePlanned: lambda _state, _event: None,
    events.PluginFailed: lambda _state, _event: (
        None
    ),  # the pipeline's watch knows: state does not depend on it
    events.ReservationMade: _reservation_made,
    events.ReservationBegan: _reservation_began,
    events.ReservationEnded: _reservation_ended,
    events.ReservationCancelled: _reservation_cancelled,
    events.GpuFaultNoted: _gpu_fault_noted,
}
