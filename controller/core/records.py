"""Jobs and nodes to rows and back: what a restart reads instead of the whole journal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller.core.claims import leavers
from controller.core.events import (
    AS_IT_IS,
    Allocation,
    Event,
    JobEdited,
    JobEvent,
    JobPreempted,
    JobQueued,
    NodeEvent,
    Overcommit,
    Victim,
)
from controller.core.foresight import StartEstimate
from controller.core.gates import FRESH, Wait
from controller.core.health import Condition
from controller.core.jobs import Job, Member, Move
from controller.core.licences import counted
from controller.core.marks import Marks
from controller.core.nodes import JUST_STARTED, Node
from controller.core.notes import recall
from controller.core.requests import ask_of, relaxed
from controller.core.rows import JobRow, NodeRow, NoteRow
from controller.core.state import State
from wire.codec import decode, dumps, encode
from wire.frames import Checkpoint, GpuUse, NodeFacts
from wire.hosts import HostSpec
from wire.spec import JobSpec
from wire.words import GpuHealth, JobState, NodeState, Reason

REMOVED = "removed"
"""The state of a row whose node is gone; it is overwritten when one of the same name comes."""


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member as its row keeps it."""

    allocation: Allocation
    started_at: float | None
    pid: int | None
    ended_at: float | None
    code: int | None
    signal: int | None
    why: str
    cpu_s: float
    max_rss_mib: int
    fault: str = ""
    own: bool = False
    ready: bool = False
    use: GpuUse | None = None
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class PreemptionRecord:
    """What a job has to do with making room."""

    claim: tuple[Allocation, ...]
    claim_quality: int
    claim_from: tuple[Victim, ...]
    stop_by: float | None
    yields_to: tuple[int, ...]
    history: tuple[JobPreempted, ...]
    moves: tuple[Move, ...] = ()


NOTHING = PreemptionRecord((), 0, (), None, (), ())


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What changes in a job's life, beside the columns of its row."""

    index: int | None
    reason: Reason
    detail: str
    held: bool
    attempt: int
    members: tuple[MemberRecord, ...]
    quality: int | None
    placed_at: float | None
    started_at: float | None
    stopping: Reason | None
    stopped_by: str
    code: int | None
    signal: int | None
    checkpoint: Checkpoint | None = None
    wait: Wait | None = None
    """None: as of a job that came and was never kept out of the queue."""
    preemption: PreemptionRecord | None = None
    """None: of a job that neither makes room nor has room made for it, and never made any."""
    charge: float = 0.0
    spent_gpu_s: float = 0.0
    spent_wh: float = 0.0
    from_queue: tuple[str, ...] = ()
    predicted_s: float | None = None
    planned_s: float | None = None
    foreseen: tuple[StartEstimate, ...] = ()
    idle_since: float | None = None
    idle_until: float | None = None
    profile: str = ""
    """Who placed it. That of a job without a place follows from the configuration."""


