"""The database rows of jobs and nodes. After a restart, the controller loads its state from these rows, and
so need not read the whole journal.

A row has columns for the fields by which the store searches, and a JSON body for all other fields.
`JobFields` and `NodeFields` list the fields that have the same name in the JSON body and in Job or Node.
These fields are copied by name, so a new field needs only one line in `JobFields` or `NodeFields`, with a
default, because older rows lack the field.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

from controller.core.cluster.gpus.gpu_health import GpuCondition
from controller.core.cluster.labels_and_taints import NodeOverrides
from controller.core.cluster.licences import licences_in_use
from controller.core.cluster.node import JUST_STARTED, Node, TimedDrain
from controller.core.model.allocation import Allocation
from controller.core.model.events.attempts import JobPreempted
from controller.core.model.events.controller import ConfigApplied
from controller.core.model.events.event import Event, JobEvent, NodeEvent
from controller.core.model.events.nodes import AS_IT_IS, Overcommit
from controller.core.model.events.nominations import PreemptionPlanned, Victim
from controller.core.model.events.queued import JobEdited, JobQueued
from controller.core.model.job import Job, LastAttempt, Member, Move
from controller.core.model.request import request_of, without_relaxed
from controller.core.model.rows import JobRow, NodeRow, NoteRow
from controller.core.model.services import Replica
from controller.core.model.start_estimates import StartEstimate
from controller.core.model.time_limits import ShortLimit
from controller.core.model.wait_state import NEVER_WAITED, Wait
from controller.core.state.changes.nominations import departing_jobs
from controller.core.state.note_rows import load_notes
from controller.core.state.state import State
from wire.agent.reports import Checkpoint, NodeFacts
from wire.cluster.hosts import HostSpec
from wire.codec import decode, dumps, encode, encoder
from wire.job.spec import JobSpec
from wire.names import JobState, NodeState, Reason

REMOVED = "removed"
"""The `state` column of a removed node. A new node with the same name overwrites the row."""


@dataclass(frozen=True, slots=True)
class JobFields:
    """The fields of a Job that have the same name in the JSON body of its database row."""

    index: int | None = None
    reason: Reason = Reason.NEW
    detail: str = ""
    held: bool = False
    attempt: int = 0
    quality: int | None = None
    placed_at: float | None = None
    started_at: float | None = None
    stopping: Reason | None = None
    stopped_by: str = ""
    code: int | None = None
    signal: int | None = None
    checkpoint: Checkpoint | None = None
    charge: float = 0.0
    spent_gpu_s: float = 0.0
    spent_wh: float = 0.0
    from_queue: tuple[str, ...] = ()
    predicted_s: float | None = None
    planned_s: float | None = None
    foreseen: tuple[StartEstimate, ...] = ()
    idle_since: float | None = None
    idle_until: float | None = None


@dataclass(frozen=True, slots=True)
class PreemptionRecord:
    """The part of a job's database row about preemption: the nomination of the job (nodes kept for the job),
    its preemptions and its moves.
    """

    claim: tuple[Allocation, ...] = ()
    claim_quality: int = 0
    claim_from: tuple[Victim, ...] = ()
    stop_by: float | None = None
    yields_to: tuple[int, ...] = ()
    history: tuple[JobPreempted, ...] = ()
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True, slots=True)
class JobRecord(JobFields):
    """The JSON body of a job's database row."""

    members: tuple[Member, ...] = ()
    wait: Wait | None = None
    """The closed gates of the job (reasons to wait), and other results of its wait. None: all fields of Wait
    have their defaults.
    """
    preemption: PreemptionRecord | None = None
    """The nomination, preemptions and moves of the job; None: all fields of PreemptionRecord have their
    defaults.
    """
    profile: str = ""
    """The scheduler profile that placed the job. Empty for a waiting job, because its profile follows from
    the configuration.
    """
    operator_hold: str = ""
    """The operator that holds the job. The row has this field only if an operator holds the job."""
    replica: Replica | None = None
    """The job's service and its replica number. Only the row of a replica has this field."""
    workload: int | None = None
    task: str = ""
    """`workload` is the id of the job's workload, and `task` the name of its task. Only the row of a job in a
    workload has these fields.
    """
    short: ShortLimit | None = None
    limit_raised: bool = False
    """`short` is the time limit of the attempt if it is shorter than that of the job; None if not.
    `limit_raised` is True if the time limit of the attempt was extended after its start.
    """
    warned_end: float | None = None
    outlived: bool = False
    """`warned_end`: the owner was warned that the time limit ends the job at this time; None without a
    warning. `outlived` is True if the attempt has run longer than predicted.
    """
    last: LastAttempt | None = None
    """The end of the previous attempt. Only the row of a job that was queued again has this field."""
    healthy: bool | None = None
    """The result of the health checks. Only the row of a running job with a result has this field."""
    kept_until: float | None = None
    kept_why: str = ""
    """`kept_until`: until this time, the attempt is not ended because of idle GPUs. `kept_why` is the reason.
    Only the row of a job that a user keeps (`corral job keep`) has these fields.
    """
    spent_run_s: float | None = None
    """The seconds that earlier attempts ran. Only the row of a job with earlier attempts has this field. The
    rows of older versions do not have it.
    """


