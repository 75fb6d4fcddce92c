"""corral sim run: runs a job log through the scheduler in virtual time."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from cli.commands.sim import figures_table, policy_options
from cli.commands.sim.progress import Progress, refusals
from cli.output.formats import Format, Output
from cli.output.stderr import print_note
from cli.registry import examples
from wire.http import addresses

if TYPE_CHECKING:  # because numpy and pydantic are slow to import
    from controller.sim.cluster import Cluster
    from controller.sim.logs.job_log import JobLog
    from controller.sim.run import JobTimes, Policy, RunResult, RunTask

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
    Path,
    typer.Argument(
        metavar="LOG", help="Job log: SWF, CSV or JSON lines, also with gzip.", show_default=False
    ),
]
Pool = Annotated[
    int | None,
    _option("--pool", "N", "Run on a pool of N interchangeable processors.", min=1, max=10_000_000),
]
Nodes = Annotated[int | None, _option("--nodes", "N", "Run on N equal nodes.", min=1, max=10_000)]
Gpus = Annotated[int | None, _option("--gpus", "N", "GPUs of each node. Default: 0.", min=0, max=999)]
Cpus = Annotated[int | None, _option("--cpus", "N", "CPUs of each node. Default: 64.", min=1, max=10_000)]
Memory = Annotated[str, _option("--memory", "SIZE", "Memory of each node. Default: 512G.")]
Model = Annotated[str, _option("--model", "NAME", "Model of the GPUs. Default: H100.")]
ConfigPath = Annotated[str, _option("--config", "FILE", "A scheduler.toml with the policy and the nodes.")]
Order = Annotated[
    str,
    _option("--order", "NAME", "Queue order: fifo, priority, shortest (or sjf), or the name of a plugin."),
]
Backfill = Annotated[
    str, _option("--backfill", "NAME", "Backfill: none, easy, easy-sjbf, conservative, aggressive or greedy.")
]
Profile = Annotated[str, _option("--profile", "NAME", "Use this profile of --config for all jobs.")]
Compare = Annotated[
    str,
    _option(
        "--compare",
        "A,B,…",
        "Compare policies: fcfs, sjf, easy, easy-sjbf, conservative, aggressive, greedy, or a .toml file.",
    ),
]
Estimate = Annotated[
    str, _option("--estimate", "WHICH", "Run time for planning: limit, or predicted from earlier runs.")
]
Clairvoyant = Annotated[bool, typer.Option("--clairvoyant", help="Use the real run times as estimates.")]
SameSecond = Annotated[
    str,
    _option(
        "--same-second",
        "HOW",
        "Events at one time: house (ends, arrivals, one pass) or sc15 (arrivals first, a pass each).",
    ),
]
Filter = Annotated[
    str,
    _option("--swf-filter", "WHICH", "sc15: leave out the jobs that the tables of the SC'15 paper left out."),
]
ZeroRuns = Annotated[
    str,
    _option(
        "--zero-runs", "HOW", "SWF jobs that ran for 0 s: drop, keep, or second (run 1 s). Default: drop."
    ),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Skip invalid lines of the log, and count them.")]
JobsCsv = Annotated[
    Path | None, _option("--jobs-csv", "FILE", "Write job,submit,start,end to this file, one line per job.")
]
Report = Annotated[
    Path | None, _option("--report", "FILE", "Write the results as one HTML page; see corral sim report.")
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

    The cluster is --pool or --nodes; otherwise the nodes of --config; otherwise the number of processors in
    the header of an SWF log; otherwise the nodes of the usual scheduler.toml. A job of an SWF log that
    requests k processors gets them on as few nodes as can hold them, the same number on each, rounded up.

    A table has a heading (CSV) or one object per line (JSON): submit and duration in seconds, and if they
    are known estimate, user, gpus, nodes, cpu, memory, model, priority and more; docs/simulator.md lists all.

    The policy is --order and --backfill; otherwise that of --config or the usual scheduler.toml, with all its
    profiles. --profile uses one of the profiles for all jobs, on all nodes.
    """
    with refusals():
        from controller.config import load
        from controller.sim.logs.job_log import read_log
        from controller.sim.logs.swf import SwfFilter, SwfOptions, ZeroRuns
        from controller.sim.run import RunTask, SameSecond

        reading = SwfOptions(
            policy_options.one_of(ZeroRuns, zero_runs, "--zero-runs"),
            policy_options.one_of(SwfFilter, swf_filter, "--swf-filter"),
        )
        together = policy_options.one_of(SameSecond, same_second, "--same-second")
        chosen = load(addresses.find_config(config))
        policies = policy_options.choose_policies(chosen, order, backfill, compare, estimate, profile)
        read = read_log(log, skip_bad=skip_bad)
        cluster = policy_options.choose_cluster(
            pool, nodes, gpus, cpus, memory, model
        ) or policy_options.find_cluster(read, chosen, explicit=bool(config))
        work, dropped = read.work(cluster, reading)
        _tell(read, cluster, len(work), dropped)
        with _jobs_files(jobs_csv, policies) as files:
            if report is not None:
                report.open(
                    "a"
                ).close()  # before the run, because a file that cannot be written should be reported at once
            outcomes = _outcomes(
                [
                    RunTask(policy, cluster, work, clairvoyant, together, keep_records=report is not None)
                    for policy in policies
                ]
            )
            for file, outcome in zip(files, outcomes, strict=False):
                _write_jobs(file, outcome.rows)
    if report is not None:
        _write_report(report, log.name, cluster, outcomes, dropped, len(read.bad))
    _tell_refused(outcomes[0], len(work))
    bodies = [_body(each, dropped, len(read.bad)) for each in outcomes]
    figures_table.show(output, bodies, alone=not compare)
    return 0


