"""Records of jobs that no engine has run: each job takes the GPUs that become free first."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from controller.core.model.allocation import Allocation
from controller.sim.cluster import Cluster, nodes_of
from controller.sim.job_results import SimulatedJob
from controller.sim.metrics import figures_of
from controller.sim.report import ReportRun
from wire.agent.orders import GpuHold
from wire.names import JobState


def cluster_of(nodes: int = 4, gpus: int = 8) -> Cluster:
    """Nodes of one kind."""
    return nodes_of(nodes, gpus, 64, 512 * 1024, "H100")


def holding(cluster: Cluster, places: Iterable[int], milli: int = 1_000) -> tuple[Allocation, ...]:
    """The GPUs at these places, counted through all nodes."""
    gpus = [(name, gpu.uuid) for name, node in cluster.nodes.items() for gpu in node.gpus]
    by_node: Mapping[str, list[GpuHold]] = defaultdict(list)
    for place in places:
        name, uuid = gpus[place]
        by_node[name].append(GpuHold(uuid, milli))
    return tuple(Allocation(name, 4_000, 4_096, tuple(holds)) for name, holds in by_node.items())


def record(
    job: int,
    submit: float,
    start: float | None,
    end: float | None,
    allocations: tuple[Allocation, ...] = (),
    user: str = "ada",
    project: str = "default",
    state: JobState = JobState.COMPLETED,
) -> SimulatedJob:
    """One job's record."""
    gpus = sum(hold.milli for part in allocations for hold in part.gpus) / 1_000
    cpus = sum(part.cpu_milli for part in allocations)
    made = SimulatedJob(job, user, project, gpus, cpus, 3_600.0, submit, number=job)
    made.start_s, made.end_s, made.state, made.attempts = start, end, state, 1
    made.allocations = allocations
    return made


def crowd(
    jobs: int,
    cluster: Cluster,
    users: Sequence[str] = ("ada", "grace", "alan"),
    seed: int = 1,
    mean_s: float = 600,
) -> list[SimulatedJob]:
    """Jobs of 1 to 8 GPUs, one per minute."""
    draw = random.Random(seed)
    free = [0.0] * cluster.gpus
    records = []
    for job in range(1, jobs + 1):
        submit = job * 60.0
        places = sorted(range(len(free)), key=free.__getitem__)[: draw.choice((1, 1, 1, 2, 4, 8))]
        start = max(submit, *(free[place] for place in places))
        end = start + draw.expovariate(1 / mean_s) + 1
        for place in places:
            free[place] = end
        state = draw.choice((JobState.COMPLETED, JobState.COMPLETED, JobState.FAILED))
        records.append(
            record(job, submit, start, end, holding(cluster, places), draw.choice(users), state=state)
        )
    return records


def run_of(
    records: Sequence[SimulatedJob], cluster: Cluster, label: str = "easy", source: str = "jobs.csv"
) -> ReportRun:
    """Return the simulated run that consists of these records."""
    ran = [each for each in records if each.start_s is not None and each.end_s is not None]
    return ReportRun(label, cluster, records, asdict(figures_of(ran, cluster)), source)
