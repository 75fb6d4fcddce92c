"""corral sim report: writes the results of simulated runs as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cli.commands.sim import run
from cli.flags import option, with_flag_groups
from cli.registry import examples

EXAMPLES = examples(
    "corral sim report jobs.csv --nodes 16 --gpus 8",
    "corral sim report jobs.csv --nodes 16 --gpus 8 --compare fcfs,sjf,easy -o policies.html",
    "corral sim report log.swf.gz -o log.html",
    "corral sim generate jobs.csv && corral sim report jobs.csv --nodes 16 --gpus 8",
)


@with_flag_groups
def report(
    log: run.LogPath,
    flags: run.RunFlags,
    file: Annotated[Path, option("-o --output", "FILE", "HTML file to write. Default: report.html.")] = Path(
        "report.html"
    ),
) -> int:
    """Run a log as 'corral sim run' does, and write the results as one HTML page.

    The page shows utilisation and queue over time, waits by user and size, slowdowns, and the jobs on each
    GPU. With --compare the page shows several policies side by side. The page is one file that needs no
    server and loads nothing from other hosts.
    """
    return run.simulate(log, flags, report=file)