def _outcomes(tasks: Sequence[RunTask]) -> list[RunResult]:
    from controller.sim.run import run, run_policies

    with Progress(sum(len(task.work) for task in tasks), "jobs") as progress:
        return [run(tasks[0], progress)] if len(tasks) == 1 else run_policies(tasks, progress)


@contextmanager
def _jobs_files(path: Path | None, policies: Sequence[Policy]) -> Iterator[list[TextIO]]:
    """The files to write jobs to, opened before the run: one, or one per policy."""
    with ExitStack() as stack:
        several = len(policies) > 1
        paths = [
            path.with_name(f"{path.stem}.{policy.name}{path.suffix}") if several else path
            for policy in policies
            if path is not None
        ]
        yield [stack.enter_context(each.open("w", newline="", encoding="utf-8")) for each in paths]


def _write_jobs(file: TextIO, rows: Sequence[JobTimes]) -> None:
    out = csv.writer(file, lineterminator="\n")
    out.writerow(["job", "submit", "start", "end"])
    out.writerows([row.job, _exact(row.submit), _exact(row.start), _exact(row.end)] for row in rows)


def _write_report(
    path: Path,
    source: str,
    cluster: Cluster,
    outcomes: Sequence[RunResult],
    dropped: Mapping[str, int],
    skipped: int,
) -> None:
    from controller.sim.report import ReportRun, write_report

    broken = {"on broken lines": skipped} if skipped else {}
    runs = [
        ReportRun(
            each.policy,
            cluster,
            each.records,
            {**asdict(each.figures), "cpu_s": each.cpu_s},
            source,
            {**_not_run(each, dropped), **broken},
        )
        for each in outcomes
    ]
    write_report(runs, path)
    print_note(f"{path}: {path.stat().st_size / 1e6:.1f} MB; open it in a browser")


def _exact(seconds: float) -> float:
    return int(seconds) if seconds == int(seconds) else seconds


def _tell(read: JobLog, cluster: Cluster, running: int, dropped: Mapping[str, int]) -> None:
    """Print which lines and jobs of the log were skipped."""
    if read.bad:
        line, why = read.bad[0]
        count = f"{len(read.bad):,} broken line{'s' * (len(read.bad) > 1)}"
        print_note(f"{read.name}: skipped {count}, the first: line {line}: {why}")
    if read.unread:
        print_note(f"{read.name}: skipped unknown columns: {', '.join(read.unread)}")
    told = ", ".join(f"{count:,} {why}" for why, count in dropped.items())
    print_note(f"{_jobs(running)} on {cluster}" + (f"; dropped: {told}" if told else ""))


def _tell_refused(outcome: RunResult, given: int) -> None:
    count = sum(outcome.refused.values())
    if count:
        message = max(outcome.refused, key=outcome.refused.__getitem__)
        print_note(f"{_jobs(count)} refused, {outcome.refused[message]:,} like this: {message}")
    left = given - count - outcome.figures.jobs
    if left:
        print_note(f"{_jobs(left)} did not end")


def _jobs(count: int) -> str:
    return f"{count:,} job{'s' * (count != 1)}"


def _not_run(outcome: RunResult, dropped: Mapping[str, int]) -> dict[str, int]:
    refused = {"refused": sum(outcome.refused.values())} if outcome.refused else {}
    return {**dropped, **refused}


def _body(outcome: RunResult, dropped: Mapping[str, int], skipped: int) -> dict[str, Any]:
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
