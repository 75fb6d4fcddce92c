"""corral sim placement."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands import examples
from cli.exits import Mistake
from cli.messages import note
from cli.output import Column, Format, Output, Table, write_json
from cli.simulating import Progress, refusals
from wire.spec import array_indices
from wire.text import counted

if TYPE_CHECKING:  # numpy and pydantic: only for those who simulate
    from controller.sim.cluster import Cluster
    from controller.sim.openb import Pod
    from controller.sim.placement import Summary, Task, Trial
    from controller.sim.strategies import Strategy

EXAMPLES = examples(
    "corral sim placement --nodes nodes.csv --pods pods.csv",
    "corral sim placement --nodes nodes.csv --pods pods.csv --strategy default,best-fit,random",
    "corral sim placement --nodes nodes.csv --pods pods.csv.gz --config mine.toml --seeds 1-5",
)


def placement(
    nodes: Annotated[
        Path, typer.Option("--nodes", metavar="FILE", help="CSV: sn, cpu_milli, memory_mib, gpu, model.")
    ],
    pods: Annotated[
        Path,
        typer.Option(
            "--pods",
            metavar="FILE",
            help="CSV: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec.",
        ),
    ],
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            metavar="A,B,…",
            help="default, best-fit, random, least-loaded, a scorer's name, or x.toml.",
            show_default=False,
        ),
    ] = "",
    config: Annotated[
        str,
        typer.Option(
            "--config", metavar="FILE", help="A scheduler.toml: its strategy, too.", show_default=False
        ),
    ] = "",
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="N-M", help="A run for each: 42-51, or 1,2,7.")
    ] = "42-51",
    output: Output = Format.TABLE,
) -> int:
    """Measure how many of a cluster's GPUs can be given away before nothing fits any more.

    The pods come one by one in an order drawn by seed, until 130 % of all GPUs have been asked for; each
    is placed or fails at once, and none ever leaves. What is given away then, in percent of all GPUs, is
    the figure: the more, the less is wasted. The engine decides as it does on a live cluster.
    """
    with refusals():
        from controller.sim.openb import read_nodes, read_pods
        from controller.sim.placement import summaries, tasks_of

        strategies = _strategies(strategy, config)
        numbers = _seeds(seeds)
        cluster, trace = read_nodes(nodes), read_pods(pods)
        _tell(cluster, trace)
        trials = _trials(tasks_of(strategies, numbers, cluster, trace))
    _show(output, summaries(trials), alone=len(strategies) == 1)
    return 0


def _strategies(text: str, config: str) -> list[Strategy]:
    from controller.sim.strategies import strategy_in, strategy_of

    names = [name.strip() for name in text.split(",") if name.strip()]
    chosen = [strategy_of(name) for name in names or ([] if config else ["default"])]
    chosen += [strategy_in(Path(config))] if config else []
    return list({strategy.name: strategy for strategy in chosen}.values())


def _seeds(text: str) -> list[int]:
    try:
        return array_indices(text)
    except ValueError as error:
        raise Mistake(f"--seeds: {error}") from None


def _tell(cluster: Cluster, pods: Sequence[Pod]) -> None:
    """What was made of the two files."""
    note(f"{counted(len(pods), 'pod')} on {cluster}")
    splitting = sum(pod.splits for pod in pods)
    if splitting:
        who = "1 pod asks" if splitting == 1 else f"{splitting:,} pods ask"
        note(f"{who} for parts of several GPUs: these are held whole, and count as what is asked for")


def _trials(tasks: list[Task]) -> list[Trial]:
    from controller.sim.placement import run
    from controller.sim.processes import side_by_side

    with Progress(sum(len(task.coming) for task in tasks), "pods") as progress:
        if len(tasks) == 1:
            return [run(tasks[0], progress)]
        named = {f"{task.strategy.name} with seed {task.seed}": task for task in tasks}
        return side_by_side(run, named, progress)


def _show(form: Format, found: Sequence[Summary], *, alone: bool) -> None:
    if form is Format.JSON:
        bodies = [_body(each) for each in found]
        write_json(bodies[0] if alone else bodies)
    elif form is Format.CSV:
        runs = [asdict(run) for each in found for run in each.runs]
        out = csv.DictWriter(sys.stdout, list(runs[0]), lineterminator="\n")
        out.writeheader()
        out.writerows(runs)
    else:
        _table().show(form, found)


def _body(found: Summary) -> dict[str, Any]:
    """With as many digits as mean something."""
    return {name: _rounded(value) for name, value in asdict(found).items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [{name: _rounded(each) for name, each in run.items()} for run in value]
    return round(value, 4) if isinstance(value, float) else value


def _table() -> Table[Summary]:
    return Table(
        [
            Column("STRATEGY", lambda found: found.strategy),
            Column("AT 100%", lambda found: f"{found.allocated_at_100:.2f}%", keep=1, right=True),
            Column("AT 130%", lambda found: f"{found.allocated_at_130:.2f}%", right=True),
            Column("±", lambda found: f"{found.deviation_at_130:.2f}", keep=2, right=True),
            Column("ACCEPTED", lambda found: f"{found.accepted:,.0f}", keep=4, right=True),
            Column("FAILED", lambda found: f"{found.failed:,.0f}", keep=5, right=True),
            Column("CPU", lambda found: f"{found.cpu_s:.2f}s", keep=6, right=True),
            Column("PLACED/S", lambda found: f"{found.placements_per_s:,.0f}", keep=3, right=True),
        ],
        name=lambda found: found.strategy,
    )