@dataclass(frozen=True, slots=True)
class GpuRecord(GpuCondition):
    """The UUID and the health of one GPU, as a part of the database row of its node."""

    uuid: str = ""


@dataclass(frozen=True, slots=True)
class NodeFields:
    """The fields of a Node that have the same name in the JSON body of its database row."""

    labels: Mapping[str, str]
    facts: NodeFacts
    drained: bool
    why: str
    since: float
    boot_id: str
    version: str
    host: HostSpec | None = None
    marks: NodeOverrides = field(default_factory=NodeOverrides)
    down: bool = False
    overcommit: Overcommit = AS_IT_IS


@dataclass(frozen=True, slots=True)
class NodeRecord(NodeFields):
    """The JSON body of a node's database row. The allocations on the node are in the rows of the jobs."""

    health: tuple[GpuRecord, ...] = ()
    timed_drain: TimedDrain | None = None
    """The timed drain of the node. The row has this field only if the node has a timed drain."""


NO_PREEMPTION = PreemptionRecord()
_encode_job_fields = encoder(JobFields)
_encode_member = encoder(Member)
_encode_node_fields = encoder(NodeFields)
_encode_condition = encoder(GpuCondition)
_JOB_FIELDS = tuple(each.name for each in fields(JobFields))
_job_values = attrgetter(*_JOB_FIELDS)
_NODE_FIELDS = tuple(each.name for each in fields(NodeFields))
_CONDITION_FIELDS = tuple(each.name for each in fields(GpuCondition))


def job_row(job: Job, *, with_spec: bool) -> JobRow:
    """Return the database row of a job. With `with_spec` False, the row has no spec, and the stored spec
    stays unchanged. A new or edited job needs `with_spec` True.
    """
    return _job_row(job, dumps(encode(job.spec)) if with_spec else None)


def _member_record(member: Member) -> dict[str, Any]:
    """Return a gang member as JSON data for the row of its job. Empty fields that are unknown to older
    versions of Corral are left out.
    """
    record: dict[str, Any] = _encode_member(member)
    for name in ("memory_mib", "failure", "steps"):
        if not record[name]:
            del record[name]
    return record


def _job_row(job: Job, spec: str | None) -> JobRow:
    body = _encode_job_fields(job)
    body["members"] = [_member_record(member) for member in job.members.values()]
    body["wait"] = None if job.wait is NEVER_WAITED or job.wait == NEVER_WAITED else encode(job.wait)
    body["preemption"] = _encoded_preemption(job)
    body["profile"] = job.profile if job.placed_at is not None else ""
    if job.operator_hold:
        body["operator_hold"] = job.operator_hold
    if job.replica is not None:
        body["replica"] = encode(job.replica)
    if job.workload is not None:
        body["workload"], body["task"] = job.workload, job.task
    if job.short is not None:
        body["short"] = encode(job.short)
    if job.limit_raised:
        body["limit_raised"] = True
    if job.warned_end is not None:
        body["warned_end"] = job.warned_end
    if job.outlived:
        body["outlived"] = True
    if job.last is not None:
        body["last"] = encode(job.last)
    if job.healthy is not None:
        body["healthy"] = job.healthy
    if job.kept_until is not None:
        body["kept_until"], body["kept_why"] = job.kept_until, job.kept_why
    if job.spent_run_s:
        body["spent_run_s"] = job.spent_run_s
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
        spec=spec,
        body=dumps(body),
    )


