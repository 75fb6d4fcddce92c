"""One HTML file that shows what a run of the simulator came to, or how several compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from controller.sim.report.page import render
from controller.sim.report.run import Run

__all__ = ["Run", "render", "write_report"]


def write_report(runs: Sequence[Run], path: Path) -> None:
    """Write the report on one run, or the comparison of several, in place of what is there."""
    path.write_text(render(runs), encoding="utf-8", newline="\n")
