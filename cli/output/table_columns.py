"""Defines the columns of the tables of jobs, nodes, GPUs and events."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from cli.output.formats import Column, Table
from wire.agent.reports import GpuProcess
from wire.api.jobs import JobView, QueuePlace
from wire.api.nodes import GpuView, NodeView
from wire.api.service.cluster import EventView
from wire.job.spec import gpus_text
from wire.names import WHOLE_GPU, GpuHealth, JobState, NodeState, Reason, priority_name
from wire.text import duration, memory

GREEN, YELLOW, RED, CYAN, MAGENTA, FAINT = "32", "33", "31", "36", "35", "2"

_JOB_COLOURS = {
    JobState.QUEUED: YELLOW,
    JobState.SCHEDULED: CYAN,
    JobState.RUNNING: GREEN,
    JobState.PREEMPTED: MAGENTA,
    JobState.COMPLETED: "",
    JobState.FAILED: RED,
    JobState.CANCELLED: FAINT,
}
_NODE_COLOURS = {
    NodeState.UP: GREEN,
    NodeState.DRAINED: YELLOW,
    NodeState.SUSPECT: YELLOW,
    NodeState.DOWN: RED,
}


def clock(at: float | None, now: float | None = None) -> str:
    """Return the time `at` as the time of day, with the date if `at` is on another day than `now`; "-" for
    None. Both times are in seconds since 1970.
    """
    if at is None:
        return "-"
    moment = datetime.fromtimestamp(at, UTC).astimezone()
    today = datetime.fromtimestamp(time.time() if now is None else now, UTC).astimezone().date()
    return f"{moment:%H:%M:%S}" if moment.date() == today else f"{moment:%Y-%m-%d %H:%M:%S}"


def elapsed(job: JobView, now: float | None = None) -> str:
    """Return as text how long the job has waited; for a started job, how long its last attempt has run."""
    moment = time.time() if now is None else now
    if job.started_at is not None:
        return duration((job.ended_at or moment) - job.started_at)
    return duration((job.ended_at or moment) - job.submitted_at)


def nodes_or_reason(job: JobView) -> str:
    """Return the nodes that a job holds as text; for a job that holds no nodes, the reason of its state."""
    if job.held and not job.state.terminal:
        nodes = ",".join(
            f"{part.node} (silent)" if part.node in job.silent else part.node for part in job.held
        )
        return (
            f"{nodes} (idle {duration(max(0.0, time.time() - job.idle_since))})" if job.idle_since else nodes
        )
    if job.reason is Reason.TIME_LIMIT and job.state.terminal:
        # Show only the reason, because `detail` also contains long advice, which 'corral job show'
        # prints.
        return "time limit"
    reason = job.detail or job.reason.value.replace("_", " ")
    if job.last is not None and job.last.reason is Reason.PREEMPTED and job.state is JobState.QUEUED:
        if job.reason is Reason.HELD:
            # Show only "held": `detail` is too long for the column, because it also names the user or the job
            # that preempted this job.
            reason = "held"
        return f"PREEMPTED {clock(job.last.at)}; {reason}"
    return reason


def cores(milli: int) -> str:
    """Return thousandths of CPU cores as a number of cores, such as 4 or 0.5."""
    return f"{milli / 1000:g}"


def job_table(
    now: float | None = None, *, profiles: bool = False, places: Mapping[int, QueuePlace] | None = None
) -> Table[JobView]:
    """Return the table of jobs. Waiting times and run times are computed for the time `now`. With `profiles`,
    the table has a column for the scheduler profile. With `places`, the table has columns for the places of
    waiting jobs in the queue and for their expected starts.
    """
    profile = Column[JobView]("PROFILE", lambda job: job.profile, rank=8, narrow=6)
    known = places or {}
    of_queue = [
        Column[JobView]("PLACE", lambda job: _place(known.get(job.id)), rank=6, right=True),
        Column[JobView]("STARTS", lambda job: _starts(known.get(job.id), now), rank=6),
    ]
    return Table(
        [
            Column("JOB", lambda job: job.label),
            Column("NAME", lambda job: job.name, rank=1, narrow=8),
            Column("USER", lambda job: job.user, rank=3, narrow=6),
            Column("PROJECT", lambda job: job.project, rank=9, narrow=6, wide=True),
            Column("QUEUE", lambda job: job.queue, rank=8, narrow=6, wide=True),
            *([profile] if profiles else []),
            Column("STATE", lambda job: job.state.value, colour=lambda job: _JOB_COLOURS[job.state]),
            Column("PRIORITY", lambda job: priority_name(job.priority), rank=7),
            Column("GPUS", lambda job: gpus_text(job.gpus), rank=2, right=True),
            Column("CPUS", lambda job: cores(job.cpu_milli), rank=10, right=True, wide=True),
            Column("MEMORY", lambda job: memory(job.memory_mib), rank=10, right=True, wide=True),
            Column("TIME", lambda job: elapsed(job, now), rank=4, right=True),
            Column("LIMIT", lambda job: duration(job.time_limit_s), rank=8, right=True),
            Column("QOS", lambda job: job.qos, rank=11, wide=True),
            Column("ATTEMPT", lambda job: str(job.attempt), rank=11, right=True, wide=True),
            Column("SUBMITTED", lambda job: clock(job.submitted_at, now), rank=9, wide=True),
            Column("EXIT", exit_text, rank=9, right=True, wide=True),
            *(of_queue if known else []),
            Column("NODES/REASON", nodes_or_reason, rank=5, narrow=12),
        ],
        name=lambda job: job.label,
        kind=JobView,
    )


def _place(of_queue: QueuePlace | None) -> str:
    return "" if of_queue is None else str(of_queue.place)


def _starts(of_queue: QueuePlace | None, now: float | None) -> str:
    """Return the expected start as text, without seconds, because the expected start is a forecast."""
    if of_queue is None or of_queue.starts_at is None:
        return ""
    return f"≈ {clock(of_queue.starts_at, now).rpartition(':')[0]}"


def exit_text(job: JobView) -> str:
    if job.signal:
        return f"signal {job.signal}"
    return "-" if job.exit_code is None else str(job.exit_code)


def node_table() -> Table[NodeView]:
    return Table(
        [
            Column("NODE", lambda node: node.name, narrow=16),
            Column("STATE", lambda node: node.state_word, colour=lambda node: _NODE_COLOURS[node.state]),
            Column("GPUS", _gpus_used, rank=1, right=True),
            Column("MODEL", _models, rank=3, narrow=6),
            Column("CPUS", _cores_used, rank=4, right=True),
            Column("MEMORY", _memory_used, rank=5, right=True),
            Column("JOBS", lambda node: str(len(node.jobs)), rank=2, right=True),
            Column("NUMA", lambda node: str(node.numa_nodes), rank=9, right=True, wide=True),
            Column("VERSION", lambda node: node.version, rank=9, wide=True),
            Column("LABELS", _labels, rank=8, narrow=8, wide=True),
            Column("TAINTS", lambda node: ",".join(node.taints), rank=8, narrow=8, wide=True),
            Column("WHY", lambda node: node.why, rank=6, narrow=8),
        ],
        name=lambda node: node.name,
        kind=NodeView,
    )


def gpu_table(*, nodes: bool = False) -> Table[GpuView]:
    return Table(
        [
            *([Column("NODE", lambda gpu: gpu.node, narrow=12)] if nodes else []),
            Column("GPU", lambda gpu: gpu.number, right=True),
            Column("MODEL", lambda gpu: gpu.model, rank=3, narrow=6),
            Column("NUMA", lambda gpu: str(gpu.numa), rank=5, right=True),
            Column(
                "HEALTH",
                lambda gpu: gpu.health.value if gpu.heard else "unknown",
                colour=lambda gpu: "" if _well(gpu) else RED,
                rank=1,
            ),
            Column("FREE", lambda gpu: _read(gpu, gpus_text(gpu.free_milli / WHOLE_GPU)), right=True),
            Column("BUSY", lambda gpu: _read(gpu, f"{gpu.utilisation}%"), rank=4, right=True),
            Column(
                "MEMORY",
                lambda gpu: f"{_read(gpu, memory(gpu.memory_used_mib))}/{memory(gpu.memory_mib)}",
                rank=6,
                right=True,
            ),
            Column("POWER", lambda gpu: _read(gpu, f"{gpu.power_w}W"), rank=7, right=True),
            Column("TEMP", lambda gpu: _read(gpu, f"{gpu.temperature_c}°C"), rank=8, right=True),
            Column("CLOCK", lambda gpu: _read(gpu, f"{gpu.clock_mhz}MHz"), rank=10, right=True, wide=True),
            Column("SLOWED BY", lambda gpu: ", ".join(gpu.throttle) or "-", rank=11, wide=True),
            Column("ECC", ecc, rank=10, right=True, wide=True),
            Column("NVLINK", nvlink, rank=10, right=True, wide=True),
            Column("IDLE", idle, rank=9, right=True, wide=True),
            Column("PCI", lambda gpu: gpu.pci_bus or "-", rank=12, wide=True),
            Column("MIG", lambda gpu: gpu.mig or "-", rank=12, wide=True),
            Column("JOBS", lambda gpu: ",".join(gpu.job_labels or map(str, gpu.jobs)), rank=2, narrow=6),
            Column("OFF-QUEUE", off_queue, rank=8, narrow=9, wide=not nodes),
            Column("WHY", lambda gpu: gpu.why, rank=9, narrow=8),
        ],
        name=lambda gpu: gpu.uuid,
        kind=GpuView,
    )


def _read(gpu: GpuView, text: str) -> str:
    """Return `text`, which shows a reading of the GPU; "-" if the GPU's node is not connected."""
    return text if gpu.heard else "-"


