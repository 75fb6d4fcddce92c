"""corral sim generate: writes synthetic workloads."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cli.commands.sim.policy_options import MEMORY_MIB
from cli.exit_codes import CommandError
from cli.flags import FlagGroup, argument, option, with_flag_groups
from cli.output.formats import write
from cli.output.stderr import print_note
from cli.registry import examples
from wire import amounts
from wire.text import memory

if TYPE_CHECKING:
    from controller.sim.generate import Format, Workload, WorkloadRequest

EXAMPLES = examples(
    "corral sim generate --nodes 16 --gpus 8 > jobs.csv        a week at 80 % of 128 GPUs",
    "corral sim generate jobs.jsonl --days 30 --load 1.1       more load than the cluster can run",
    "corral sim generate jobs.swf --jobs 10000 --users 100     10,000 jobs at the default load",
    "corral sim generate --seed 7 --model A100 --model H100    some jobs request one of the two",
    "corral sim generate jobs.csv && corral sim run jobs.csv --nodes 16 --gpus 8",
)


@dataclass(frozen=True)
class WorkloadFlags(FlagGroup):
    jobs: Annotated[int | None, option("--jobs", "N", "Number of jobs.", min=1, max=1_000_000)] = None
    days: Annotated[
        float | None,
        option("--days", "D", "Submit the jobs within D days. Default: 7.", min=0.01, max=3650),
    ] = None
    load: Annotated[
        float | None,
        option(
            "--load",
            "L",
            "Mean load L of the cluster; 1.0 keeps all GPUs busy. Default: 0.8.",
            min=0.01,
            max=100,
        ),
    ] = None
    users: Annotated[int, option("--users", "N", "Number of users. Default: 20.", min=1, max=10_000)] = 20
    nodes: Annotated[
        int, option("--nodes", "N", "Number of nodes of the cluster. Default: 16.", min=1, max=10_000)
    ] = 16
    gpus: Annotated[
        int, option("--gpus", "N", "Number of GPUs of each node. Default: 8.", min=1, max=999)
    ] = 8
    cpus: Annotated[
        int, option("--cpus", "N", "Number of CPUs of each node. Default: 64.", min=1, max=10_000)
    ] = 64
    memory: Annotated[
        int, option("--memory", "SIZE", "Memory of each node. Default: 512G.", parser=amounts.memory_mib)
    ] = MEMORY_MIB
    model: Annotated[
        list[str], option("--model", "NAME", "GPU model that some jobs request. May be repeated.")
    ] = field(default_factory=list)
    seed: Annotated[int, option("--seed", "N", "Seed of the random numbers. Default: 1.")] = 1

    def request(self) -> WorkloadRequest:
        """Return the settings of the generator that the flags describe. Raise CommandError for invalid
        settings.
        """
        from controller.sim.cluster import nodes_of
        from controller.sim.generate import WorkloadRequest

        jobs, days, load = self.jobs, self.days, self.load
        if None not in (jobs, days, load):
            raise CommandError("--jobs, --days and --load cannot all be given", "Leave one of them out.")
        if jobs is None:
            days = 7.0 if days is None else days
        if days is None or jobs is None:
            load = 0.8 if load is None else load
        bad = next((name for name in self.model if not name.strip() or "|" in name), None)
        if bad is not None:
            raise CommandError(
                f"--model: {bad!r} is not the name of a model", "Write --model once for each model."
            )
        if self.memory < 1024 * self.gpus:
            raise CommandError(
                f"--memory: {memory(self.memory)} are less than 1G for each of {self.gpus} GPUs"
            )
        model = self.model[0] if self.model else "H100"
        cluster = nodes_of(self.nodes, self.gpus, self.cpus, self.memory, model)
        return WorkloadRequest(cluster, self.seed, self.users, jobs, days, load, self.model)


@with_flag_groups
def generate(
    workload: WorkloadFlags,
    file: Annotated[Path | None, argument("FILE", "File to write. Default: stdout.")] = None,
    form: Annotated[
        str,
        option(
            "--format",
            "FORMAT",
            "Format of the file: csv, jsonl or swf. Default: from the end of the file name, otherwise csv.",
        ),
    ] = "",
) -> int:
    """Write a synthetic workload of GPU jobs.

    The number of submits depends on the hour and the weekday, and some users submit more than others. Each
    user repeats job names and sizes, has log-normal run times, and submits sweeps and interactive sessions.
    Time limits are mostly too long and sometimes too short. Some jobs fail, most of them early.

    Give at most two of --jobs, --days and --load; the third is computed from them. The same options give the
    same file, byte for byte.
    """
    from controller.sim.generate import TooMany, generate, lines

    wish = workload.request()
    chosen = _format(form, file)
    try:
        made = generate(wish)
    except TooMany as error:
        raise CommandError(str(error), "Use fewer --days, a smaller --load, or a number of --jobs.") from None
    if not made.rows:
        raise CommandError("this load is too small for a single job", "Use more --days or a larger --load.")
    text = lines(made, chosen)
    if file is None:
        _pour(text)
    else:
        with file.open("w", encoding="utf-8", newline="\n") as out:
            out.writelines(text)
    print_note(_summary(made))
    return 0


def _format(word: str, file: Path | None) -> Format:
    from controller.sim.generate import Format

    known = [form.value for form in Format]
    ending = file.suffix.removeprefix(".").lower() if file else ""
    if word and word not in known:
        raise CommandError(f"--format: {word!r} is none of {', '.join(known)}")
    if not word and ending not in ("", *known):
        raise CommandError(f"{file}: .{ending} is none of {', '.join(known)}", "Choose one with --format.")
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
        f"{failing:.0%} fail, {over:.0%} run longer than their estimate"
    )
