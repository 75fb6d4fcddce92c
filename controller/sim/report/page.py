"""Builds the HTML page of a report: one file that loads nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from controller.sim.report.gantt.encoding import MOST, gantt_of
from controller.sim.report.markup import Markup, data, el
from controller.sim.report.node_holders import gantt_section, waits_section
from controller.sim.report.run import ReportRun, TimeSpan, span_of
from controller.sim.report.sections import (
    figures_section,
    shares_sections,
    spreads_sections,
    story_section,
    tiles,
    time_sections,
)
from controller.sim.report.sentences import about_one, about_several
from wire import VERSION

SCRIPTS = ("base", "curves", "bars", "canvas", "gantt")
"""The JavaScript files of the report, without the ending .js. Their texts are joined in this order into one
script.
"""


def render(runs: Sequence[ReportRun]) -> str:
    """Return the HTML page about one run, or a comparison of several. The same runs give the same page."""
    span = span_of(runs)
    charts = [gantt_of(run, span, MOST // len(runs)) for run in runs]
    time, readings = time_sections(runs, span)
    script = "\n".join(_asset(f"script/{name}.js") for name in SCRIPTS)
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_policy(script)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="generator", content=f"corral {VERSION}"),
        el("title", title_of(runs)),
        el("style", Markup(_asset("page.css"))),
    )
    body = el(
        "body",
        _header(runs, span),
        el(
            "main",
            tiles(runs[0]) if len(runs) == 1 else figures_section(runs),
            time,
            spreads_sections(runs),
            shares_sections(runs),
            gantt_section(runs, charts),
            story_section(runs),
            waits_section(runs, span),
            figures_section(runs) if len(runs) == 1 else None,
        ),
        _footer(),
        data("time-data", {"length": span.length_s, "charts": readings}),
        data("gantt-data", [chart.packed for chart in charts]),
        el("script", Markup(script)),
    )
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def title_of(runs: Sequence[ReportRun]) -> str:
    """Return the title of the page: the names of the runs, and the name of the log if all runs have the same
    log.
    """
    labels = [run.label for run in runs]
    named = labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"
    sources = {run.source for run in runs}
    return f"{named} on {sources.pop()}" if len(sources) == 1 and "" not in sources else named


def _header(runs: Sequence[ReportRun], span: TimeSpan) -> Markup:
    story = about_one(runs[0], span) if len(runs) == 1 else about_several(runs)
    return el(
        "header",
        el("p", "Corral simulation" if len(runs) == 1 else "Comparison of Corral simulations", class_="kind"),
        el("h1", title_of(runs)),
        el("p", " ".join(story), class_="story"),
    )


def _footer() -> Markup:
    return el(
        "footer",
        el(
            "p",
            f"Made by corral {VERSION}. This file needs no network: it loads nothing and sends nothing. "
            "The controller's scheduling engine ran in virtual time on virtual nodes.",
        ),
    )


def _policy(script: str) -> str:
    """Return the Content-Security-Policy of the page.

    The policy forbids the browser to load any resource, and to run any script except the report's own. A
    script in a job name is thus never run.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )


def _asset(name: str) -> str:
    return files("controller.sim.report").joinpath(name).read_text(encoding="utf-8")