def _encoded_preemption(job: Job) -> Any:
    if not (job.claim or job.preemptions or job.stop_by or job.moves or job.yields_to):
        return None
    return encode(
        PreemptionRecord(
            claim=job.claim,
            claim_quality=job.claim_quality,
            claim_from=job.claim_from,
            stop_by=job.stop_by,
            yields_to=job.yields_to,
            history=job.preemptions,
            moves=job.moves,
        )
    )


class RowDecoder:
    """Decodes the specs and JSON bodies of job rows. Equal texts are decoded only once, because many jobs
    have equal texts.

    Several jobs share one decoded spec or body, because specs and bodies are immutable. The body of a job
    with allocations is not shared, because its Member objects can change.
    """

    def __init__(self) -> None:
        self._specs: dict[str, JobSpec] = {}
        self._records: dict[str, JobRecord] = {}

    def spec(self, row: JobRow) -> JobSpec:
        text = row.spec or "null"
        found = self._specs.get(text)
        if found is None:
            found = self._specs[text] = decode(JobSpec, json.loads(text), f"jobs[{row.id}].spec")
        return found

    def record(self, row: JobRow) -> JobRecord:
        found = self._records.get(row.body)
        if found is None:
            found = decode(JobRecord, json.loads(row.body), f"jobs[{row.id}].body")
            if not found.members:
                self._records[row.body] = found
        return found


def _spent_run_s(record: JobRecord, spec: JobSpec) -> float:
    """Return the seconds that earlier attempts of the job ran. For a row of an older version, assume that the
    job had its present number of GPUs in all attempts.
    """
    if record.spent_run_s is not None:
        return record.spent_run_s
    return record.spent_gpu_s / spec.gpus if spec.gpus else 0.0


def load_job(row: JobRow, decoder: RowDecoder | None = None) -> Job:
    """Return the job that a database row describes. The row must contain a spec."""
    decoder = decoder or RowDecoder()
    spec, record = decoder.spec(row), decoder.record(row)
    preemption = record.preemption or NO_PREEMPTION
    wait = record.wait or NEVER_WAITED
    if wait.doubted and spec.deadline_at is None:
        # Clear `doubted` if the job has no deadline. An older version kept the flag when an edit removed the
        # deadline.
        wait = replace(wait, doubted=False)
    copied: dict[str, Any] = dict(zip(_JOB_FIELDS, _job_values(record), strict=True))
    job = Job(
        id=row.id,
        spec=spec,
        user=row.user,
        ask=request_of(without_relaxed(spec, record.from_queue) if wait.relaxed else spec, row.user),
        submitted_at=row.submitted_at,
        key=row.key,
        array=row.array,
        state=JobState(row.state),
        ended_at=row.ended_at,
        wait=wait,
        profile=record.profile,
        operator_hold=record.operator_hold,
        replica=record.replica,
        last=record.last,
        workload=record.workload,
        task=record.task,
        healthy=record.healthy,
        short=record.short,
        limit_raised=record.limit_raised,
        warned_end=record.warned_end,
        outlived=record.outlived,
        kept_until=record.kept_until,
        kept_why=record.kept_why,
        spent_run_s=_spent_run_s(record, spec),
        claim=preemption.claim,
        claim_quality=preemption.claim_quality,
        claim_from=preemption.claim_from,
        stop_by=preemption.stop_by,
        yields_to=preemption.yields_to,
        preemptions=preemption.history,
        moves=preemption.moves,
        **copied,
    )
    job.set_members({member.allocation.node: member for member in record.members})
    return job


def node_row(node: Node) -> NodeRow:
    body = _encode_node_fields(node)
    body["health"] = [{"uuid": uuid, **_encode_condition(each)} for uuid, each in sorted(node.health.items())]
    if node.timed_drain is not None:
        body["timed_drain"] = encode(node.timed_drain)
    return NodeRow(node.name, node.state.value, dumps(body))


def load_node(row: NodeRow) -> Node:
    """Return the node that a database row describes. The node counts as disconnected until its agent
    connects.
    """
    record = decode(NodeRecord, json.loads(row.body), f"nodes[{row.name}]")
    copied: dict[str, Any] = {name: getattr(record, name) for name in _NODE_FIELDS}
    health = {
        gpu.uuid: GpuCondition(*(getattr(gpu, name) for name in _CONDITION_FIELDS)) for gpu in record.health
    }
    return Node(row.name, **copied, health=health, timed_drain=record.timed_drain)


