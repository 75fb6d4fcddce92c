"""Measures the speed of the placement benchmark: seconds per run, and how they grow with nodes and pods."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

from benchmarks.placement.allocation import run as place
from benchmarks.placement.allocation import tasks_of
from benchmarks.placement.openb_traces import Pod, read_nodes, read_pods
from benchmarks.placement.strategies import strategy_of
from benchmarks.table import heading, row
from controller.sim.cluster import Cluster
from wire.agent.reports import GpuFacts, NodeFacts
from wire.job.spec import JobSpec

OPENB = Path(__file__).parents[3] / "shared" / "data" / "openb"
SEED = 42
NODES, PODS = 1_200, 8_000
KINDS = [(64_000, 2, "P100"), (96_000, 8, "V100"), (96_000, 4, "T4"), (128_000, 8, "G2")]
SHARES = [160, 320, 470, 650, 810]


def run() -> None:
    heading(
        "Placement, one run to 130 % of all GPUs" + ("" if OPENB.is_dir() else ", on made-up nodes and pods")
    )
    cluster, pods = trace()
    for times in (1, 2):
        for name, bar in (("default", "5 s at 1,213 nodes"), ("best-fit", ""), ("random", "")):
            figures(name, enlarged(cluster, times), pods * times, bar)


def figures(name: str, cluster: Cluster, pods: list[Pod], bar: str) -> None:
    """Run the strategy `name` once, and print the allocated GPUs, the time and the speed beside the limit
    `bar`.
    """
    (task,) = tasks_of([strategy_of(name)], [SEED], cluster, pods)
    found = place(task)
    row(
        f"{name}, {found.pods:,} pods, {len(cluster.nodes):,} nodes: {found.allocated_at_130:.2f} % of GPUs",
        f"{found.cpu_s:.2f} s, {found.placements_per_s:,.0f}/s",
        bar,
    )


def trace() -> tuple[Cluster, list[Pod]]:
    """Return the openb trace if it is available, otherwise about as many generated nodes and pods."""
    if OPENB.is_dir():
        nodes = read_nodes(OPENB / "openb_node_list_gpu_node.csv")
        return nodes, read_pods(OPENB / "openb_pod_list_default.csv")
    random = Random(SEED)
    return Cluster({f"n{number:05}": _node(number, random) for number in range(NODES)}), [
        _pod(number, random) for number in range(PODS)
    ]


def _node(number: int, random: Random) -> NodeFacts:
    cpu, gpus, model = random.choice(KINDS)
    return NodeFacts(
        cpu, 512 * 1024, tuple(GpuFacts(slot, f"{number}-{slot}", model, 16_384) for slot in range(gpus))
    )


def _pod(number: int, random: Random) -> Pod:
    share = random.choice(SHARES) if random.random() < 0.4 else 0
    gpus = share / 1_000 if share else random.choice([0, 1, 1, 1, 1, 1, 2, 8])
    spec = JobSpec(
        ("true",),
        cpu_milli=random.choice([4_000, 8_000, 12_000]) * max(1, int(gpus)),
        memory_mib=random.choice([8_192, 16_384, 32_768]) * max(1, int(gpus)),
        gpus=gpus,
        nodes=1,
    )
    return Pod(f"p{number:05}", spec, round(gpus * 1_000))


def enlarged(cluster: Cluster, times: int) -> Cluster:
    """Return a cluster with `times` copies of each node."""
    return Cluster(
        {
            f"{name}-{copy}": replace(
                facts, gpus=tuple(replace(gpu, uuid=f"{gpu.uuid}-{copy}") for gpu in facts.gpus)
            )
            for name, facts in cluster.nodes.items()
            for copy in range(times)
        }
    )
