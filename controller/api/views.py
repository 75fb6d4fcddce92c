"""The state as the API shows it: jobs, nodes and the cluster as wire.api views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from controller.core.columns import ABSENT
from controller.core.doctor import sick
from controller.core.engine import Engine
from controller.core.events import Allocation
from controller.core.explain import reason_of
from controller.core.jobs import Job, Move
from controller.core.nodes import Node
from controller.core.state import State
from wire.api.cluster import ClusterView
from wire.api.jobs import Held, JobView, Moved
from wire.api.nodes import GpuShare, GpuView, NodeView
from wire.frames import GpuFacts, GpuProcess, GpuSample, GpuUse
from wire.spec import JobSpec
from wire.words import WHOLE_GPU, NodeState

_NO_READING = GpuSample(uuid="")
_NOBODY_IDLE: Mapping[str, float] = {}


def job_view(engine: Engine, job: Job) -> JobView:
    """A job as everybody sees it."""
    spec = job.spec
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
        gpus=spec.gpus,
        nodes=len(job.staying) or len(job.members) or _nodes_asked(engine, job),
        cpu_milli=spec.cpu_milli,
        memory_mib=spec.memory_mib,
        attempt=job.attempt,
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        time_limit_s=spec.time_limit_s,
        exit_code=job.code,
        signal=job.signal,
        array=job.array,
        index=job.index,
        quality=job.quality,
        restarts=job.wait.restarts,
        held=tuple(held_view(engine.state, member.allocation) for member in job.members.values()),
        preempted=len(job.preemptions),
        gpu_hours=_gpu_hours(job),
        use=_use(job),
        idle_since=job.idle_since,
    )


def _gpu_hours(job: Job) -> float:
    over = [member for member in job.members.values() if member.ended_at is not None]
    return round((job.spent_gpu_s + sum(each.gpu_s(0.0, each.ended_at or 0.0) for each in over)) / 3_600, 4)


def _use(job: Job) -> GpuUse | None:
    """Of all members together: each weighs as much as it held."""
    known = [(each.use, sum(hold.milli for hold in each.allocation.gpus)) for each in job.members.values()]
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


def _nodes_asked(engine: Engine, job: Job) -> int:
    """How many nodes the job will take: as few as its GPUs need on this cluster, unless it says."""
    if job.ask.nodes is not None:
        return job.ask.nodes
    shape = engine.schedulers.of(job).placer.shape(job.ask)
    return shape.nodes if shape else 1


def moved_view(job: Job, move: Move) -> Moved:
    """One time that the job was told to go on elsewhere."""
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
    """What is held or kept on one node."""
    node = state.nodes.get(allocation.node)
    index = {gpu.uuid: gpu.index for gpu in node.facts.gpus} if node and allocation.gpus else {}
    return Held(
        allocation.node,
        allocation.cpu_milli,
        allocation.memory_mib,
        tuple(GpuShare(index.get(gpu.uuid, -1), gpu.uuid, gpu.milli) for gpu in allocation.gpus),
        allocation.scratch_mib,
    )


def public(spec: JobSpec) -> JobSpec:
    """A spec without what may hold secrets: the environment, and the arguments of the program."""
    return replace(spec, env={}, command=spec.command[:1], checkpoint_command=spec.checkpoint_command[:1])


def node_view(
    state: State,
    node: Node,
    readings: Mapping[str, GpuSample],
    processes: Sequence[GpuProcess] = (),
    idle: Mapping[str, float] = _NOBODY_IDLE,
) -> NodeView:
    """A node with its GPUs; readings of a node that is away are old, and left out."""
    holders: dict[str, list[int]] = {}
    found: dict[str, list[GpuProcess]] = {}
    for process in processes if node.up else ():
        found.setdefault(process.uuid, []).append(process)
    for job, allocation in node.held.items():
        for gpu in allocation.gpus:
            holders.setdefault(gpu.uuid, []).append(job)
    columns, row = state.nodes.columns, node.row
    free: list[int] = columns.gpu_free[row].tolist()
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
        labels=node.all_labels,
        taints=tuple(map(str, node.taints)),
        gpus=tuple(
            _gpu_view(
                node,
                gpu,
                free[slot],
                tuple(sorted(holders.get(gpu.uuid, ()))),
                readings.get(gpu.uuid, _NO_READING) if node.up else _NO_READING,
                tuple(found.get(gpu.uuid, ())),
                _idle_since(state, holders.get(gpu.uuid, ()), idle.get(gpu.uuid)) if node.up else None,
            )
            for slot, gpu in enumerate(node.facts.gpus)
        ),
        jobs=tuple(sorted(node.held)),
        why=node.why,
        since=node.since or None,
        version=node.version,
        handling=node.facts.handling,
        driver=node.facts.driver,
        cuda=node.facts.cuda,
        numa=node.facts.numa,
    )


def _gpu_view(
    node: Node,
    gpu: GpuFacts,
    free: int,
    jobs: tuple[int, ...],
    reading: GpuSample,
    processes: tuple[GpuProcess, ...],
    idle_since: float | None,
) -> GpuView:
    condition = node.condition(gpu)
    return GpuView(
        index=gpu.index,
        uuid=gpu.uuid,
        model=gpu.model,
        memory_mib=gpu.memory_mib,
        numa=gpu.numa,
        health=condition.health,
        free_milli=0 if free == ABSENT else free,
        jobs=jobs,
        utilisation=reading.utilisation,
        memory_used_mib=reading.memory_used_mib,
        power_w=reading.power_w,
        temperature_c=reading.temperature_c,
        why=sick(condition),
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
        processes=processes,
        idle_since=idle_since,
    )


def _idle_since(state: State, jobs: Sequence[int], since: float | None) -> float | None:
    """A GPU that nobody holds may do nothing; a job is not blamed for the time before it began."""
    begun = [state.jobs[job].started_at for job in jobs]
    if since is None or not begun or None in begun:
        return None
    return max(since, *(at for at in begun if at is not None))


def cluster_view(
    state: State, *, name: str, version: str, now: float, seq: int, jobs: Mapping[str, int], started_at: float
) -> ClusterView:
    """The cluster in one glance; nodes that are away count with what they last had."""
    columns = state.nodes.columns
    milli = sum(
        gpu.milli for node in state.nodes for allocation in node.held.values() for gpu in allocation.gpus
    )
    states = Counter(node.state.value for node in state.nodes)
    cpu_milli = int(columns.cpu_total.sum())
    return ClusterView(
        name=name,
        version=version,
        now=now,
        seq=seq,
        jobs=jobs,
        nodes={each.value: states[each.value] for each in NodeState},
        gpus=int(columns.gpu_count.sum()),
        gpus_used=milli / WHOLE_GPU,
        cpu_milli=cpu_milli,
        cpu_used_milli=cpu_milli - int(columns.cpu_free.sum()),
        started_at=started_at,
    )