def ecc(gpu: GpuView) -> str:
    """Return the corrected and uncorrected memory errors since the driver was loaded, such as 3/0."""
    return f"{gpu.ecc_corrected}/{gpu.ecc_uncorrected}"


def idle(gpu: GpuView) -> str:
    """Return a text with the time for which an allocated GPU has had no load; "-" if the GPU is not idle."""
    return "-" if gpu.idle_since is None else duration(max(0.0, time.time() - gpu.idle_since))


def nvlink(gpu: GpuView) -> str:
    """Return the number of active NVLink links and the number of all links, such as 5/6."""
    return f"{gpu.links_up}/{gpu.links_there}" if gpu.links_there else "-"


def off_queue(gpu: GpuView) -> str:
    """Return the names of users with processes on the GPU that belong to no job."""
    return ",".join(dict.fromkeys(each.user for each in gpu.processes if each.job is None))


@dataclass(frozen=True)
class ProcessOnGpu:
    gpu: GpuView
    process: GpuProcess


def processes_of(gpus: Iterable[GpuView]) -> list[ProcessOnGpu]:
    return [ProcessOnGpu(gpu, process) for gpu in gpus for process in gpu.processes]


def process_table(*, nodes: bool = False) -> Table[ProcessOnGpu]:
    """Return the table of processes on GPUs: processes of jobs, and processes that no job started. With
    `nodes`, the table has a column for the node.
    """
    return Table(
        [
            *([Column("NODE", lambda each: each.gpu.node, narrow=12)] if nodes else []),
            Column("GPU", lambda each: each.gpu.number, right=True),
            Column("PID", lambda each: str(each.process.pid), right=True),
            Column("USER", lambda each: each.process.user, narrow=6),
            Column("MEMORY", lambda each: memory(each.process.memory_mib), right=True),
            Column(
                "JOB",
                lambda each: "off-queue" if each.process.job is None else str(each.process.job),
                colour=lambda each: YELLOW if each.process.job is None else "",
            ),
            Column("COMMAND", lambda each: each.process.command, narrow=12),
        ],
        name=lambda each: str(each.process.pid),
        kind=ProcessOnGpu,
    )