@dataclass(frozen=True, slots=True)
class GpuRecord:
    """Health of one GPU as last recorded."""

    uuid: str
    health: GpuHealth
    why: str
    needs: str = ""
    falls: int = 0
    good: int = 0
    since: float = 0.0
    due: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node as its row keeps it; who holds what stands with the jobs."""

    labels: Mapping[str, str]
    facts: NodeFacts
    drained: bool
    why: str
    since: float
    boot_id: str
    version: str
    health: tuple[GpuRecord, ...] = field(default=())
    host: HostSpec | None = None
    marks: Marks = field(default_factory=Marks)
    down: bool = False
    overcommit: Overcommit = AS_IT_IS


def job_row(job: Job, *, with_spec: bool) -> JobRow:
    """The row of a job; the spec never changes, so it is written once."""
    record = JobRecord(
        job.index,
        job.reason,
        job.detail,
        job.held,
        job.attempt,
        tuple(_member_record(member) for member in job.members.values()),
        job.quality,
        job.placed_at,
        job.started_at,
        job.stopping,
        job.stopped_by,
        job.code,
        job.signal,
        job.checkpoint,
        None if job.wait is FRESH or job.wait == FRESH else job.wait,
        _preemption_record(job),
        job.charge,
        job.spent_gpu_s,
        job.spent_wh,
        job.from_queue,
        job.predicted_s,
        job.planned_s,
        job.foreseen,
        idle_since=job.idle_since,
        idle_until=job.idle_until,
        profile=job.profile if job.placed_at is not None else "",
    )
    return JobRow(
        id=job.id,
        user=job.user,
        project=job.spec.project,
        queue=job.spec.queue,
        name=job.name,
        state=job.state.value,
        submitted_at=job.submitted_at,
        ended_at=job.ended_at,
        key=job.key,
        array=job.array,
        spec=dumps(encode(job.spec)) if with_spec else None,
        body=dumps(encode(record)),
    )


def _preemption_record(job: Job) -> PreemptionRecord | None:
    if not (job.claim or job.preemptions or job.stop_by or job.moves or job.yields_to):
        return None
    return PreemptionRecord(
        job.claim, job.claim_quality, job.claim_from, job.stop_by, job.yields_to, job.preemptions, job.moves
    )


def _member_record(member: Member) -> MemberRecord:
    return MemberRecord(
        member.allocation,
        member.started_at,
        member.pid,
        member.ended_at,
        member.code,
        member.signal,
        member.why,
        member.cpu_s,
        member.max_rss_mib,
        member.fault,
        member.own,
        member.ready,
        member.use,
        member.leaving,
    )


def job_of(row: JobRow) -> Job:
    """The job a row describes; the row must bring its spec."""
    spec = decode(JobSpec, json.loads(row.spec or "null"), f"jobs[{row.id}].spec")
    record = decode(JobRecord, json.loads(row.body), f"jobs[{row.id}].body")
    preemption = record.preemption or NOTHING
    job = Job(
        id=row.id,
        spec=spec,
        user=row.user,
        ask=ask_of(
            relaxed(spec, record.from_queue) if record.wait is not None and record.wait.relaxed else spec
        ),
        submitted_at=row.submitted_at,
        key=row.key,
        array=row.array,
        index=record.index,
        state=JobState(row.state),
        reason=record.reason,
        detail=record.detail,
        held=record.held,
        attempt=record.attempt,
        quality=record.quality,
        placed_at=record.placed_at,
        started_at=record.started_at,
        ended_at=row.ended_at,
        stopping=record.stopping,
        stopped_by=record.stopped_by,
        code=record.code,
        signal=record.signal,
        checkpoint=record.checkpoint,
        wait=record.wait or FRESH,
        claim=preemption.claim,
        claim_quality=preemption.claim_quality,
        claim_from=preemption.claim_from,
        stop_by=preemption.stop_by,
        yields_to=preemption.yields_to,
        preemptions=preemption.history,
        moves=preemption.moves,
        charge=record.charge,
        spent_gpu_s=record.spent_gpu_s,
        spent_wh=record.spent_wh,
        idle_since=record.idle_since,
        idle_until=record.idle_until,
        profile=record.profile,
        from_queue=record.from_queue,
        predicted_s=record.predicted_s,
        planned_s=record.planned_s,
        foreseen=record.foreseen,
    )
    job.seat({each.allocation.node: _member(each) for each in record.members})
    return job


def _member(record: MemberRecord) -> Member:
    return Member(
        record.allocation,
        record.started_at,
        record.pid,
        record.ended_at,
        record.code,
        record.signal,
        record.why,
        record.cpu_s,
        record.max_rss_mib,
        record.fault,
        record.own,
        record.ready,
        record.use,
        record.leaving,
    )


def _condition(record: GpuRecord) -> Condition:
    return Condition(
        record.health, record.why, record.needs, record.falls, record.good, record.since, record.due
    )


def node_row(node: Node) -> NodeRow:
    """The row of a node."""
    health = tuple(
        GpuRecord(uuid, each.health, each.why, each.needs, each.falls, each.good, each.since, each.due)
        for uuid, each in sorted(node.health.items())
    )
    record = NodeRecord(
        node.labels,
        node.facts,
        node.drained,
        node.why,
        node.since,
        node.boot_id,
        node.version,
        health,
        node.host,
        node.marks,
        node.down,
        node.overcommit,
    )
    return NodeRow(node.name, node.state.value, dumps(encode(record)))


def restore(
    state: State, jobs: Iterable[JobRow], nodes: Iterable[NodeRow], notes: Iterable[NoteRow] = ()
) -> tuple[str, ...]:
    """Fill an empty state from rows. Every node is away until its agent says hello.

    Gives the nodes that are there by their rows: ControllerStarted tells the journal that they are not.
    """
    recall(state, notes)
    there = []
    for row in nodes:
        if row.state == REMOVED:
            continue
        was_there = row.state in (NodeState.UP.value, NodeState.DRAINED.value)
        if was_there:
            there.append(row.name)
        record = decode(NodeRecord, json.loads(row.body), f"nodes[{row.name}]")
        state.nodes.insert(
            Node(
                name=row.name,
                labels=dict(record.labels),
                facts=record.facts,
                overcommit=record.overcommit,
                drained=record.drained,
                why=JUST_STARTED if was_there and not record.drained else record.why,
                since=record.since,
                boot_id=record.boot_id,
                version=record.version,
                host=record.host,
                down=record.down,
                health={gpu.uuid: _condition(gpu) for gpu in record.health},
                marks=record.marks,
            )
        )
    bring_back(state, map(job_of, jobs))
    return tuple(there)


def bring_back(state: State, jobs: Iterable[Job]) -> None:
    """Give a state that has its nodes the jobs as they are."""
    ended = []
    for job in jobs:
        state.index(job)
        state.note_elastic(job)
        state.accounts.resume(job)
        if job.state.terminal:
            state.shares.open(state.tenant(job))
        else:
            state.shares.enter(state.tenant(job))
        state.nodes.demand.arrive(job.ask.part)
        for member in job.running:
            state.nodes.by_name[member.allocation.node].held[job.id] = member.allocation
            if job.ask.part.social:
                state.nodes.company.enter(job.ask.part, member.allocation.node)
        if job.unended or job.claim:
            state.expect(job)
        if job.state.terminal:
            ended.append(job)
        elif job.ready:
            state.enqueue(job)
    state.licences.used = counted(state.live())
    _restore_claims(state)
    for job in sorted(ended, key=lambda job: (job.ended_at or 0.0, job.id)):
        state.retire(job)


def _restore_claims(state: State) -> None:
    for job in state.live():
        for allocation in job.claim:
            state.claims[job.id] = None
            state.nodes.by_name[allocation.node].claims[job.id] = allocation
            if job.ask.part.social:
                state.nodes.company.enter(job.ask.part, allocation.node)
            state.nodes.stirred.add(job.id)
        state.preempted_at += [each.at for each in job.preemptions]
    state.preempted_at.sort()
    for node in state.nodes.by_name.values():  # not by rows: these are laid out once all is in its place
        node.leaving.update(leavers(state, node))


def touched(state: State, events: tuple[Event, ...]) -> tuple[list[JobRow], list[NodeRow]]:
    """The rows that a batch of events changed, as they are now."""
    jobs = dict.fromkeys(event.job for event in events if isinstance(event, JobEvent))
    fresh = {event.job for event in events if isinstance(event, JobQueued | JobEdited)}
    names = dict.fromkeys(event.node for event in events if isinstance(event, NodeEvent))
    rows = [job_row(state.jobs[job], with_spec=job in fresh) for job in jobs]
    return rows, [_row_of(state, name) for name in names]


def _row_of(state: State, name: str) -> NodeRow:
    node = state.nodes.get(name)
    return NodeRow(name, REMOVED, "{}") if node is None else node_row(node)
