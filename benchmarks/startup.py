"""Measures the CPU time that the command line needs to start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.table import heading, row, spread

CORRAL = Path(sys.executable).with_name("corral")


def process_times(command: list[str], count: int = 10) -> list[float]:
    """Run a command `count` times, and return the CPU seconds (user and system) of each run."""
    taken = []
    for _ in range(count):
        before = os.times()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        taken.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
    return taken


def run() -> None:
    heading("Start-up, process time, p50 / p95")
    row("corral --help", spread(process_times([str(CORRAL), "--help"])), "150 ms")
    row("corral submit --help", spread(process_times([str(CORRAL), "submit", "--help"])))
    row("(bare python)", spread(process_times([sys.executable, "-c", "pass"])))
