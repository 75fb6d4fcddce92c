"""The contents of table cells. A cell has a text and the name of the style of this text."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Sequence
from itertools import groupby

from tui.data.lists.cluster_lists import job_location
from tui.look import glyphs
from tui.look.graphs import Values, heat
from tui.look.styled_lines import Piece, level
from wire.api.jobs import JobView
from wire.api.nodes import GpuView, NodeView
from wire.job.spec import gpus_text
from wire.names import WHOLE_GPU, GpuHealth, JobState, Reason, priority_name
from wire.text import duration, printable

_QUIET_REASONS = (Reason.NONE, Reason.NEW)


def job_part(job: JobView) -> str:
    """Return the style name for the state of a job, such as "running"."""
    return "held" if job.reason is Reason.HELD else job.state.value.lower()


def job_state(job: JobView) -> Piece:
    """Return the symbol and the state of a job, such as ● running. The state of a held job is "held". An
    exclamation mark follows the state of a job that waits much longer than usual.
    """
    held = job.reason is Reason.HELD
    sign = glyphs.HELD if held else glyphs.JOB[job.state]
    late = glyphs.LONG_WAIT if job.waits_long else ""
    return (f"{sign} {'held' if held else job.state.value.lower()}{late}", job_part(job))


def job_location_cell(job: JobView) -> Piece:
    """Return the nodes of the job, or the reason why the job waits or has ended. The cell is empty for a job
    that waits without a special reason (_QUIET_REASONS).
    """
    if job.state is JobState.QUEUED and job.last is not None and job.last.reason is Reason.PREEMPTED:
        return (printable(f"PREEMPTED · {job_location(job)}"), "warn")
    if job.state is JobState.QUEUED and job.reason in _QUIET_REASONS:
        return ("", "muted")
    part = "failed" if job.state is JobState.FAILED else text_part(job) if job.held else "muted"
    return (printable(job_location(job)), part)


def job_time(job: JobView, now: float) -> Piece:
    """Return how long the job has run; for a waiting job, how long it has waited since its submit."""
    if job.state.terminal:
        ran = None if job.started_at is None or job.ended_at is None else job.ended_at - job.started_at
        return (duration(ran), "muted")
    if job.started_at is not None:
        return (duration(now - job.started_at), "text")
    return (duration(now - job.submitted_at), "muted")


def text_part(job: JobView) -> str:
    return "muted" if job.state.terminal else "text"


def gpus(job: JobView) -> Piece:
    """Return the number of GPUs of a job, such as 8 or 0.25; a dot if the job has none."""
    return (gpus_text(job.gpus), text_part(job)) if job.gpus else ("·", "faint")


def priority(job: JobView) -> Piece:
    """Return the priority class of a job. A priority of 75 or more is emphasised while the job has not
    ended.
    """
    name = priority_name(job.priority).lower()
    return (name, "warn" if job.priority >= 75 and not job.state.terminal else "muted")


def clock(at: float | None, now: float) -> str:
    """Return the time `at` as the time of day, with the date if `at` is on another day than `now`; "-" for
    None. Both times are in seconds since 1970.
    """
    if at is None:
        return "-"
    then, today = time.localtime(at), time.localtime(now)
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%d %b %H:%M", then)


def node_state(node: NodeView) -> Piece:
    return (f"{glyphs.NODE[node.state]} {node.state_word}", node.state.value)


def gpu_kind(gpu: GpuView) -> str:
    """Return the style name for a GPU: "busy", "share" (only a part is allocated, or several jobs hold it),
    "free", or "sick" (not healthy).
    """
    if gpu.health is not GpuHealth.OK:
        return "sick"
    if gpu.free_milli >= WHOLE_GPU:
        return "free"
    return "share" if gpu.free_milli > 0 or len(gpu.jobs) > 1 else "busy"


def gpu_map(node: NodeView) -> Sequence[Piece]:
    """Return the state of each GPU of a node as symbols, and then the load of each GPU as symbols. The GPUs
    are grouped by NUMA node.
    """
    away = node.state.away
    kinds: list[Piece] = []
    loads: list[Piece] = []
    for _, group in groupby(by_numa(node), key=lambda gpu: gpu.numa):
        if kinds:
            kinds.append((" ", "text"))
            loads.append((" ", "text"))
        for gpu in group:
            kind = gpu_kind(gpu)
            kinds.append((glyphs.GPU[kind], "faint" if away else kind))
            idle = away or not gpu.utilisation
            loads.append(("·", "faint") if idle else (level(gpu.utilisation), heat(gpu.utilisation)))
    return [*kinds, ("  ", "text"), *loads] if kinds else [("none", "faint")]


SPARKS = 8
"""The width of a small graph of the last 10 minutes, in terminal cells."""


def load_graph(loads: Values, held: bool = True) -> list[Piece]:
    """Return a small graph of the load over the last 10 minutes: one symbol for each value, whose height and
    colour show the load. If a job holds the GPUs but all known loads are 0, the graph is an amber line. For a
    value of None the graph has a space.
    """
    known = [value for value in loads if value is not None]
    idle = "warn" if held and known and not any(known) else "faint"
    pieces: list[Piece] = [(" " * (SPARKS - len(loads)), "text")] if len(loads) < SPARKS else []
    for style, values in groupby(loads, lambda value: idle if not value else heat(value)):
        text = "".join(" " if value is None else level(value) for value in values)
        pieces.append((text, style))
    return pieces


def by_numa(node: NodeView) -> list[GpuView]:
    """Return the GPUs of a node in the displayed order: by NUMA node, then by index."""
    return sorted(node.gpus, key=lambda gpu: (gpu.numa, gpu.index))


def gpus_used(node: NodeView) -> float:
    """Return the number of allocated GPUs, including parts of GPUs. An unhealthy GPU counts only if a job
    holds it.
    """
    taken = (gpu for gpu in node.gpus if gpu.jobs or gpu.health is GpuHealth.OK)
    return sum(WHOLE_GPU - gpu.free_milli for gpu in taken) / WHOLE_GPU


LABEL = 10
"""The width of a label in terminal cells."""


def wrapped_fact(label: str, text: str, style: str, width: int) -> list[list[Piece]]:
    """Return lines of text with a label before the first line. A line is wider than `width` only if a single
    word is.
    """
    rows = textwrap.wrap(text, max(20, width - LABEL - 1), break_long_words=False) or [""]
    return [fact("" if at else label, (row, style)) for at, row in enumerate(rows)]


def fact(label: str, *pieces: Piece) -> list[Piece]:
    """Return one line of text with a label and a value."""
    return [(f" {label:<{LABEL}}", "muted"), *pieces]
