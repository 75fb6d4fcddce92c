"""corral sim run."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from cli import simchoices, simtable
from cli.commands import examples
from cli.messages import note
from cli.output import Format, Output
from cli.simulating import Progress, refusals
from wire import places

if TYPE_CHECKING:  # numpy and pydantic: only for those who simulate
    from controller.sim.cluster import Cluster
    from controller.sim.logs import Log
    from controller.sim.run import JobRow, Outcome, Policy, Task

EXAMPLES = examples(
    "corral sim run log.swf.gz",
    "corral sim run log.swf --pool 100 --compare fcfs,sjf,easy,easy-sjbf,conservative",
    "corral sim run jobs.csv --nodes 16 --gpus 8 --compare easy,easy+predicted",
    "corral sim run log.swf --nodes 64 --cpus 16 --order shortest --backfill none",
    "corral sim run jobs.csv --nodes 16 --gpus 8 --jobs-csv starts.csv -o json",
    "corral sim run jobs.csv --nodes 16 --gpus 8 --compare fcfs,easy --report report.html",
    "corral sim run jobs.csv --nodes 16 --gpus 8 --config scheduler.toml --profile training",
)


def _option(flag: str, metavar: str, help_text: str, **more: Any) -> Any:
    return typer.Option(flag, metavar=metavar, help=help_text, show_default=False, **more)


LogPath = Annotated[
    Path, typer.Argument(metavar="LOG", help="SWF, CSV or JSON lines; gzip or not.", show_default=False)
]
Pool = Annotated[
    int | None, _option("--pool", "N", "On N interchangeable processors.", min=1, max=10_000_000)
]
Nodes = Annotated[int | None, _option("--nodes", "N", "On N nodes of one kind.", min=1, max=10_000)]
Gpus = Annotated[int | None, _option("--gpus", "N", "GPUs of each node; otherwise none.", min=0, max=999)]
Cpus = Annotated[int | None, _option("--cpus", "N", "CPUs of each node; otherwise 64.", min=1, max=10_000)]
Memory = Annotated[str, _option("--memory", "SIZE", "Memory of each node; otherwise 512G.")]
Model = Annotated[str, _option("--model", "NAME", "Model of the GPUs; otherwise H100.")]
ConfigPath = Annotated[str, _option("--config", "FILE", "The scheduler.toml: its policy, and its nodes.")]
Order = Annotated[str, _option("--order", "NAME", "fifo, priority, shortest (or sjf), or a plugin's name.")]
Backfill = Annotated[
    str, _option("--backfill", "NAME", "none, easy, easy-sjbf, conservative, aggressive or greedy.")
]
Profile = Annotated[str, _option("--profile", "NAME", "A profile of --config as the only policy.")]
Compare = Annotated[
    str,
    _option(
        "--compare",
        "A,B,…",
        "Several policies: fcfs, sjf, easy, easy-sjbf, conservative, aggressive, greedy, x.toml.",
    ),
]
Estimate = Annotated[
    str, _option("--estimate", "WHICH", "Plans count on: limit, or predicted from earlier runs.")
]
Clairvoyant = Annotated[bool, typer.Option("--clairvoyant", help="Estimates are what jobs really take.")]
SameSecond = Annotated[
    str,
    _option("--same-second", "HOW", "house: ends, arrivals, one pass; sc15: arrivals first, a pass each."),
]
Filter = Annotated[
    str, _option("--swf-filter", "WHICH", "sc15: leave out what the tables of SC'15 left out.")
]
ZeroRuns = Annotated[
    str, _option("--zero-runs", "HOW", "SWF jobs that ran for 0 s: drop (otherwise), keep, or second.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Pass over broken lines, and count them.")]
JobsCsv = Annotated[
    Path | None, _option("--jobs-csv", "FILE", "Write job,submit,start,end there, a line a job.")
]
Report = Annotated[
    Path | None, _option("--report", "FILE", "Show it as one HTML page; see corral sim report.")
]


def run(
    log: LogPath,
    pool: Pool = None,
    nodes: Nodes = None,
    gpus: Gpus = None,
    cpus: Cpus = None,
    memory: Memory = "",
    model: Model = "",
    config: ConfigPath = "",
    order: Order = "",
    backfill: Backfill = "",
    compare: Compare = "",
    estimate: Estimate = "",
    clairvoyant: Clairvoyant = False,
    same_second: SameSecond = "house",
    swf_filter: Filter = "house",
    zero_runs: ZeroRuns = "drop",
    skip_bad: SkipBad = False,
    jobs_csv: JobsCsv = None,
    report: Report = None,
    output: Output = Format.TABLE,
    profile: Profile = "",
) -> int:
    """Run a log of jobs through the scheduler in virtual time, under one policy or several.

    The cluster: --pool or --nodes; else the nodes of --config; else as many processors as an SWF log
    says it had; else the nodes of the usual scheduler.toml. A job of an SWF log that asks for k
    processors gets them on as few nodes as can hold them, the same number on each, rounded up.

    A table has a heading (CSV) or an object a line (JSON): submit and duration in seconds, and where they
    are known estimate, user, gpus, nodes, cpu, memory, model, priority and more; docs/simulator.md has all.

    The policy: --order and --backfill, else what --config or the usual scheduler.toml says, with all its
    profiles side by side; --profile takes one of them for all jobs, on all nodes.
    """
    with refusals():
        from controller.config import load
        from controller.sim.logs import read_log
        from controller.sim.run import SameSecond, Task
        from controller.sim.swf import Filter, Reading, ZeroRuns

        reading = Reading(
            simchoices.one_of(ZeroRuns, zero_runs, "--zero-runs"),
            simchoices.one_of(Filter, swf_filter, "--swf-filter"),
        )
        together = simchoices.one_of(SameSecond, same_second, "--same-second")
        chosen = load(places.find_config(config))
        policies = simchoices.choose_policies(chosen, order, backfill, compare, estimate, profile)
        read = read_log(log, skip_bad=skip_bad)
        cluster = simchoices.choose_cluster(
            pool, nodes, gpus, cpus, memory, model
        ) or simchoices.find_cluster(read, chosen, explicit=bool(config))
        work, dropped = read.work(cluster, reading)
        _tell(read, cluster, len(work), dropped)
        with _jobs_files(jobs_csv, policies) as files:
            if report is not None:
                report.open("a").close()  # where nothing can be written is said before the work begins, too
            outcomes = _outcomes(
                [
                    Task(policy, cluster, work, clairvoyant, together, keep_lives=report is not None)
                    for policy in policies
                ]
            )
            for file, outcome in zip(files, outcomes, strict=False):
                _write_jobs(file, outcome.rows)
    if report is not None:
        _write_report(report, log.name, cluster, outcomes, dropped, len(read.bad))
    _tell_refused(outcomes[0], len(work))
    bodies = [_body(each, dropped, len(read.bad)) for each in outcomes]
    simtable.show(output, bodies, alone=not compare)
    return 0


def _outcomes(tasks: Sequence[Task]) -> list[Outcome]:
    from controller.sim.compare import compare
    from controller.sim.run import run

    with Progress(sum(len(task.work) for task in tasks), "jobs") as progress:
        return [run(tasks[0], progress)] if len(tasks) == 1 else compare(tasks, progress)


@contextmanager
def _jobs_files(path: Path | None, policies: Sequence[Policy]) -> Iterator[list[TextIO]]:
    """The files to write jobs to, opened before the work begins: one, or one a policy."""
    with ExitStack() as stack:
        several = len(policies) > 1
        paths = [
            path.with_name(f"{path.stem}.{policy.name}{path.suffix}") if several else path
            for policy in policies
            if path is not None
        ]
        yield [stack.enter_context(each.open("w", newline="", encoding="utf-8")) for each in paths]


def _write_jobs(file: TextIO, rows: Sequence[JobRow]) -> None:
    out = csv.writer(file, lineterminator="\n")
    out.writerow(["job", "submit", "start", "end"])
    out.writerows([row.job, _exact(row.submit), _exact(row.start), _exact(row.end)] for row in rows)


def _write_report(
    path: Path,
    source: str,
    cluster: Cluster,
    outcomes: Sequence[Outcome],
    dropped: Mapping[str, int],
    skipped: int,
) -> None:
    from controller.sim.report import Run, write_report

    broken = {"on broken lines": skipped} if skipped else {}
    runs = [
        Run(
            each.policy,
            cluster,
            each.lives,
            {**asdict(each.figures), "cpu_s": each.cpu_s},
            source,
            {**_not_run(each, dropped), **broken},
        )
        for each in outcomes
    ]
    write_report(runs, path)
    note(f"{path}: {path.stat().st_size / 1e6:.1f} MB; open it in a browser")


def _exact(seconds: float) -> float:
    return int(seconds) if seconds == int(seconds) else seconds


def _tell(read: Log, cluster: Cluster, running: int, dropped: Mapping[str, int]) -> None:
    """What was made of the log: nothing is left out in silence."""
    if read.bad:
        line, why = read.bad[0]
        count = f"{len(read.bad):,} broken line{'s' * (len(read.bad) > 1)}"
        note(f"{read.name}: passed over {count}, the first: line {line}: {why}")
    if read.unread:
        note(f"{read.name}: passed over what nothing is known of: {', '.join(read.unread)}")
    told = ", ".join(f"{count:,} {why}" for why, count in dropped.items())
    note(f"{_jobs(running)} on {cluster}" + (f"; dropped: {told}" if told else ""))


def _tell_refused(outcome: Outcome, given: int) -> None:
    count = sum(outcome.refused.values())
    if count:
        message = max(outcome.refused, key=outcome.refused.__getitem__)
        note(f"{_jobs(count)} refused, {outcome.refused[message]:,} like this: {message}")
    left = given - count - outcome.figures.jobs
    if left:
        note(f"{_jobs(left)} never came to an end")


def _jobs(count: int) -> str:
    return f"{count:,} job{'s' * (count != 1)}"


def _not_run(outcome: Outcome, dropped: Mapping[str, int]) -> dict[str, int]:
    refused = {"refused": sum(outcome.refused.values())} if outcome.refused else {}
    return {**dropped, **refused}


def _body(outcome: Outcome, dropped: Mapping[str, int], skipped: int) -> dict[str, Any]:
    return {
        "policy": outcome.policy,
        "order": outcome.order,
        "backfill": outcome.backfill,
        "estimate": outcome.estimate,
        "clairvoyant": outcome.clairvoyant,
        "same_second": outcome.same_second,
        "cluster": outcome.cluster,
        **asdict(outcome.figures),
        "cpu_s": round(outcome.cpu_s, 3),
        "skipped_lines": skipped,
        "dropped": _not_run(outcome, dropped),
    }
