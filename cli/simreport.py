"""corral sim report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli import simrun
from cli.commands import examples

EXAMPLES = examples(
    "corral sim report jobs.csv --nodes 16 --gpus 8",
    "corral sim report jobs.csv --nodes 16 --gpus 8 --compare fcfs,sjf,easy -o policies.html",
    "corral sim report log.swf.gz -o log.html",
    "corral sim generate jobs.csv && corral sim report jobs.csv --nodes 16 --gpus 8",
)


def report(
    log: simrun.LogPath,
    file: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The page.")] = Path(
        "report.html"
    ),
    pool: simrun.Pool = None,
    nodes: simrun.Nodes = None,
    gpus: simrun.Gpus = None,
    cpus: simrun.Cpus = None,
    memory: simrun.Memory = "",
    model: simrun.Model = "",
    config: simrun.ConfigPath = "",
    order: simrun.Order = "",
    backfill: simrun.Backfill = "",
    compare: simrun.Compare = "",
    estimate: simrun.Estimate = "",
    clairvoyant: simrun.Clairvoyant = False,
    same_second: simrun.SameSecond = "house",
    swf_filter: simrun.Filter = "house",
    zero_runs: simrun.ZeroRuns = "drop",
    skip_bad: simrun.SkipBad = False,
) -> int:
    """Run a log as `corral sim run` does, and show what came of it as one HTML page.

    Utilisation and queue over time, waits by user and size, slowdowns, and who held which GPU when; with
    --compare, several policies side by side. The page is complete in itself: it needs no server, loads
    nothing and sends nothing.
    """
    return simrun.run(
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
