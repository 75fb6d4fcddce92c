"""Runs the lab benchmark: `python -m benchmarks lab --help`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.lab.measures import Deviation, worst
from benchmarks.lab.run import LabResult, LabTask
from benchmarks.lab.run import run as run_task
from benchmarks.lab.scaled_cluster import with_nodes
from benchmarks.lab.workload import MIXES, PROJECTS
from benchmarks.table import heading, row
from cli.commands.sim.progress import Progress, refusals
from cli.exit_codes import CommandError
from cli.main import main
from cli.output.formats import Format, Output, write_data
from cli.registry import application, examples
from controller.config import Config, load
from controller.config.load import load_text
from controller.sim.parallel import run_in_processes
from wire.job.arrays import array_indices

PROGRAM = "python -m benchmarks lab"
EXAMPLES = examples(
    PROGRAM,
    f"{PROGRAM} --seeds 1,2 --days 7 --loads 1.2 --mixes wide,narrow",
    f"{PROGRAM} --config empty --mixes nolimits",
    f"{PROGRAM} --config mine.toml -o json",
    f"{PROGRAM} --nodes 12 --loads 1.2",
)
EMPTY = "empty"
LAB = Path(__file__).parents[2] / "examples" / "lab.toml"
_SAMPLES_PER_DAY = 48

app = application()


@app.command(epilog=EXAMPLES)
def lab(
    seeds: Annotated[
        str,
        typer.Option(
            "--seeds",
            metavar="N-M",
            help="Seeds of the workload (e.g. 1-3 or 1,2,7). There is one run per seed.",
        ),
    ] = "1",
    days: Annotated[
        float, typer.Option("--days", metavar="D", min=1, max=365, help="Simulated days of each run.")
    ] = 28,
    loads: Annotated[
        str,
        typer.Option(
            "--loads",
            metavar="A,B,…",
            help="Loads to run. A load is the demanded GPU-hours divided by the GPU-hours of the cluster.",
        ),
    ] = "0.9,1.2",
    mixes: Annotated[
        str, typer.Option("--mixes", metavar="A,B,…", help=f"Mixes of jobs to run: {', '.join(MIXES)}.")
    ] = "lab",
    config: Annotated[
        str,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A scheduler.toml with simulated nodes, or the word empty: the nodes of examples/lab.toml "
            "without other settings. Default: examples/lab.toml.",
            show_default=False,
        ),
    ] = "",
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            metavar="N",
            min=1,
            max=1000,
            help="Run on N nodes: repeat the nodes of the configuration. The number of jobs and the limits "
            "of users and queues grow in proportion.",
            show_default=False,
        ),
    ] = None,
    without_admin: Annotated[
        bool, typer.Option("--without-admin", help="Run without drains and reservations of nodes.")
    ] = False,
    alone: Annotated[
        str,
        typer.Option(
            "--alone",
            metavar="PROJECT",
            help="Run only the jobs of this project, and all services and jobs with deadlines. Shows what "
            "the project could get at most.",
            show_default=False,
        ),
    ] = "",
    output: Output = Format.TABLE,
) -> int:
    """Measure a scheduling policy on weeks of a university lab with 6 nodes of 8 GPUs, in virtual time.

    The jobs depend only on the mix, the load, the seed, the days and the number of GPUs. The engine decides
    as on a live cluster.
    """
    if alone and alone not in PROJECTS:
        raise CommandError(f"--alone: {alone!r} is none of {', '.join(PROJECTS)}")
    with refusals():
        name, chosen = configuration(config)
        if nodes is not None:
            chosen = with_nodes(chosen, nodes, name)
        tasks = [
            LabTask(name, chosen, mix, load, seed, days, not without_admin, alone)
            for mix in _mixes(mixes)
            for load in _loads(loads)
            for seed in _seeds(seeds)
        ]
        found = _results(tasks)
    if output.is_data:
        write_data(output, [asdict(each) for each in found])
    else:
        for each in found:
            show(each)
    return 0


def run() -> None:
    lab()


def configuration(name: str) -> tuple[str, Config]:
    """Return the name and the content of a configuration. `name` is a file, `empty` (the nodes of
    examples/lab.toml without any other setting), or an empty text (examples/lab.toml).
    """
    if name == EMPTY:
        text = LAB.read_text(encoding="utf-8")
        return EMPTY, load_text(text[text.index("[nodes.") :], EMPTY)
    return (name, load(Path(name))) if name else (LAB.stem, load(LAB))


def _mixes(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in MIXES]
    if unknown or not names:
        raise CommandError(f"--mixes: {', '.join(unknown) or text!r} is none of {', '.join(MIXES)}")
    return names


def _loads(text: str) -> list[float]:
    try:
        return [float(each) for each in text.split(",")]
    except ValueError:
        raise CommandError(f"--loads: {text!r} is not a list of numbers such as 0.9,1.2") from None


def _seeds(text: str) -> list[int]:
    try:
        return array_indices(text)
    except ValueError as error:
        raise CommandError(f"--seeds: {error}") from None


def _results(tasks: Sequence[LabTask]) -> list[LabResult]:
    with Progress(int(sum(task.days for task in tasks) * _SAMPLES_PER_DAY), "samples") as progress:
        if len(tasks) == 1:
            return [run_task(tasks[0], progress)]
        named = {f"{task.mix} with load {task.load:g} and seed {task.seed}": task for task in tasks}
        return run_in_processes(run_task, named, progress)


def show(found: LabResult) -> None:
    """Print the figures of one run, each beside the limit that it should meet."""
    heading(
        f"Lab: configuration {found.config}, mix {found.mix}, load {found.load:g}, seed {found.seed}, "
        f"{found.days:g} days, {found.jobs:,} jobs"
    )
    bar = "5 points" if found.config == EMPTY else "3 points"
    row("worst deviation of a project from its entitlement", _points(worst(found.projects)), bar)
    row("worst deviation of a project in one week", _points(found.worst_week))
    row("worst deviation of a user within a project", _points(worst(found.users)), "5 points")
    row("idle although a job fits and would delay no other", f"{found.wasted_percent:.1f} %", "1 %")
    if found.gangs:
        never = f"{found.gangs_never_started} of {found.gangs}"
        row("gangs of 3 or more nodes that never started", never, "0")
        twice = f"{2 * found.longest_narrow_wait_h:.0f} h (2 x narrow jobs)"
        row("longest wait of a gang of 3 or more nodes", f"{found.longest_gang_wait_h:.0f} h", twice)
    row("GPU-hours used", f"{found.used_percent:.1f} %", "94 %" if found.load >= 1 else "")
    if found.deadlines:
        row("deadlines met, submitted 30 h ahead", f"{found.deadlines_met} of {found.deadlines}", "all")
    if "notebooks" in MIXES[found.mix].rates:
        row("start of notebooks, p95", f"{found.interactive_p95_minutes:.0f} min", "15 min")
    row("GPU-hours lost to preemption", f"{found.lost_percent:.2f} %", "0.5 %")
    row("CPU time of the run", f"{found.cpu_s:.1f} s", "60 s" if found.days <= 28 else "")
    for each in (*found.projects, *found.users):
        figure = f"{each.got:.1f}, {each.entitled:.1f}, {100 * each.waits:.0f} %"
        row(f"  {each.tenant}: got, entitled, waits in", figure)
    for cause, hours in found.idle_hours.items():
        row(f"  idle, {cause}", f"{hours:,.0f} GPU-hours")
    for message, count in sorted(found.refused.items(), key=lambda each: -each[1])[:3]:
        row(f"  refused: {message[:54]}", f"{count:,} jobs")


def _points(found: Deviation | None) -> str:
    return "no tenant often waits" if found is None else f"{found.points:+.1f} ({found.tenant})"


def run_command(arguments: Sequence[str]) -> int:
    """Run the command with these arguments, and return the exit code."""
    return main(arguments, app, PROGRAM)