def event_table(now: float | None = None) -> Table[EventView]:
    return Table(
        [
            Column("SEQ", lambda event: str(event.seq), rank=9, right=True, wide=True),
            Column("TIME", lambda event: clock(event.at, now), min_width=8),
            Column("KIND", lambda event: event.kind, rank=1, min_width=17),
            Column("WHAT HAPPENED", lambda event: event.text, narrow=20),
        ],
        name=lambda event: str(event.seq),
        kind=EventView,
    )


def _well(gpu: GpuView) -> bool:
    return gpu.health is GpuHealth.OK


def _gpus_used(node: NodeView) -> str:
    """Return the number of GPUs in use and the number of all GPUs, such as 6/8. An unhealthy GPU counts as
    used only if a job holds the GPU.
    """
    used = sum(WHOLE_GPU - gpu.free_milli for gpu in node.gpus if gpu.jobs or _well(gpu)) / WHOLE_GPU
    return f"{gpus_text(round(used, 3))}/{len(node.gpus)}"


def _cores_used(node: NodeView) -> str:
    return f"{cores(node.cpu_milli - node.cpu_free_milli)}/{cores(node.cpu_milli)}"


def _memory_used(node: NodeView) -> str:
    return f"{memory(node.memory_mib - node.memory_free_mib)}/{memory(node.memory_mib)}"


def _models(node: NodeView) -> str:
    return ",".join(dict.fromkeys(gpu.model for gpu in node.gpus)) or "-"


def _labels(node: NodeView) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(node.labels.items()))
