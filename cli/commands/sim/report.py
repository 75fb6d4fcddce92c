"""corral sim report: writes an HTML report of simulated runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.commands.sim import run
from cli.registry import examples

EXAMPLES = examples(
    "corral sim report jobs.csv --nodes 16 --gpus 8",
    "corral sim report jobs.csv --nodes 16 --gpus 8 --compare fcfs,sjf,easy -o policies.html",
    "corral sim report log.swf.gz -o log.html",
    "corral sim generate jobs.csv && corral sim report jobs.csv --nodes 16 --gpus 8",
)


def report(
    log: run.LogPath,
    file: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="HTML file to write.")] = Path(
        "report.html"
    ),
    pool: run.Pool = None,
    nodes: run.Nodes = None,
    gpus: run.Gpus = None,
    cpus: run.Cpus = None,
    memory: run.Memory = "",
    model: run.Model = "",
    config: run.ConfigPath = "",
    order: run.Order = "",
    backfill: run.Backfill = "",
    compare: run.Compare = "",
    estimate: run.Estimate = "",
    clairvoyant: run.Clairvoyant = False,
    same_second: run.SameSecond = "house",
    swf_filter: run.Filter = "house",
    zero_runs: run.ZeroRuns = "drop",
    skip_bad: run.SkipBad = False,
) -> int:
    """Run a log as `corral sim run` does, and write the results as one HTML page.

    Shows utilisation and queue over time, waits by user and size, slowdowns, and the jobs on each GPU; with
    --compare, several policies side by side. The page is one file that needs no server, loads
    nothing and sends nothing.
    """
    return run.run(
        log,
        pool,
        nodes,
        gpus,
        cpus,
        memory,
        model,
        config,
        order,
        backfill,
        compare,
        estimate,
        clairvoyant,
        same_second,
        swf_filter,
        zero_runs,
        skip_bad,
        report=file,
    )
