"""corral sim generate: writes synthetic workloads."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exit_codes import CommandError
from cli.output.formats import write
from cli.output.stderr import print_note
from cli.registry import examples
from cli.spec import units

if TYPE_CHECKING:
    from controller.sim.generate import Format, Wish, Workload

EXAMPLES = examples(
    "corral sim generate --nodes 16 --gpus 8 > jobs.csv        a week at 80 % of 128 GPUs",
    "corral sim generate jobs.jsonl --days 30 --load 1.1       more than the cluster can take",
    "corral sim generate jobs.swf --jobs 10000 --users 100     so many jobs, whatever time they take",
    "corral sim generate --seed 7 --model A100 --model H100    some users insist on one of the two",
    "corral sim generate jobs.csv && corral sim run jobs.csv --nodes 16 --gpus 8",
)
DAYS, LOAD = 7.0, 0.8


def generate(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="File to write. Default: stdout.", show_default=False),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", metavar="N", min=1, max=1_000_000, help="Number of jobs.", show_default=False),
    ] = None,
    days: Annotated[
        float | None,
        typer.Option(
            "--days",
            metavar="D",
            min=0.01,
            max=3650,
            help="Days over which the jobs are submitted.",
            show_default="7",
        ),
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(
            "--load",
            metavar="L",
            min=0.01,
            max=100,
            help="Mean load; 1.0 keeps all GPUs busy.",
            show_default="0.8",
        ),
    ] = None,
    users: Annotated[
        int, typer.Option("--users", metavar="N", min=1, max=10_000, help="Number of users.")
    ] = 20,
    nodes: Annotated[
        int, typer.Option("--nodes", metavar="N", min=1, max=10_000, help="Nodes of the cluster.")
    ] = 16,
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", min=1, max=999, help="Of each node.")] = 8,
    cpus: Annotated[int, typer.Option("--cpus", metavar="N", min=1, max=10_000, help="Of each node.")] = 64,
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="Of each node.")] = "512G",
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="GPU model that some jobs request. May be repeated.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random numbers.")] = 1,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORM",
            help="Format: csv, jsonl or swf. Default: by the name of the file.",
            show_default="the ending of FILE, or csv",
        ),
    ] = "",
) -> int:
    """Write a synthetic workload of GPU jobs.

    Users submit by hour and weekday; some submit more than others. Each user repeats job names and sizes, has
    log-normal run times, submits sweeps and interactive sessions, and gives time limits that
    are mostly too long and sometimes too short. Some jobs fail, most of them early.

    Two of --jobs, --days and --load decide the third. The same options give the same file, byte for byte.
    """
    from controller.sim.generate import TooMany, generate, lines

    wish = _wish(jobs, days, load, users, nodes, gpus, cpus, memory, model or [], seed)
    chosen = _format(form, file)
    try:
        workload = generate(wish)
    except TooMany as error:
        raise CommandError(str(error), "Use fewer --days, a smaller --load, or a number of --jobs.") from None
    if not workload.rows:
        raise CommandError("this load is too small for a single job", "Use more --days or a larger --load.")
    text = lines(workload, chosen)
    if file is None:
        _pour(text)
    else:
        with file.open("w", encoding="utf-8", newline="\n") as out:
            out.writelines(text)
    print_note(_summary(workload))
    return 0


def _wish(
    jobs: int | None,
    days: float | None,
    load: float | None,
    users: int,
    nodes: int,
    gpus: int,
    cpus: int,
    memory: str,
    models: list[str],
    seed: int,
) -> Wish:
    from controller.sim.cluster import nodes_of
    from controller.sim.generate import Wish

    if None not in (jobs, days, load):
        raise CommandError(
            "--jobs, --days and --load: two of them decide the third", "Leave one of them out."
        )
    if jobs is None:
        days = DAYS if days is None else days
    if days is None or jobs is None:
        load = LOAD if load is None else load
    bad = next((name for name in models if not name.strip() or "|" in name), None)
    if bad is not None:
        raise CommandError(f"--model: {bad!r} is not the name of a model", "Give --model once for each.")
    try:
        mib = units.memory_mib(memory)
    except ValueError as error:
        raise CommandError(f"--memory: {error}") from None
    if mib < 1024 * gpus:
        raise CommandError(f"--memory: {memory} are less than 1G for each of {gpus} GPUs")
    cluster = nodes_of(nodes, gpus, cpus, mib, models[0] if models else "H100")
    return Wish(cluster, seed, users, jobs, days, load, models)


def _format(word: str, file: Path | None) -> Format:
    from controller.sim.generate import Format

    known = [form.value for form in Format]
    ending = file.suffix.removeprefix(".").lower() if file else ""
    if word and word not in known:
        raise CommandError(f"--format: {word!r} is none of {', '.join(known)}")
    if not word and ending not in ("", *known):
        raise CommandError(f"{file}: .{ending} is none of {', '.join(known)}", "Say which one with --format.")
    return Format(word or ending or Format.CSV)


def _pour(text: Iterable[str]) -> None:
    for line in text:
        write(line)
    sys.stdout.flush()


def _summary(workload: Workload) -> str:
    rows = workload.rows
    users = len({row.user for row in rows})
    failing = sum(row.code != 0 for row in rows) / len(rows)
    over = sum(row.duration > row.estimate for row in rows) / len(rows)
    return (
        f"{len(rows):,} jobs of {users:,} users in {workload.span_s / 86_400:.1f} days: "
        f"load {workload.load:.2f} of {workload.cluster.gpus:,} GPUs, "
        f"{failing:.0%} fail, {over:.0%} outlive their estimate"
    )