def restore_state(
    state: State, jobs: Iterable[JobRow], nodes: Iterable[NodeRow], notes: Iterable[NoteRow] = ()
) -> tuple[str, ...]:
    """Load database rows into an empty state. Every node counts as disconnected until its agent connects.

    Return the names of the nodes that were connected when the rows were written. The caller puts these names
    into the input ControllerStarted, so that the journal records the loss of the connections.
    """
    load_notes(state, notes)
    were_up = []
    for row in nodes:
        if row.state == REMOVED:
            continue
        node = load_node(row)
        if row.state in (NodeState.UP.value, NodeState.DRAINED.value):
            were_up.append(row.name)
            if not node.drained:
                node.why = JUST_STARTED
        state.nodes.insert(node)
    decoder = RowDecoder()
    insert_jobs(state, (load_job(row, decoder) for row in jobs))
    return tuple(were_up)


def insert_jobs(state: State, jobs: Iterable[Job]) -> None:
    """Add jobs to a state that already has its nodes, and update all counters and indexes for these jobs."""
    for node in state.nodes.by_name.values():
        state.reservations.follow_drain(node)
    ended = []
    for job in jobs:
        state.index(job)
        state.note_elastic(job)
        state.accounts.load_job(job)
        if job.state.terminal:
            state.shares.add(state.tenant(job))
        else:
            state.shares.add_job(state.tenant(job))
        state.nodes.demand.add(job.ask.part)
        for member in job.running:
            state.nodes.by_name[member.allocation.node].held[job.id] = member.allocation
            if job.ask.part.social:
                state.nodes.job_affinity.add(job.ask.part, member.allocation.node)
        if job.unended or job.claim:
            state.add_release(job)
        if job.state.terminal:
            ended.append(job)
        elif job.ready:
            state.enqueue(job)
    state.licences.used = licences_in_use(state.live())
    state.budgets.recount(state.jobs.values())
    _restore_claims(state)
    for job in sorted(ended, key=lambda job: (job.ended_at or 0.0, job.id)):
        state.note_ended(job)


def _restore_claims(state: State) -> None:
    for job in state.live():
        for allocation in job.claim:
            state.claims[job.id] = None
            state.nodes.by_name[allocation.node].claims[job.id] = allocation
            if job.ask.part.social:
                state.nodes.job_affinity.add(job.ask.part, allocation.node)
            state.nodes.claims_to_check.add(job.id)
        state.preempted_at += [each.at for each in job.preemptions]
    state.preempted_at.sort()
    for node in state.nodes.by_name.values():
        # Iterate over `by_name` and not over `nodes.rows`, which would build the node table before it is
        # needed.
        node.leaving.update(departing_jobs(state, node))


def changed_rows(state: State, events: tuple[Event, ...]) -> tuple[list[JobRow], list[NodeRow]]:
    """Return the database rows of the jobs and nodes that these events changed."""
    jobs = dict.fromkeys(event.job for event in events if isinstance(event, JobEvent))
    for event in events:
        if isinstance(event, PreemptionPlanned):
            # Also write the row of each victim, because a victim's row names the jobs for which the victim is
            # stopped. The batch may contain no other event about the victim.
            jobs.update(dict.fromkeys(victim.job for victim in event.victims))
    fresh = {event.job for event in events if isinstance(event, JobQueued | JobEdited)}
    names = dict.fromkeys(event.node for event in events if isinstance(event, NodeEvent))
    if any(isinstance(event, ConfigApplied) and event.overcommit is not None for event in events):
        names.update(dict.fromkeys(node.name for node in state.nodes))
    # All elements of an array share one spec object. Encode this object only once.
    specs: dict[int, str] = {}
    rows = []
    for each in jobs:
        job, text = state.jobs[each], None
        if each in fresh:
            text = specs.get(id(job.spec)) or specs.setdefault(id(job.spec), dumps(encode(job.spec)))
        rows.append(_job_row(job, text))
    return rows, [_row_of(state, name) for name in names]


def _row_of(state: State, name: str) -> NodeRow:
    node = state.nodes.get(name)
    return NodeRow(name, REMOVED, "{}") if node is None else node_row(node)
