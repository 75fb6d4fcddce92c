"""Two sections of the report: the Gantt chart of the jobs on each node, and the table of the longest
waits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from controller.sim.report.charts.axes import moment_text
from controller.sim.report.gantt.bars import tracks_of
from controller.sim.report.gantt.encoding import Gantt
from controller.sim.report.markup import Markup, el
from controller.sim.report.number_formats import count, number, percent, span_text
from controller.sim.report.page_elements import details, of_several, section, table
from controller.sim.report.run import ReportRun, TimeSpan

LISTED, NODES = 15, 300
"""The greatest number of jobs of one run in the table of waits, and of nodes in the table of nodes."""


def gantt_section(runs: Sequence[ReportRun], charts: Sequence[Gantt]) -> Markup:
    """Return the section with the Gantt chart, which the script of the report draws, and with a table of the
    attempts and the utilisation of each node.
    """
    notes = [
        note for run, chart in zip(runs, charts, strict=True) for note in _left_out(run, chart, len(runs))
    ]
    return section(
        "Jobs by node",
        " ".join(
            [
                f"Each row is a {runs[0].unit} of a node, and each bar is a job."
                if runs[0].by_gpu
                else "Each bar is a job. The height of a node is its number of processors.",
                *notes,
            ]
        ),
        el("div", id="gantt"),
        el("noscript", el("p", "This chart needs JavaScript; the table below does not.", class_="about")),
        details("Attempts and utilisation of each node", _node_table(runs)),
    )


def _left_out(run: ReportRun, chart: Gantt, runs: int) -> list[str]:
    of = f" of {run.label}" if runs > 1 else ""
    notes = []
    if chart.left_out:
        notes.append(
            f"The {chart.left_out:,} smallest of {chart.bars + chart.left_out:,} bars{of} are not drawn, "
            f"with {percent(chart.left_out_part)} of the time; the rest of the page counts every job."
        )
    without = sum(not run.held(record) for record in run.started)
    if without:
        notes.append(f"{count(without, 'job')}{of} that held no {run.unit} are not in this chart.")
    return notes


def _node_table(runs: Sequence[ReportRun]) -> Markup:
    rows = []
    for run in runs:
        held: dict[str, float] = defaultdict(float)
        jobs: Counter[str] = Counter()
        for record in run.started:
            for part in record.allocations:
                units = sum(hold.milli for hold in part.gpus) if run.by_gpu else part.cpu_milli
                held[part.node] += units * run.ran_s(record)
                jobs[part.node] += 1
        capacity: Counter[str] = Counter()
        for track in tracks_of(run):
            capacity[track.node] += track.units
        possible = run.end_s - run.begin_s
        rows += [
            [
                node,
                *of_several(runs, run.label),
                number(jobs[node]),
                percent(held[node] / (units * possible or 1)),
            ]
            for node, units in [*capacity.items()][:NODES]
        ]
    heading = ["Node", *of_several(runs, "Run"), "Attempts", "Utilisation"]
    cut = f"The first {NODES} nodes" if len(runs[0].cluster.nodes) > NODES else ""
    return table(cut, heading, rows)


def waits_section(runs: Sequence[ReportRun], span: TimeSpan) -> Markup:
    """Return the section with the table of the longest waits; empty if no job waited at least one second."""
    rows = [
        [
            str(run.number(record)),
            *of_several(runs, run.label),
            el("span", record.user),
            record.project,
            number(run.size(record)),
            moment_text(record.submit_s - span.begin_s, span),
            span_text(record.wait_s),
            span_text(run.ran_s(record)),
            record.state.value.lower(),
        ]
        for run in runs
        for record in sorted(run.started, key=lambda record: -record.wait_s)[:LISTED]
        if record.wait_s >= 1
    ]
    heading = [
        "Job",
        *of_several(runs, "Run"),
        "User",
        "Project",
        "Size",
        "Submitted after",
        "Waited",
        "Ran",
        "Ended",
    ]
    return section("Longest waits", "", table("", heading, rows)) if rows else Markup("")
