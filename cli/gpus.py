"""corral gpus: every GPU of the cluster, its health, its use, and who is on it."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from cli import complete, units
from cli.commands import application, examples
from cli.exits import NOT_FOUND, Mistake
from cli.output import Format, Output
from cli.tables import gpu_table, process_table, processes_of
from wire.api.nodes import GpuList, GpuView
from wire.client import Client
from wire.words import GpuHealth

Names = Annotated[
    list[str], typer.Argument(metavar="[NODE]...", autocompletion=complete.nodes, show_default=False)
]

app = application()


@app.command(
    epilog=examples(
        "corral gpus                        every GPU of the cluster",
        "corral gpus gpu01 -o wide          of one node, with clocks, ECC, NVLink and PCI address",
        "corral gpus --sick                 those that take no work, and why",
        "corral gpus --processes            what runs on them, with owner and job",
        "corral gpus --off-queue            who came past the queue",
        "corral gpus --idle 30m             whose jobs let their GPUs idle",
        "corral gpus -o json | jq '.gpus[].health'",
    )
)
def gpus(
    names: Names = [],  # noqa: B006 - never changed
    sick: Annotated[bool, typer.Option("--sick", help="Only GPUs that are not well.")] = False,
    processes: Annotated[
        bool, typer.Option("--processes", help="What runs on them, and whose it is.")
    ] = False,
    off_queue: Annotated[
        bool, typer.Option("--off-queue", help="Only processes without a job, with their owner.")
    ] = False,
    idle: Annotated[
        str, typer.Option("--idle", metavar="TIME", help="Only held GPUs that did nothing for so long.")
    ] = "",
    output: Output = Format.TABLE,
) -> int:
    """Show the GPUs of all nodes, or of some: health, use, and who is on them."""
    body = Client().gpus()
    shown = _chosen(body.gpus, names, sick)
    if idle:
        shown = [gpu for gpu in shown if _idle_s(gpu) >= _time(idle)]
    if output is Format.JSON:
        gpu_table(nodes=True).show(output, shown, GpuList(tuple(shown), body.seq))
    elif processes or off_queue:
        found = [each for each in processes_of(shown) if not off_queue or each.process.job is None]
        process_table(nodes=True).show(output, found)
    else:
        gpu_table(nodes=True).show(output, shown)
    return 0


def _idle_s(gpu: GpuView) -> float:
    return -1.0 if gpu.idle_since is None else time.time() - gpu.idle_since


def _time(text: str) -> float:
    try:
        return units.seconds(text)
    except ValueError as error:
        raise Mistake(f"--idle: {error}") from None


def _chosen(gpus: tuple[GpuView, ...], names: list[str], sick: bool) -> list[GpuView]:
    known = {gpu.node for gpu in gpus}
    missing = [name for name in names if name not in known]
    if missing:
        message = f"there is no node {missing[0]!r} with GPUs"
        raise Mistake(message, "'corral nodes' shows what there is.", NOT_FOUND)
    return [
        gpu
        for gpu in gpus
        if (not names or gpu.node in names) and (not sick or gpu.health is not GpuHealth.OK)
    ]
