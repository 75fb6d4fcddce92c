"""The lines of two tabs of a job: the tab with its GPUs, and the tab with its request."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from tui.data.model import ClusterModel
from tui.job.facts import command_line
from tui.look import cells, glyphs
from tui.look.graphs import Values
from tui.look.styled_lines import Piece, fit
from wire.api.jobs import JobDetail, JobView
from wire.codec import dumps, encode
from wire.job.spec import JobSpec
from wire.text import counted, memory, printable

NAME: Final = 18
"""The width of the names of fields, in terminal cells."""
HIDDEN: Final = frozenset({"command", "env"})
"""The fields of a JobSpec that are not shown with their values: the command is shown as a shell line, and the
values of variables may be secret."""


def gpu_lines(
    job: JobView,
    detail: JobDetail | None,
    loads: Mapping[str, Mapping[str, Values]],
    model: ClusterModel,
    width: int,
) -> list[list[Piece]]:
    """Return the lines of the tab with the GPUs. Each node that the job holds has one line, followed by one
    line for each of its GPUs, with the load of the GPU over the last 10 minutes. The lines of `_use` are at
    the end. `loads` is a dict from node name to a dict from GPU UUID to the loads.
    """
    lines = []
    graph = max(cells.SPARKS, min(60, width - 64))
    for held in job.held:
        node = model.nodes.rows.get(held.node)
        gpus = {gpu.index: gpu for gpu in node.gpus} if node else {}
        cpus = counted(held.cpu_milli / 1000, "CPU")
        lines.append(
            [
                (f"  {printable(held.node, 30)}", "accent"),
                (f"  {cpus}, {memory(held.memory_mib)}", "muted"),
                ("" if held.gpus else ", no GPU", "muted"),
            ]
        )
        for share in held.gpus:
            gpu = gpus.get(share.index)
            series = loads.get(held.node, {}).get(share.uuid, ())
            part = f"{share.milli / 1000:g}" if share.milli < 1000 else ""
            kind = "share" if part else "busy"
            lines.append(
                [
                    (f"    {glyphs.GPU[kind]} ", kind),
                    (f"{share.number:<4}", "strong"),
                    (f"{part:<5}", "muted"),
                    *cells.load_graph(_shrunk(series, graph)),
                    (" " * (graph - min(graph, max(len(series), cells.SPARKS))), "text"),
                ]
            )
            if gpu is not None:
                lines[-1] += [
                    (f" {gpu.utilisation:>4}%", "text"),
                    (f"{memory(gpu.memory_used_mib):>8}/{memory(gpu.memory_mib)}", "muted"),
                    (f"{gpu.power_w:>6}W{gpu.temperature_c:>4}°", "muted"),
                    (f"  {printable(gpu.model.removeprefix('NVIDIA '), 16)}", "faint"),
                ]
    if not lines:
        lines = [[], [("  the job holds no nodes now", "muted")]]
    return [*lines, [], *_use(job, detail, width)]


def spec_lines(detail: JobDetail | None, width: int) -> list[list[Piece]]:
    """Return the lines of the tab with the request: the command, and each field that differs from its
    default. Of environment variables, only the names are shown.
    """
    if detail is None:
        return [[], [("  loading…", "faint")]]
    spec, default = detail.spec, JobSpec(command=())
    lines = _field("command", command_line(spec.command), "strong", width)
    for each in fields(JobSpec):
        value = getattr(spec, each.name)
        if each.name not in HIDDEN and value != getattr(default, each.name):
            text = value if isinstance(value, str) else dumps(encode(value))
            lines += _field(each.name, printable(text, 600), "text", width)
    if spec.env:
        lines += _field("env", printable(" ".join(sorted(spec.env)), 600), "muted", width)
    return lines


def _field(name: str, text: str, style: str, width: int) -> list[list[Piece]]:
    """Return the lines of a field: its name, and its text on as many lines as necessary."""
    rows = textwrap.wrap(text, max(20, width - NAME - 3)) or [""]
    return [[(f"  {fit('' if at else name, NAME)} ", "muted"), (row, style)] for at, row in enumerate(rows)]


def _shrunk(values: Values, most: int) -> list[float | None]:
    """Return at most `most` values. If there are more values, each returned value is the mean of neighbouring
    values.
    """
    step = -(-len(values) // most) if values else 1
    shrunk: list[float | None] = []
    for begin in range(0, len(values), step):
        known = [value for value in values[begin : begin + step] if value is not None]
        shrunk.append(sum(known) / len(known) if known else None)
    return shrunk


def _use(job: JobView, detail: JobDetail | None, width: int) -> list[list[Piece]]:
    """Return lines with the GPU, CPU and memory usage of the last attempt, the GPU-hours of the ended
    attempts, and the newest checkpoint.
    """
    lines: list[list[Piece]] = []
    if job.use is not None:
        text = f"mean load {job.use.mean:.0f} %, 95 % of the time at most {job.use.p95} %, "
        text += f"at most {memory(job.use.peak_mib)} of GPU memory, {job.use.wh / 1000:.1f} kWh"
        lines += _field("last attempt", text, "text", width)
    if job.host_use is not None:
        text = f"{job.host_use.cpu_s / 3600:.1f} CPU-hours, at most {memory(job.host_use.peak_mib)} of memory"
        lines += _field("on its nodes", text, "text", width)
    if job.gpu_hours:
        lines += _field("ended attempts", f"{job.gpu_hours:.1f} GPU-hours", "text", width)
    if detail is not None and detail.checkpoint is not None:
        saved = detail.checkpoint
        text = f"{printable(saved.path, 200)}  {memory(saved.size >> 20)}"
        lines += _field("checkpoint", text, "text", width)
    return lines
