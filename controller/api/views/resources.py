"""Converts jobs and nodes of the engine's state to the objects of wire.api that clients get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from controller.core.cluster.network_tree import NetworkTopology
from controller.core.cluster.node import Node, TimedDrain
from controller.core.cluster.node_table import ABSENT
from controller.core.engine import Engine
from controller.core.explain.why_pending import reason_of
from controller.core.lifecycle.failure_classes import rule_of
from controller.core.lifecycle.gpu_health_handler import out_of_service_text
from controller.core.model import job as job_model
from controller.core.model.allocation import Allocation
from controller.core.model.job import NEVER, Job, Move
from controller.core.state.state import State
from wire.agent.orders import GpuHold
from wire.agent.reports import AttemptUse, GpuFacts, GpuProcess, GpuSample, GpuUse, HostUse
from wire.api.jobs import Failure, Held, JobView, LastAttempt, Moved
from wire.api.nodes import DatasetRead, GpuShare, GpuView, NodeView, TimedDrainView
from wire.job.spec import JobSpec, qos_class
from wire.names import WHOLE_GPU, JobState

_NO_READING = GpuSample(uuid="")
_NOTHING = AttemptUse(0, 0)
_NONE_IDLE: Mapping[str, float] = {}
_NOT_MEASURED: Mapping[str, AttemptUse] = {}


def job_view(engine: Engine, job: Job, so_far: Mapping[str, AttemptUse] = _NOT_MEASURED) -> JobView:
    """Return the API's view of a job. Nodes that an elastic job has given up or is giving up are left out.

    `so_far` is the usage until now of each running gang member, by node.
    """
    spec = job.spec
    members = job.shown_members
    return JobView(
        id=job.id,
        label=job.label,
        name=job.name,
        user=job.user,
        project=spec.project,
        queue=spec.queue,
        profile=job.profile,
        state=job.state,
        reason=reason_of(engine.state, job),
        detail=job.detail,
        priority=job.priority,
        gpus=shown_gpus(job),
        nodes=len(members) or nodes_asked(engine, job),
        cpu_milli=spec.cpu_milli,
        memory_mib=spec.memory_mib,
        attempt=job.attempt,
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        time_limit_s=None if job.limit == NEVER else job.limit,
        exit_code=job.code,
        signal=job.signal,
        array=job.array,
        index=job.index,
        quality=job.quality,
        restarts=job.wait.restarts,
        held=tuple(held_view(engine.state, member.allocation) for member in members),
        preempted=len(job.preemptions),
        gpu_hours=_gpu_hours(job),
        use=_use(job, so_far),
        host_use=_host_use(job, so_far),
        qos=qos_class(spec),
        failure=failure_view(engine, job.failure) if job.state.terminal else None,
        last=None if job.last is None else _last_attempt(engine, job.last),
        idle_since=job.idle_since,
        waits_long=job.wait.alarmed and job.state is JobState.QUEUED,
        kept_until=job.kept_until,
        service="" if job.replica is None else job.replica.service,
        workload=job.workload,
        task=job.task,
        silent=tuple(
            member.allocation.node
            for member in members
            if member.ended_at is None and not engine.state.nodes.by_name[member.allocation.node].up
        ),
    )


def shown_gpus(job: Job) -> float:
    """Return the number of GPUs that the job holds, or held at its end. For a job that was never placed,
    return the number of GPUs that it requests.
    """
    if not job.members:
        return job.spec.gpus
    members = job.shown_members
    return sum(hold.milli for member in members for hold in member.allocation.gpus) / WHOLE_GPU


def _gpu_hours(job: Job) -> float:
    over = [member for member in job.members.values() if member.ended_at is not None]
    return round((job.spent_gpu_s + sum(each.gpu_s(0.0, each.ended_at or 0.0) for each in over)) / 3_600, 4)


def _use(job: Job, so_far: Mapping[str, AttemptUse]) -> GpuUse | None:
    """Return the GPU usage of the job's last attempt on all its nodes; None if there are no measurements.

    `so_far` has the usage on nodes on which the attempt still runs. Peak memory and energy are sums over the
    nodes. The mean utilisation weights each node by the number of the job's GPUs on it.
    """
    known = [
        (each.use or so_far.get(node, _NOTHING).use, sum(hold.milli for hold in each.allocation.gpus))
        for node, each in job.members.items()
    ]
    uses = [(use, weight) for use, weight in known if use is not None and weight]
    if not uses:
        return None
    total = sum(weight for _, weight in uses)
    return GpuUse(
        round(sum(use.mean * weight for use, weight in uses) / total, 1),
        max(use.p95 for use, _ in uses),
        sum(use.peak_mib for use, _ in uses),
        round(sum(use.wh for use, _ in uses), 3),
    )


def failure_view(engine: Engine, name: str) -> Failure | None:
    """Return the failure class with its sentence and remedy; None if `name` is empty."""
    if not name:
        return None
    rule = rule_of(name, engine.pipeline.failures)
    return Failure(name) if rule is None else Failure(name, rule.sentence, rule.remedy)


def _last_attempt(engine: Engine, last: job_model.LastAttempt) -> LastAttempt:
    failure = failure_view(engine, last.failure)
    return LastAttempt(last.attempt, last.at, last.reason, last.detail, failure)


def _host_use(job: Job, so_far: Mapping[str, AttemptUse]) -> HostUse | None:
    """Return the CPU time of the job's last attempt on all nodes together, and its memory on the node on
    which it used the most. Return None if there are no measurements.
    """
    uses = [
        HostUse(each.cpu_s, 0, each.memory_mib or each.max_rss_mib)
        if each.ended_at is not None
        else so_far.get(node, _NOTHING).host
        for node, each in job.members.items()
        if each.started_at is not None
    ]
    known = [use for use in uses if use is not None]
    if not any(use.cpu_s or use.peak_mib for use in known):
        return None
    return HostUse(
        round(sum(use.cpu_s for use in known), 3),
        max(use.memory_mib for use in known),
        max(use.peak_mib for use in known),
    )


def nodes_asked(engine: Engine, job: Job) -> int:
    """Return the number of nodes that the job requests. If the job requests no number of nodes, return the
    smallest number of nodes that have the GPUs that the job requests.
    """
    if job.ask.nodes is not None:
        return job.ask.nodes
    shape = engine.profile_cycles.of(job).placer.shape(job.ask)
    return shape.nodes if shape else 1


def moved_view(job: Job, move: Move) -> Moved:
    return Moved(
        job.id,
        job.label,
        job.name,
        job.user,
        move.proposal,
        move.kind,
        move.at,
        move.attempt,
        tuple(each.node for each in move.origin),
        move.to,
        move.gpu_hours,
        move.for_job,
        move.node,
        move.done_at,
        move.undone,
    )


def held_view(state: State, allocation: Allocation) -> Held:
    node = state.nodes.get(allocation.node)
    known = {gpu.uuid: gpu for gpu in node.facts.gpus} if node and allocation.gpus else {}
    return Held(
        allocation.node,
        allocation.cpu_milli,
        allocation.memory_mib,
        tuple(_share(gpu, known.get(gpu.uuid)) for gpu in allocation.gpus),
        allocation.scratch_mib,
    )


def _share(held: GpuHold, gpu: GpuFacts | None) -> GpuShare:
    if gpu is None:
        return GpuShare(-1, held.uuid, held.milli)
    return GpuShare(gpu.index, gpu.uuid, held.milli, gpu.label)


def public_spec(spec: JobSpec) -> JobSpec:
    """Return the job's spec without its environment and arguments, because these may contain secrets."""
    return replace(spec, env={}, command=spec.command[:1], checkpoint_command=spec.checkpoint_command[:1])


