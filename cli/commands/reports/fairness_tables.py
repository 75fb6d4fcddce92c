"""Tables of the reports on fairness and on idle GPU-hours, for corral report and corral sim run."""

from __future__ import annotations

from cli.output.formats import Column, Table
from wire.api.service.reports import FairnessRow, GpuHoursByCause, WasteReport
from wire.text import decimal, duration


def fairness_table(by: str) -> Table[FairnessRow]:
    """Return the table of the fairness report. Each line has the GPU-hours that a project or user used, the
    GPU-hours to which it was entitled, and the waits of its jobs. `by` is the title of the first column.
    """
    return Table(
        [
            Column(by.upper(), lambda each: each.name, narrow=8),
            Column("GOT", lambda each: decimal(each.got), right=True),
            Column("ENTITLED", lambda each: decimal(each.entitled), right=True),
            Column("POINTS", lambda each: f"{each.points:+.1f}", right=True),
            Column("DEMANDED", lambda each: decimal(each.demanded), rank=3, right=True),
            Column("STARTED", lambda each: f"{each.started:,}", rank=5, right=True),
            Column("WAIT P50", lambda each: _wait(each.wait_p50_s), rank=4, right=True),
            Column("P90", lambda each: _wait(each.wait_p90_s), rank=2, right=True),
            Column("MAX", lambda each: duration(each.wait_max_s), rank=1, right=True),
            Column("WAITS LONGEST", _longest, rank=6),
            Column("SCAVENGED", lambda each: decimal(each.scavenged), rank=7, right=True, wide=True),
        ],
        name=lambda each: each.name,
        kind=FairnessRow,
    )


def waste_table(state: str) -> Table[GpuHoursByCause]:
    """Return the table of idle or lost GPU-hours by cause. `state` is the title of the first column."""
    return Table(
        [
            Column(state, lambda each: each.cause, narrow=12),
            Column("GPU-HOURS", lambda each: decimal(each.gpu_hours), right=True),
            Column("OF ALL", lambda each: f"{each.percent:.1f}%", right=True),
            Column("AVOIDABLE", lambda each: "yes" if each.avoidable else "", rank=2),
            Column("MEANING", lambda each: each.about, rank=1, narrow=20),
        ],
        name=lambda each: each.cause.replace(" ", "-"),
        kind=GpuHoursByCause,
    )


def waste_sentence(body: WasteReport) -> str:
    """Return a sentence with the used, idle and lost GPU-hours of the report."""
    idle, lost = (sum(each.gpu_hours for each in found) for found in (body.idle, body.lost))
    avoidable = sum(each.gpu_hours for each in body.idle if each.avoidable)
    if not body.gpu_hours:
        return "No GPU-hours were accounted in this time."
    return (
        f"Jobs used {decimal(body.used)} of {decimal(body.gpu_hours)} GPU-hours "
        f"({100 * body.used / body.gpu_hours:.1f} %), {decimal(idle)} were idle, of which "
        f"{decimal(avoidable)} were avoidable. Work of {decimal(lost)} GPU-hours was lost."
    )


def _wait(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def _longest(each: FairnessRow) -> str:
    return f"job {each.longest_waiting}: {duration(each.longest_waiting_s)}" if each.longest_waiting else "-"
