"""Prints the results of simulated runs: as a table, as headings and values, as JSON or as CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from cli.output.formats import Column, Format, Table, write_data, write_facts
from wire.text import duration

JUDGED = 6
"""The most sentences about projects and users that were treated unfairly, in the results of one run."""
Body = Mapping[str, Any]
"""The results of one simulated run, as JSON data."""


def show(form: Format, bodies: Sequence[Body], *, alone: bool) -> None:
    """Print the results. `alone` is true if the user simulated one policy, and false if the user compares
    several policies.
    """
    if form.is_data:
        write_data(form, bodies[0] if alone else list(bodies))
    elif form == Format.CSV:
        write_csv(bodies)
    elif form == Format.TABLE and alone:
        write_facts(_facts(bodies[0]))
    else:
        table().show(form, bodies)


def shows_gpu_hours(form: Format, *, alone: bool) -> bool:
    """Return whether `show` prints the reports on fairness and idle GPU-hours. `show` prints these reports in
    all data formats, and in the table of a single run.
    """
    return form.is_data or (form == Format.TABLE and alone)


def table(*more: Column[Body]) -> Table[Body]:
    """Return the table of results, with one line for each run. The columns in `more` are added at the end. If
    `more` is empty, a column with the CPU time of the simulation is added.
    """
    return Table(
        [
            Column("POLICY", lambda run: run["policy"]),
            Column("JOBS", lambda run: f"{run['jobs']:,}", rank=9, right=True),
            Column("MEAN WAIT", lambda run: duration(run["mean_wait_s"]), right=True),
            Column("P50", lambda run: duration(run["p50_wait_s"]), rank=4, right=True),
            Column("P95", lambda run: duration(run["p95_wait_s"]), rank=3, right=True),
            Column("AVEBSLD", lambda run: f"{run['avebsld']:.3f}", right=True),
            Column("USED", lambda run: _percent(run["utilisation"]), rank=1, right=True),
            Column("FRAGMENTED", lambda run: _percent(run["fragmentation"]), rank=6, right=True),
            Column("MAKESPAN", lambda run: duration(run["makespan_s"]), rank=5, right=True),
            Column("FAIRNESS", lambda run: f"{run['fairness']:.3f}", rank=2, right=True),
            Column("PREEMPTED", lambda run: f"{run['preemptions']:,}", rank=8, right=True),
            Column("GPU-H LOST", lambda run: f"{run['gpu_hours_lost']:,.1f}", rank=7, right=True),
            *(more or (Column("CPU", lambda run: f"{run['cpu_s']:.1f}s", rank=10, right=True),)),
        ],
        name=lambda run: str(run["policy"]),
    )


def _by(run: Body) -> str:
    return " by predictions" if run.get("estimate") == "predicted" else ""


def _facts(run: Body) -> list[tuple[str, str]]:
    waits = [duration(run[f"{which}_wait_s"]) for which in ("mean", "p50", "p95")]
    return [
        ("policy", f"{run['policy']} (order {run['order']}, backfill {run['backfill']}{_by(run)})"),
        ("cluster", run["cluster"]),
        ("jobs", f"{run['jobs']:,}"),
        ("wait", f"{waits[0]} mean, {waits[1]} p50, {waits[2]} p95"),
        ("bounded slowdown", f"{run['avebsld']:.3f} mean, {run['max_bsld']:,.1f} at most"),
        ("flow", f"{duration(run['mean_flow_s'])} mean, {duration(run['max_flow_s'])} at most"),
        ("utilisation", _percent(run["utilisation"])),
        ("fragmentation", f"{_percent(run['fragmentation'])} idle while jobs waited"),
        ("makespan", duration(run["makespan_s"])),
        ("fairness", f"{run['fairness']:.3f} between users"),
        ("preemptions", f"{run['preemptions']:,}, {run['gpu_hours_lost']:,.1f} GPU-hours lost"),
        ("moves", f"{run['moves']:,} of these" if run["moves"] else ""),
        *_accounted_facts(run),
        ("CPU time", f"{run['cpu_s']:.2f}s"),
    ]


def _accounted_facts(run: Body) -> list[tuple[str, str]]:
    """Return two facts, each with a heading and a text; nothing if the results have no report on idle
    GPU-hours. The first has the idle GPU-hours by cause. The second has sentences about projects and users
    that got much more or less than their entitlement, or whose jobs waited very long.
    """
    if "waste" not in run:
        return []
    idle = [
        f"{each['percent']:.1f}% {each['cause']}" for each in run["waste"]["idle"] if each["percent"] >= 0.1
    ]
    rows = [*run["project_fairness"]["rows"], *run["user_fairness"]["rows"]]
    judged = [each["judgement"] for each in rows if each["judgement"]]
    more = f", and {len(judged) - JUDGED} more" if len(judged) > JUDGED else ""
    return [
        ("idle GPUs", ", ".join(idle) or "none"),
        (
            "entitlement",
            "\n".join(judged[:JUDGED]) + more if judged else "no project or user was treated unfairly",
        ),
    ]


def _percent(part: float) -> str:
    return f"{100 * part:.1f}%"


def write_csv(bodies: Sequence[Body]) -> None:
    """Print the results as CSV: a line with the names of the columns, then one line for each run."""
    names = [name for name, value in bodies[0].items() if not isinstance(value, (dict, list))]
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(names)
    out.writerows([body[name] for name in names] for body in bodies)
