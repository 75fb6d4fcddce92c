"""Reports of simulated runs as one HTML file: about one run, or a comparison of several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from controller.sim.report.page import render
from controller.sim.report.run import ReportRun

__all__ = ["ReportRun", "render", "write_report"]


def write_report(runs: Sequence[ReportRun], path: Path) -> None:
    """Write the report on one run, or a comparison of several. An existing file is replaced."""
    path.write_text(render(runs), encoding="utf-8", newline="\n")
