"""corral sim run: runs a log of jobs through the scheduler in simulated time."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from cli.commands.sim import figures_table, policy_options
from cli.commands.sim.progress import Progress, refusals
from cli.exit_codes import CommandError
from cli.flags import argument, option, switch, with_flag_groups
from cli.output.formats import Column, Format, Output, Table, write
from cli.output.stderr import print_note
from cli.registry import examples
from wire import amounts
from wire.http import addresses

# Import these modules only for type checks, because numpy and pydantic are slow to import.
if TYPE_CHECKING:
    from controller.sim.cluster import Cluster
    from controller.sim.logs.job_log import JobLog
    from controller.sim.run import AccountedReports, JobTimes, Policy, RunResult, RunTask
    from controller.sim.story.story import StoryOutcome, StoryStep

EXAMPLES = examples(
    "corral sim run log.swf.gz",
    "corral sim run log.swf --pool 100 --compare fcfs,sjf,easy,easy-sjbf,conservative",
    "corral sim run jobs.csv --nodes 16 --gpus 8 --compare easy,easy+predicted",
    "corral sim run log.swf --nodes 64 --cpus 16 --order shortest --backfill none",
    "corral sim run jobs.csv --nodes 16 --gpus 8 --jobs-csv starts.csv -o json",
    "corral sim run jobs.csv --nodes 16 --gpus 8 --compare fcfs,easy --report report.html",
    "corral sim run jobs.csv --nodes 16 --gpus 8 --config scheduler.toml --profile training",
    "corral sim run jobs.csv --nodes 8 --gpus 8 --order expected-remaining --slice 1h",
    "corral sim run jobs.csv --nodes 8 --gpus 8 --unknown-durations --start-overhead 30s",
    "corral sim run jobs.csv --config lab.toml --story week.story --report week.html",
)


LogPath = Annotated[
    Path, argument("LOG", "Job log in SWF, CSV or JSON lines, which may be compressed with gzip.")
]


@dataclass(frozen=True)
class RunFlags(policy_options.PolicyFlags, policy_options.ClusterFlags):
    estimate: Annotated[
        str,
        option(
            "--estimate",
            "ESTIMATE",
            "Estimate of run times with which the scheduler plans: limit (the time limit of the job) or "
            "predicted (from earlier runs of similar jobs). Default: the setting of the policy.",
        ),
    ] = ""
    clairvoyant: Annotated[
        bool,
        switch(
            "--clairvoyant",
            "Let the scheduler plan with the real run time of each job, as if the run time were known in "
            "advance.",
        ),
    ] = False
    unknown_durations: Annotated[
        bool,
        switch(
            "--unknown-durations",
            "Hide the time limits of the jobs from the scheduler. Each job runs for its whole run time.",
        ),
    ] = False
    slice_s: Annotated[
        float | None,
        option(
            "--slice",
            "TIME",
            "Let running jobs that have run for this time (e.g. 1h) give way to waiting jobs, and continue "
            "later. The simulation assumes that all jobs can save their state. Only with the orders "
            "expected-remaining and attained-service.",
            parser=amounts.seconds,
        ),
    ] = None
    start_overhead: Annotated[
        str,
        option(
            "--start-overhead",
            "COLUMN|TIME",
            "Time that each start and restart of a job takes before the job works: the name of a column of "
            "the table (in seconds), or one time for all jobs (30s, or a number of seconds).",
        ),
    ] = ""
    same_second: Annotated[
        str,
        option(
            "--same-second",
            "ORDER",
            "Order in which events of the same second are simulated: house (ends of jobs, then submits, "
            "then one scheduling cycle) or sc15 (submits, then ends of jobs, with a scheduling cycle after "
            "each event). Default: house.",
        ),
    ] = "house"
    swf_filter: Annotated[
        str,
        option(
            "--swf-filter",
            "FILTER",
            "Jobs of an SWF log to leave out: house (jobs whose times or size are unknown) or sc15 (also "
            "the jobs that the SC'15 paper on predictsim left out). Default: house.",
        ),
    ] = "house"
    zero_runs: Annotated[
        str,
        option(
            "--zero-runs",
            "ACTION",
            "What to do with jobs of an SWF log that ran for 0 s: drop (leave out the jobs), keep, or "
            "second (let the jobs run for 1 s). Default: drop.",
        ),
    ] = "drop"
    story: Annotated[
        Path | None,
        option(
            "--story",
            "FILE",
            "Run the operator commands in this file while the jobs run. Each line is a time and a corral "
            "command, such as: day 3 08:00 nodes drain gpu01. docs/simulator.md has an example.",
        ),
    ] = None
    skip_bad: Annotated[
        bool, switch("--skip-bad", "Skip invalid lines of the log, and report their number.")
    ] = False

    def overhead(self) -> tuple[float, str]:
        """Return the start overhead of all jobs in seconds, and the name of the column with the overhead of
        each job. At least one of the two is not set (0 or empty). Raise CommandError if the flags contradict
        each other.
        """
        if self.unknown_durations and self.clairvoyant:
            raise CommandError(
                "--unknown-durations cannot be combined with --clairvoyant",
                "With --clairvoyant the scheduler knows the run time of each job.",
            )
        text = self.start_overhead.strip()
        if not text[:1].isdigit():
            return 0.0, text.lower()
        try:
            return float(text) if text.replace(".", "", 1).isdigit() else amounts.seconds(text), ""
        except ValueError as error:
            raise CommandError(f"--start-overhead: {error}") from None


@with_flag_groups
def run(
    log: LogPath,
    flags: RunFlags,
    jobs_csv: Annotated[
        Path | None,
        option("--jobs-csv", "FILE", "Write the submit, start and end time of each job to this CSV file."),
    ] = None,
    report: Annotated[
        Path | None,
        option(
            "--report",
            "FILE",
            "Write the results to this file as one HTML page, as 'corral sim report' does.",
        ),
    ] = None,
    output: Output = Format.TABLE,
    profile: Annotated[
        str, option("--profile", "NAME", "Use this scheduler profile of --config for all jobs.")
    ] = "",
) -> int:
    """Run a log of jobs through the scheduler in simulated time, under one policy or several.

    --pool or --nodes sets the simulated cluster. Without these options, the cluster has the nodes of
    --config. Without --config, an SWF log gets a cluster with the number of processors in its header, and any
    other log the nodes of the scheduler.toml that the controller would read. A job of an SWF log runs on the
    fewest nodes that have its number of processors. It gets the same number of CPUs on each of these nodes,
    rounded up.

    A log in CSV begins with a heading; a log in JSON has one object per line. Each job has submit and
    duration in seconds, and may have estimate, user, gpus, nodes, cpu, memory, model, priority, begin,
    deadline, array, after_ok, min_nodes and more; docs/simulator.md lists all fields.

    --order and --backfill set the scheduling policy. Without these options, the simulation uses the policy
    and all scheduler profiles of --config. Without --config, it uses the policy and profiles of the
    scheduler.toml that the controller would read. --profile uses one of the profiles for all jobs, on all
    nodes.
    """
    return simulate(log, flags, output, profile, jobs_csv, report)


def simulate(
    log: Path,
    flags: RunFlags,
    output: Format = Format.TABLE,
    profile: str = "",
    jobs_csv: Path | None = None,
    report: Path | None = None,
) -> int:
    """Run the log and print the results. If `profile` is not empty, all jobs use this scheduler profile. If
    `jobs_csv` or `report` is given, also write the start times or the HTML report to that file.
    """
    with refusals():
        from cli.commands.sim.option_columns import option_columns
        from cli.commands.sim.story.story_file import facts_of, read_story
        from controller.config import load
        from controller.sim.logs.job_log import read_log
        from controller.sim.logs.swf import SwfFilter, SwfOptions, ZeroRuns
        from controller.sim.run import RunTask, SameSecond, with_slices
        from controller.sim.trace_job import saving, without_time_limit

        reading = SwfOptions(
            policy_options.one_of(ZeroRuns, flags.zero_runs, "--zero-runs"),
            policy_options.one_of(SwfFilter, flags.swf_filter, "--swf-filter"),
        )
        together = policy_options.one_of(SameSecond, flags.same_second, "--same-second")
        overhead_s, overhead_column = flags.overhead()
        chosen = load(addresses.find_config(flags.config))
        policies = flags.policies(chosen, flags.estimate, profile)
        read = read_log(
            log, skip_bad=flags.skip_bad, options=option_columns(), overhead_column=overhead_column
        )
        cluster = flags.cluster() or policy_options.find_cluster(read, chosen, explicit=bool(flags.config))
        work, dropped = read.work(cluster, reading)
        if overhead_s:
            work = [replace(job, start_overhead_s=overhead_s) for job in work]
        if flags.slice_s is not None:
            work = [saving(job) for job in work]
            policies = [with_slices(policy, flags.slice_s) for policy in policies]
            if not any(policy.config.scheduler.slice_s for policy in policies):
                raise CommandError(
                    "--slice needs an order by which jobs can take turns",
                    "Add --order expected-remaining or --order attained-service.",
                )
        if flags.unknown_durations:
            work = [without_time_limit(job) for job in work]
        count = sum(job.count for job in work)
        _print_notes(read, cluster, count, dropped)
        story: tuple[StoryStep, ...] = ()
        if flags.story is not None:
            if together is SameSecond.SC15:
                raise CommandError("--story cannot be combined with --same-second sc15")
            story = read_story(flags.story, facts_of(work, cluster, chosen))
        with _jobs_files(jobs_csv, policies) as files:
            if report is not None:
                # Open the file now, so that an error about the file is reported before the long run and not
                # after it.
                report.open("a").close()
            outcomes = _outcomes(
                [
                    RunTask(
                        policy,
                        cluster,
                        work,
                        flags.clairvoyant,
                        together,
                        story,
                        keep_records=report is not None,
                        count_gpu_hours=figures_table.shows_gpu_hours(output, alone=not flags.compare),
                    )
                    for policy in policies
                ]
            )
            for file, outcome in zip(files, outcomes, strict=False):
                _write_jobs(file, outcome.rows)
    if report is not None:
        _write_report(report, log.name, cluster, outcomes, dropped, len(read.bad))
    _print_refused(outcomes[0], count)
    bodies = [_body(each, dropped, len(read.bad)) for each in outcomes]
    figures_table.show(output, bodies, alone=not flags.compare)
    if flags.story is not None:
        _show_story(output, outcomes)
    return 0


def _show_story(output: Format, outcomes: Sequence[RunResult]) -> None:
    """If the output is a table, print another table with the outcome of each line of the story. Policies with
    the same outcomes share one table. In all other formats print nothing, because the results in JSON and
    YAML contain the outcomes.
    """
    if output not in (Format.TABLE, Format.WIDE):
        return
    policies: dict[tuple[StoryOutcome, ...], list[str]] = {}
    for each in outcomes:
        policies.setdefault(each.story, []).append(each.policy)
    for story, names in policies.items():
        write(f"\nstory with {', '.join(names)}\n" if len(policies) > 1 else "\n")
        _STORY.show(output, story)


_STORY: Table[StoryOutcome] = Table(
    [
        Column("TIME", lambda each: each.when),
        Column("STORY", lambda each: each.words, narrow=20),
        Column("OUTCOME", lambda each: each.text, narrow=20),
    ],
    lambda each: str(each.line),
)


def _outcomes(tasks: Sequence[RunTask]) -> list[RunResult]:
    from controller.sim.run import run, run_policies

    with Progress(sum(job.count for task in tasks for job in task.work), "jobs") as progress:
        return [run(tasks[0], progress)] if len(tasks) == 1 else run_policies(tasks, progress)


@contextmanager
def _jobs_files(path: Path | None, policies: Sequence[Policy]) -> Iterator[list[TextIO]]:
    """Open the files for the start times of jobs: one file for each policy. With several policies, the name
    of each file contains the name of its policy.
    """
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
            each.every_node(cluster),
            each.records,
            {**asdict(each.figures), "cpu_s": each.cpu_s},
            source,
            {**_not_run(each, dropped), **broken},
            each.story,
            each.capacity_changes,
        )
        for each in outcomes
    ]
    write_report(runs, path)
    print_note(f"{path}: {path.stat().st_size / 1e6:.1f} MB; open it in a browser")


def _exact(seconds: float) -> float:
    return int(seconds) if seconds == int(seconds) else seconds


def _print_notes(read: JobLog, cluster: Cluster, running: int, dropped: Mapping[str, int]) -> None:
    """Print how many lines of the log were skipped, how many jobs run on the simulated cluster (`running`),
    and how many jobs were dropped for each reason (`dropped`).
    """
    if read.bad:
        line, why = read.bad[0]
        count = f"{len(read.bad):,} broken line{'s' * (len(read.bad) > 1)}"
        print_note(f"{read.name}: skipped {count}, the first: line {line}: {why}")
    if read.unread:
        print_note(f"{read.name}: skipped unknown columns: {', '.join(read.unread)}")
    reasons = ", ".join(f"{count:,} {why}" for why, count in dropped.items())
    print_note(f"{_jobs(running)} on {cluster}" + (f"; dropped: {reasons}" if reasons else ""))


def _print_refused(outcome: RunResult, submitted: int) -> None:
    count = sum(outcome.refused.values())
    if count:
        message = max(outcome.refused, key=outcome.refused.__getitem__)
        print_note(f"{_jobs(count)} refused, {outcome.refused[message]:,} like this: {message}")
    if outcome.never_started:
        print_note(f"{_jobs(outcome.never_started)} ended without a start")
    left = submitted - count - outcome.figures.jobs - outcome.never_started
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
        **({"story": [_story_body(each) for each in outcome.story]} if outcome.story else {}),
        **({} if outcome.accounted is None else _accounted_body(outcome.accounted)),
    }


def _story_body(outcome: StoryOutcome) -> dict[str, Any]:
    return {**asdict(outcome), "refused": list(outcome.refused)}


def _accounted_body(accounted: AccountedReports) -> dict[str, Any]:
    return {
        "project_fairness": asdict(accounted.projects),
        "user_fairness": asdict(accounted.users),
        "waste": asdict(accounted.waste),
    }