def node_view(
    state: State,
    node: Node,
    readings: Mapping[str, GpuSample],
    processes: Sequence[GpuProcess] = (),
    idle: Mapping[str, float] = _NONE_IDLE,
    topology: NetworkTopology | None = None,
    now: float = 0.0,
) -> NodeView:
    """Return the API's view of a node with its GPUs, without GPU measurements if the node is not
    connected."""
    holders: dict[str, list[int]] = {}
    found: dict[str, list[GpuProcess]] = {}
    for process in processes if node.up else ():
        found.setdefault(process.uuid, []).append(process)
    for job, allocation in node.held.items():
        for gpu in allocation.gpus:
            holders.setdefault(gpu.uuid, []).append(job)
    columns, row = state.nodes.columns, node.row
    free: list[int] = columns.gpu_free[row].tolist()

    def gpu_view(gpu: GpuFacts, free_milli: int) -> GpuView:
        jobs = sorted(holders.get(gpu.uuid, ()))
        reading = readings.get(gpu.uuid, _NO_READING) if node.up else _NO_READING
        condition = node.condition(gpu)
        return GpuView(
            index=gpu.index,
            label=gpu.label,
            uuid=gpu.uuid,
            model=gpu.model,
            memory_mib=gpu.memory_mib,
            numa=gpu.numa,
            health=condition.health,
            free_milli=0 if free_milli == ABSENT else free_milli,
            jobs=tuple(jobs),
            job_labels=_labels(state, jobs),
            utilisation=reading.utilisation,
            memory_used_mib=reading.memory_used_mib,
            power_w=reading.power_w,
            temperature_c=reading.temperature_c,
            why=out_of_service_text(condition),
            node=node.name,
            pci_bus=gpu.pci_bus,
            power_limit_w=gpu.power_limit_w,
            clock_mhz=reading.clock_mhz,
            memory_clock_mhz=reading.memory_clock_mhz,
            throttle=reading.throttle,
            ecc_corrected=reading.ecc_corrected,
            ecc_uncorrected=reading.ecc_uncorrected,
            rows_remapped=reading.rows_remapped,
            links=gpu.links,
            links_up=reading.links_up,
            links_there=reading.links,
            mig=gpu.mig,
            processes=tuple(found.get(gpu.uuid, ())),
            idle_since=_idle_since(state, jobs, idle.get(gpu.uuid)) if node.up else None,
            heard=node.up,
        )

    return NodeView(
        name=node.name,
        state=node.state,
        cpu_milli=int(columns.cpu_total[row]),
        cpu_free_milli=int(columns.cpu_free[row]),
        memory_mib=int(columns.memory_total[row]),
        memory_free_mib=int(columns.memory_free[row]),
        scratch_mib=int(columns.scratch_total[row]),
        scratch_free_mib=int(columns.scratch_free[row]),
        numa_nodes=node.facts.numa_nodes,
        labels=node.effective_labels,
        taints=tuple(map(str, node.taints)),
        gpus=tuple(map(gpu_view, node.facts.gpus, free)),
        jobs=tuple(sorted(node.held)),
        job_labels=_labels(state, sorted(node.held)),
        why=node.why,
        since=node.since or None,
        version=node.version,
        handling=node.facts.handling,
        driver=node.facts.driver,
        cuda=node.facts.cuda,
        numa=node.facts.numa,
        switches=() if topology is None else topology.path(columns.labels[row]),
        datasets=tuple(DatasetRead(*each) for each in state.nodes.datasets.on_node(node.name, now)),
    )


def timed_drain_view(engine: Engine, node: Node, drain: TimedDrain | None) -> TimedDrainView | None:
    """Return the API's view of a timed drain, which says what happens to each job on the node. Return None if
    `drain` is None."""
    if drain is None:
        return None
    jobs = tuple(each.view for each in engine.timed_drains.leaving(node, drain.empty_by))
    return TimedDrainView(drain.empty_by, drain.by, drain.why, jobs)


def _labels(state: State, jobs: Iterable[int]) -> tuple[str, ...]:
    return tuple(state.jobs[job].label for job in jobs)


def _idle_since(state: State, jobs: Sequence[int], unused_since: float | None) -> float | None:
    """Return the time, in seconds since 1970, since which running jobs have held the GPU without using it.
    Return None if the GPU is in use or no running job holds it.

    `jobs` are the ids of the jobs that hold the GPU. `unused_since` is None if the GPU is in use.
    """
    begun = [state.jobs[job].started_at for job in jobs]
    if unused_since is None or not begun or None in begun:
        return None
    return max(unused_since, *(at for at in begun if at is not None))
