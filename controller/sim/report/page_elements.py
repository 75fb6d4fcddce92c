"""HTML elements of the report's page, such as tables, sections and legends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from controller.sim.report.markup import Markup, el, joined
from controller.sim.report.run import ReportRun

PALETTE = 6
"""Number of different colours for runs in a chart. Further runs get the same colours again."""


def table(caption: str, heading: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Return an HTML table. The cells of its first column are row headings."""
    return el(
        "div",
        el(
            "table",
            el("caption", caption) if caption else None,
            el("thead", el("tr", *(el("th", name, scope="col") for name in heading))),
            el(
                "tbody",
                *(
                    el("tr", el("th", row[0], scope="row"), *(el("td", cell) for cell in row[1:]))
                    for row in rows
                ),
            ),
        ),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=caption or "Table",
    )


def of_several(runs: Sequence[ReportRun], cell: str) -> list[str]:
    """Return `[cell]` if the report has several runs, and an empty list if it has only one run. The cell
    belongs to a column that names the run, which a report on one run does not have.
    """
    return [cell] if len(runs) > 1 else []


def section(title: str, about: str, *inside: Markup | None) -> Markup:
    return el("section", el("h2", title), el("p", about, class_="about") if about else None, *inside)


def figure(name: str, drawing: Markup) -> Markup:
    reading = el("p", class_="reading", aria_live="off") if name else None
    return joined(el("figure", drawing, data_chart=name or None), reading)


def details(of: str, inside: Markup) -> Markup:
    return el("details", el("summary", "As a table", aria_label=f"{of}, as a table"), inside)


def legend(runs: Sequence[ReportRun]) -> Markup | None:
    """Return the legend that shows the colour of each run, or None for a single run."""
    if len(runs) < 2:
        return None
    return el("ul", *(el("li", _swatch(place), run.label) for place, run in enumerate(runs)), class_="legend")


def _swatch(place: int) -> Markup:
    line = el("path", class_=f"line run{place % PALETTE}", d="M0 5H26")
    return el("svg", line, viewBox="0 0 26 10", aria_hidden="true")
