"""corral report: compares predicted run times and start times with the real ones."""

from __future__ import annotations

from cli.output.formats import Column, Format, Output, Table, write
from cli.output.stderr import print_note
from cli.registry import application, examples
from wire.api.reports import EstimateReport, RunEstimate, StartEstimates
from wire.http.client import Client
from wire.text import duration

app = application("Show how accurate predicted run times and estimated starts have been.")


@app.callback(epilog=examples("corral report estimates", "corral report starts"))
def front() -> None:
    """Show how accurate predicted run times and estimated start times have been."""


@app.command(epilog=examples("corral report estimates", "corral report estimates -o json"))
def estimates(output: Output = Format.TABLE) -> int:
    """Show by how much predicted run times, time limits and estimated start times differed from the real
    times.
    """
    body = Client().estimates()
    runs_table().show(output, _lines(body), body)
    if output in (Format.TABLE, Format.WIDE):
        write("\n")
        starts_table().show(output, body.starts, body)
        print_note(_planning_note(body))
    return 0


@app.command(epilog=examples("corral report starts", "corral report starts -o csv"))
def starts(output: Output = Format.TABLE) -> int:
    """Show by how much estimated start times differed from the real ones, for three kinds of estimates:
    reservations of backfill, forecasts from time limits, and forecasts from predicted run times.
    """
    body = Client().estimates()
    starts_table().show(output, body.starts, body)
    return 0


def _lines(body: EstimateReport) -> list[RunEstimate]:
    return [*body.runs, *([body.all_runs] if body.all_runs is not None else [])]


def _planning_note(body: EstimateReport) -> str:
    counts_on = "predictions" if body.plans == "predicted" else "time limits"
    none = "" if body.runs else "No job that was predicted has ended yet. "
    return f"{none}Backfill plans with {counts_on}: [backfill] estimate = {body.plans!r} in scheduler.toml."


def runs_table() -> Table[RunEstimate]:
    return Table(
        [
            Column("USER", lambda each: each.user or "(all)", least=6),
            Column("JOBS", lambda each: str(each.jobs), right=True),
            Column("RAN", lambda each: duration(each.run_s), right=True),
            Column("BIAS", lambda each: _signed(each.bias_s), right=True),
            Column("ERROR", lambda each: duration(each.error_s), right=True),
            Column("OUTLIVED", lambda each: f"{each.outlived:.0%}", right=True),
            Column(
                "LIMITS OFF BY",
                lambda each: "-" if each.limit_error_s is None else duration(each.limit_error_s),
                right=True,
            ),
        ],
        name=lambda each: each.user or "(all)",
        kind=RunEstimate,
    )


_KINDS = {"promise": "promised", "latest": "at the latest", "likely": "likely"}


def starts_table() -> Table[StartEstimates]:
    """Return the table of errors of estimated start times, with one line for each kind of estimate."""
    return Table(
        [
            Column("START", lambda each: _KINDS.get(each.kind, each.kind), least=8),
            Column("ESTIMATES", lambda each: str(each.count), right=True),
            Column("AHEAD", lambda each: duration(each.ahead_s), right=True),
            Column("BIAS", lambda each: _signed(each.bias_s), right=True),
            Column("ERROR", lambda each: duration(each.error_s), right=True),
            Column("LATE", lambda each: f"{each.late:.0%}", right=True),
        ],
        name=lambda each: each.kind,
        kind=StartEstimates,
    )


def _signed(seconds: float) -> str:
    text = duration(abs(seconds))
    return text if text == duration(0) else ("-" if seconds < 0 else "+") + text
