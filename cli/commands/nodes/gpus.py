"""corral gpus: lists the GPUs of the cluster, their health, load and processes."""

from __future__ import annotations

import time
from typing import Annotated

from cli import completion
from cli.exit_codes import NOT_FOUND, CommandError
from cli.flags import argument, option, switch
from cli.output.formats import Format, Output
from cli.output.listing import list_command
from cli.output.table_columns import gpu_table, process_table, processes_of
from cli.registry import application, examples
from wire import amounts
from wire.api.nodes import GpuList, GpuView
from wire.http.client import Client
from wire.names import GpuHealth

Names = Annotated[
    list[str], argument("[NODE]...", "Names of nodes. Default: all nodes.", autocompletion=completion.nodes)
]

HUNG_LOAD, HUNG_POWER = 90, 35
"""A GPU seems to hang if its load is at least HUNG_LOAD percent, and its power is below HUNG_POWER percent of
its power limit. For example, a GPU kernel that waits for a crashed process of its job causes full load but
needs little power.
"""

app = application()


@app.command(
    epilog=examples(
        "corral gpus                        every GPU of the cluster",
        "corral gpus gpu01 -o wide          GPUs of one node, with clocks, ECC, NVLink and PCI address",
        "corral gpus --sick                 GPUs that get no jobs, and why",
        "corral gpus --processes            processes on GPUs, with owner and job",
        "corral gpus --off-queue            processes that no job started",
        "corral gpus --idle 30m             allocated GPUs without load for 30 minutes",
        "corral gpus --empty                allocated GPUs without a process of their job",
        "corral gpus -o json | jq '.gpus[].health'",
    )
)
@list_command
def gpus(
    names: Names = [],  # noqa: B006 - never changed
    sick: Annotated[bool, switch("--sick", "List only unhealthy GPUs, which get no jobs.")] = False,
    processes: Annotated[
        bool, switch("--processes", "List the processes on the GPUs, with their owners.")
    ] = False,
    off_queue: Annotated[
        bool, switch("--off-queue", "List only GPU processes that no job has started, with their owners.")
    ] = False,
    idle: Annotated[
        float | None,
        option(
            "--idle",
            "TIME",
            "List only GPUs that are allocated to a job but have had no load for this time (e.g. 30m).",
            parser=amounts.seconds,
        ),
    ] = None,
    empty: Annotated[
        bool,
        switch("--empty", "List only GPUs that a job holds but that no process of the job uses."),
    ] = False,
    hung: Annotated[
        bool,
        switch(
            "--hung",
            f"List only GPUs that report a load of {HUNG_LOAD} % or more, but draw less than {HUNG_POWER} % "
            "of their power limit. A collective operation that hangs often looks like this.",
        ),
    ] = False,
    output: Output = Format.TABLE,
) -> int:
    """Show the GPUs of all nodes or of the named nodes, with the health, load, processes and jobs of each."""
    body = Client().gpus()
    shown = _chosen(body.gpus, names, sick)
    if idle is not None:
        shown = [gpu for gpu in shown if _idle_s(gpu) >= idle]
    shown = [gpu for gpu in shown if (not empty or is_empty(gpu)) and (not hung or seems_hung(gpu))]
    if output.is_data:
        gpu_table(nodes=True).show(output, shown, GpuList(tuple(shown), body.seq))
    elif processes or off_queue:
        found = [each for each in processes_of(shown) if not off_queue or each.process.job is None]
        process_table(nodes=True).show(output, found)
    else:
        gpu_table(nodes=True).show(output, shown)
    return 0


def is_empty(gpu: GpuView) -> bool:
    """Return whether the GPU is allocated to jobs, and no process of a job runs on it. Return False if its
    node is not connected.
    """
    return gpu.heard and bool(gpu.jobs) and all(each.job is None for each in gpu.processes)


def seems_hung(gpu: GpuView) -> bool:
    """Return whether the GPU reports a high load but draws little power. Return False for a MIG instance,
    because its power reading is that of the whole GPU. Also return False if the node is not connected.
    """
    busy = gpu.heard and not gpu.mig and gpu.utilisation >= HUNG_LOAD
    return busy and 0 < gpu.power_w < gpu.power_limit_w * HUNG_POWER / 100


def _idle_s(gpu: GpuView) -> float:
    return -1.0 if gpu.idle_since is None else time.time() - gpu.idle_since


def _chosen(gpus: tuple[GpuView, ...], names: list[str], sick: bool) -> list[GpuView]:
    known = {gpu.node for gpu in gpus}
    missing = [name for name in names if name not in known]
    if missing:
        message = f"there is no node {missing[0]!r} with GPUs"
        raise CommandError(message, "'corral nodes' lists the nodes.", NOT_FOUND)
    return [
        gpu
        for gpu in gpus
        if (not names or gpu.node in names) and (not sick or gpu.health is not GpuHealth.OK)
    ]
