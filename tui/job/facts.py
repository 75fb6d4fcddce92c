"""Converts the details of a job to lines of text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from tui.data.model import ClusterModel
from tui.job.why import reason_lines
from tui.look import cells, glyphs
from tui.look.styled_lines import Piece, bar
from wire.api.jobs import Held, JobDetail, JobView
from wire.job.spec import JobSpec, gpus_text
from wire.names import JobState, Reason, priority_name
from wire.text import counted, duration, memory, printable

MOST_NODES: Final = 2
"""At most this many nodes are shown above the tabs of a job."""


def job_facts(
    job: JobView, detail: JobDetail | None, model: ClusterModel, width: int, *, brief: bool = False
) -> list[list[Piece]]:
    """Return the details of a job as lines, the most important first. `brief` is for the lines above the tabs
    of the job: these leave out the reason for the wait, the command, and all nodes after the first
    MOST_NODES.
    """
    lines = [_head(job), _times(job, model.now(), width), _wants(job, detail.spec if detail else None)]
    held = [_held(held, model) for held in job.held]
    lines += held[:MOST_NODES] if brief else held
    if brief and len(held) > MOST_NODES:
        lines.append(cells.fact("", (f"and {len(held) - MOST_NODES:,} more nodes", "muted")))
    loads = model.loads.jobs.get(job.id)
    if loads is not None and job.state is JobState.RUNNING and job.gpus:
        lines.append(cells.fact("load", *cells.load_graph(loads), ("  last 10 minutes", "muted")))
    if job.state.terminal or job.state is JobState.RUNNING:
        if job.detail:
            lines.append(
                cells.fact(
                    "detail",
                    (printable(job.detail, 400), "failed" if job.state is JobState.FAILED else "text"),
                )
            )
        if job.failure is not None:
            text = f"{job.failure.name}: {job.failure.sentence}. {job.failure.remedy}"
            lines.append(cells.fact("cause", (printable(text, 600), "warn")))
    elif not brief and detail is not None:
        lines += reason_lines(detail.why, width)
    elif not brief and job.detail:
        lines.append(cells.fact("why", (printable(job.detail, 400), "text")))
    if job.last is not None and not job.state.terminal:
        word = "PREEMPTED" if job.last.reason is Reason.PREEMPTED else job.last.reason.value
        text = f"attempt {job.last.attempt} {word} at {cells.clock(job.last.at, model.now())}"
        lines.append(cells.fact("before", (printable(f"{text}: {job.last.detail}", 400), "warn")))
    if detail is not None and not brief:
        lines.append(cells.fact("command", (command_line(detail.spec.command), "text")))
        if width >= 100 and detail.spec.workdir:
            lines.append(cells.fact("in", (printable(detail.spec.workdir, 300), "muted")))
    return lines


def command_line(words: Sequence[str]) -> str:
    """Return the command of the job on one line, with a symbol in place of each line end."""
    return printable(shlex.join(words).replace("\n", " ⏎ "), 1000)


def _head(job: JobView) -> list[Piece]:
    profile = f"profile {job.profile}" if job.profile else ""
    service = f"service {job.service}" if job.service else ""
    tenant = (job.user, f"project {job.project}", f"queue {job.queue}")
    parts = (*tenant, service, profile, priority_name(job.priority).lower(), job.qos)
    parts_text = " · ".join(printable(part, 40) for part in parts if part)
    state, part = cells.job_state(job)
    end: list[Piece] = []
    if job.exit_code is not None and job.exit_code != 0:
        end = [(f" exit {job.exit_code}", "failed")]
    elif job.signal is not None:
        end = [(f" signal {job.signal}", "failed")]
    return [(f" {state}", part), *end, ("   ", "text"), (parts_text, "text")]


def _times(job: JobView, now: float, width: int) -> list[Piece]:
    waited = (job.started_at or job.ended_at or now) - job.submitted_at
    pieces: list[Piece] = [
        (f"submitted {cells.clock(job.submitted_at, now)}", "text"),
        (f" · waited {duration(waited)}", "muted"),
    ]
    if job.started_at is not None:
        ran = (job.ended_at or now) - job.started_at
        pieces.append((f" · {'ran' if job.ended_at else 'running'} {duration(ran)} ", "muted"))
        if job.time_limit_s and not job.ended_at:
            share = ran / job.time_limit_s
            pieces += bar(share, 16 if width >= 100 else 8, "warn" if share > 0.9 else "bar")
    if job.time_limit_s:
        running = job.started_at is not None and not job.ended_at
        pieces.append((f"{'' if running else ' ·'} limit {duration(job.time_limit_s)}", "muted"))
    if job.attempt > 1:
        pieces.append((f" · attempt {job.attempt}", "warn"))
    return cells.fact("time", *pieces)


def _wants(job: JobView, spec: JobSpec | None) -> list[Piece]:
    models = (
        f" {'/'.join(printable(model, 20) for model in spec.gpu_models)}" if spec and spec.gpu_models else ""
    )
    gpus = f"{gpus_text(job.gpus)} GPU{'' if job.gpus <= 1 else 's'}{models}" if job.gpus else "no GPU"
    nodes = f" over {job.nodes} nodes, each" if job.nodes > 1 else " with"
    pieces: list[Piece] = [
        (gpus, "strong"),
        (f"{nodes} {counted(job.cpu_milli / 1000, 'CPU')}, {memory(job.memory_mib)}", "text"),
    ]
    if spec and spec.selector:
        wanted = ", ".join(printable(f"{name}={value}", 60) for name, value in spec.selector.items())
        pieces.append((f" · only {wanted}", "muted"))
    return cells.fact("wants", *pieces)


def _held(held: Held, model: ClusterModel) -> list[Piece]:
    node = model.nodes.rows.get(held.node)
    gpus = {gpu.index: gpu for gpu in node.gpus} if node else {}
    pieces: list[Piece] = [(f"{printable(held.node, 30)}  ", "accent")]
    for share in held.gpus:
        gpu = gpus.get(share.index)
        part = f" {share.milli / 1000:g}" if share.milli < 1000 else ""
        pieces.append(
            (
                f"{glyphs.GPU['share' if part else 'busy']} {share.number}{part}",
                "share" if part else "busy",
            )
        )
        pieces.append((f" {gpu.utilisation}%  " if gpu else "  ", "muted"))
    return cells.fact("holds", *pieces)
