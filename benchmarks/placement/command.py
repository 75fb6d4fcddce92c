"""Runs the placement benchmark on traces: `python -m benchmarks placement --help`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.placement.allocation import (
    PlacementRun,
    PlacementSummary,
    PlacementTask,
    run,
    summaries,
    tasks_of,
)
from benchmarks.placement.openb_traces import Pod, read_nodes, read_pods
from benchmarks.placement.strategies import PlacementStrategy, strategy_in, strategy_of
from cli.commands.sim.progress import Progress, refusals
from cli.exit_codes import CommandError
from cli.main import main
from cli.output.formats import Column, Format, Output, Table, write_data
from cli.output.stderr import print_note
from cli.registry import application, examples
from controller.sim.cluster import Cluster
from controller.sim.parallel import run_in_processes
from wire.job.arrays import array_indices
from wire.text import counted

PROGRAM = "python -m benchmarks placement"
EXAMPLES = examples(
    f"{PROGRAM} --nodes nodes.csv --pods pods.csv",
    f"{PROGRAM} --nodes nodes.csv --pods pods.csv --strategy default,best-fit,random",
    f"{PROGRAM} --nodes nodes.csv --pods pods.csv.gz --config mine.toml --seeds 1-5",
)


app = application()


@app.command(epilog=EXAMPLES)
def placement(
    nodes: Annotated[
        Path,
        typer.Option(
            "--nodes",
            metavar="FILE",
            help="CSV file of nodes with the columns sn, cpu_milli, memory_mib, gpu, model.",
        ),
    ],
    pods: Annotated[
        Path,
        typer.Option(
            "--pods",
            metavar="FILE",
            help="CSV file of pods with the columns name, cpu_milli, memory_mib, num_gpu, gpu_milli, "
            "gpu_spec.",
        ),
    ],
    strategy: Annotated[
        str,
        typer.Option(
            "--strategy",
            metavar="A,B,…",
            help="Strategies to compare: default, best-fit, random, least-loaded, the name of a scorer, or a "
            "scheduler.toml.",
            show_default=False,
        ),
    ] = "",
    config: Annotated[
        str,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Also run the strategy of this scheduler.toml.",
            show_default=False,
        ),
    ] = "",
    seeds: Annotated[
        str,
        typer.Option(
            "--seeds",
            metavar="N-M",
            help="Seeds of the random order of pods (e.g. 42-51 or 1,2,7). There is one run per seed.",
        ),
    ] = "42-51",
    output: Output = Format.TABLE,
) -> int:
    """Measure how many GPUs of a cluster can be allocated before fragmentation stops placement.

    Pods arrive one by one, in a random order, until they have requested 130 % of all GPUs. Each pod is placed
    at once or fails, and no pod ends. The result is the percentage of all GPUs that is allocated at the end.
    The higher the result, the fewer GPUs are lost to fragmentation. The engine decides as on a live cluster.
    Without options, the command measures the speed of placement instead.
    """
    with refusals():
        strategies = _strategies(strategy, config)
        numbers = _seeds(seeds)
        cluster, trace = read_nodes(nodes), read_pods(pods)
        _print_notes(cluster, trace)
        trials = _trials(tasks_of(strategies, numbers, cluster, trace))
    _show(output, summaries(trials), alone=len(strategies) == 1)
    return 0


def _strategies(text: str, config: str) -> list[PlacementStrategy]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    chosen = [strategy_of(name) for name in names or ([] if config else ["default"])]
    chosen += [strategy_in(Path(config))] if config else []
    return list({strategy.name: strategy for strategy in chosen}.values())


def _seeds(text: str) -> list[int]:
    try:
        return array_indices(text)
    except ValueError as error:
        raise CommandError(f"--seeds: {error}") from None


def _print_notes(cluster: Cluster, pods: Sequence[Pod]) -> None:
    """Print the number of pods, a summary of the cluster, and how many pods request parts of several GPUs."""
    print_note(f"{counted(len(pods), 'pod')} on {cluster}")
    splitting = sum(pod.splits for pod in pods)
    if splitting:
        pods_ask = "1 pod asks" if splitting == 1 else f"{splitting:,} pods ask"
        print_note(
            f"{pods_ask} for parts of several GPUs: whole GPUs are held, and the requested parts counted"
        )


def _trials(tasks: list[PlacementTask]) -> list[PlacementRun]:
    with Progress(sum(len(task.coming) for task in tasks), "pods") as progress:
        if len(tasks) == 1:
            return [run(tasks[0], progress)]
        named = {f"{task.strategy.name} with seed {task.seed}": task for task in tasks}
        return run_in_processes(run, named, progress)


def _show(form: Format, found: Sequence[PlacementSummary], *, alone: bool) -> None:
    if form.is_data:
        bodies = [_body(each) for each in found]
        write_data(form, bodies[0] if alone else bodies)
    elif form == Format.CSV:
        runs = [asdict(run) for each in found for run in each.runs]
        out = csv.DictWriter(sys.stdout, list(runs[0]), lineterminator="\n")
        out.writeheader()
        out.writerows(runs)
    else:
        _table().show(form, found)


def _body(found: PlacementSummary) -> dict[str, Any]:
    """Return the summary as data for JSON, with rounded numbers."""
    return {name: _rounded(value) for name, value in asdict(found).items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [{name: _rounded(each) for name, each in run.items()} for run in value]
    return round(value, 4) if isinstance(value, float) else value


def _table() -> Table[PlacementSummary]:
    return Table(
        [
            Column("STRATEGY", lambda found: found.strategy),
            Column("AT 100%", lambda found: f"{found.allocated_at_100:.2f}%", rank=1, right=True),
            Column("AT 130%", lambda found: f"{found.allocated_at_130:.2f}%", right=True),
            Column("±", lambda found: f"{found.deviation_at_130:.2f}", rank=2, right=True),
            Column("ACCEPTED", lambda found: f"{found.accepted:,.0f}", rank=4, right=True),
            Column("FAILED", lambda found: f"{found.failed:,.0f}", rank=5, right=True),
            Column("CPU", lambda found: f"{found.cpu_s:.2f}s", rank=6, right=True),
            Column("PLACED/S", lambda found: f"{found.placements_per_s:,.0f}", rank=3, right=True),
        ],
        name=lambda found: found.strategy,
    )


def run_command(arguments: Sequence[str]) -> int:
    """Run the command with these arguments, and return the exit code."""
    return main(arguments, app, PROGRAM)
