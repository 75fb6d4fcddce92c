"""sacct: lists jobs and their steps, with the used resources."""

from __future__ import annotations

import grp
import os
import pwd
import re
import sys
import time
from collections.abc import Iterable

from cli.slurm.arguments import COMMON, Arguments, Option, Value, parse, prints_only_help, switch
from cli.slurm.formats.output_formats import print_lines
from cli.slurm.formats.resources import cpus, gid_of
from cli.slurm.formats.sacct_columns import columns_of, lines, shape_of
from cli.slurm.formats.states import STATE_COLUMNS, read_states
from cli.slurm.formats.times import moment, read_moment
from cli.slurm.openapi.documents import OPENAPI_DB, print_document, wanted
from cli.slurm.programs import SlurmError
from cli.slurm.selections import hosts
from cli.slurm.show.accounting_fields import BRIEF, COLUMNS, DEFAULT, LONG, state, with_steps
from cli.slurm.show.controller import Rows, controller, job_rows
from cli.slurm.show.jobs import GROUP_COLUMNS, grouped

OPTIONS = (
    switch("allusers", "a", "Print jobs of all users. root always gets the jobs of all users."),
    Option("accounts", "A", help="Only jobs of these accounts (projects)."),
    switch("brief", "b", "Print only id, state and exit code."),
    switch("completion", "c"),
    Option("delimiter", "", help="The separator of --parsable and --parsable2. Default: '|'."),
    switch("duplicates", "D"),
    switch("helpformat", "e", "List all fields of --format."),
    Option("endtime", "E", help="Only jobs that were submitted at or before this time."),
    switch("federation"),
    Option("file", "f"),
    Option("gid", "g", help="Only jobs of users in these groups (names or gids)."),
    Option("group"),
    Option("nnodes", "i", help="Only jobs with this number of nodes, such as 2 or 2-4."),
    Option("ncpus", "I", help="Only jobs with this number of CPUs, such as 2 or 2-4."),
    Option("jobs", "j", help="Only these jobs or steps, such as 7,8_3,9.batch."),
    switch("json", "", "Print JSON."),
    switch("yaml", "", "Print YAML."),
    Option("timelimit-min", "k"),
    Option("timelimit-max", "K"),
    switch("local"),
    switch("long", "l", "Print more fields."),
    switch("allclusters", "L"),
    Option("clusters", "M"),
    Option("cluster"),
    switch("noheader", "n", "Print no header."),
    switch("noconvert", "", "Do not convert units."),
    Option("nodelist", "N", help="Only jobs on these nodes."),
    Option("name", "", help="Only jobs with these names."),
    Option("format", "o", help="The fields to print, such as JobID,State%20. --helpformat lists all fields."),
    switch("parsable", "p", "Print '|' after each value."),
    switch("parsable2", "P", "Print '|' between the values."),
    Option("qos", "q", help="Only jobs with these qualities of service."),
    Option("partition", "r", help="Only jobs of these partitions (queues)."),
    Option("state", "s", help="Only jobs in these states, such as CD,F."),
    Option(
        "starttime",
        "S",
        help="Only jobs that had not ended at this time. Default: last midnight; "
        "with --state and without --endtime: now.",
    ),
    switch("truncate", "T"),
    Option("uid", "u", help="Only jobs of these users (names or uids), such as ada,1000."),
    Option("user"),
    Option("units", "", help="Print memory in this unit: K, M, G, T or P."),
    switch("verbose", "v"),
    Option("wckeys", "W"),
    Option("whole-hetjob", "", Value.OPTIONAL),
    Option("associations", "x"),
    switch("allocations", "X", "Print no steps."),
    switch("help", "h", "Show this help and exit."),
    *COMMON[1:],
)
USAGE = "sacct [OPTIONS]"
_JOB = re.compile(r"(\d+(?:_(?:\d+|\[[\d,:-]+\]))?)(?:\+\d+)?(?:\.(\w+))?")


def main(words: list[str]) -> int:
    """Print the jobs and steps that the options select. Return exit code 0; as in Slurm, unknown jobs are no
    error.
    """
    arguments = parse(OPTIONS, words)
    if prints_only_help(arguments, USAGE, OPTIONS):
        return 0
    if arguments.words:
        raise SlurmError(f"Unrecognized word: {arguments.words[0]}; write -j {arguments.words[0]} for a job")
    if arguments.has("helpformat"):
        _print_fields()
        return 0
    columns = columns_of(_fields(arguments), COLUMNS)
    steps = job_steps("sacct", arguments.all("jobs"))
    needs = [name for column in columns for name in column.needs]
    if wanted(arguments):
        from cli.slurm.openapi.accounting import JSON_COLUMNS, accounting_object

        jobs = _jobs(arguments, list(JSON_COLUMNS), steps)
        return print_document("jobs", [accounting_object(job) for job in jobs], OPENAPI_DB, arguments)
    unit = "raw" if arguments.has("noconvert") else _unit(arguments.last("units"))
    rows = [row for job in _jobs(arguments, needs, steps) for row in with_steps(job, unit)]
    if arguments.has("allocations"):
        rows = [row for row in rows if not row["step"]]
    named = {job: {step for other, step in steps if other == job} for job, _ in steps}
    rows = [row for row in rows if _named_step(row, named)]
    shape = shape_of(arguments)
    print_lines(lines(columns, rows, shape))
    return 0


def _print_fields() -> None:
    names = [f"{column.name:<19}" for column in COLUMNS]
    for begin in range(0, len(names), 4):
        print(" ".join(names[begin : begin + 4]))


def _fields(arguments: Arguments) -> str:
    chosen = ",".join(arguments.all("format")) or os.environ.get("SACCT_FORMAT", "")
    if arguments.has("format"):
        return chosen
    if arguments.has("long"):
        return LONG
    return BRIEF if arguments.has("brief") else chosen or DEFAULT


def _unit(text: str) -> str:
    if text and text.upper() not in ("K", "M", "G", "T", "P"):
        raise SlurmError(f"Invalid unit type: {text}")
    return text.upper()


def job_steps(program: str, texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs (job, step) for lists of jobs and steps such as 7,8_3.batch. The step is empty for a job
    without a step.
    """
    found = []
    for text in texts:
        for word in re.split(r",(?![^\[]*\])", text):
            match = _JOB.fullmatch(word.strip())
            if match is None and word.strip():
                print(f"{program}: fatal: Bad job/step specified: {word}", file=sys.stderr)
                raise SlurmError
            if match is not None:
                found.append((match[1], match[2] or ""))
    return found


def _named_step(row: dict[str, object], wanted: dict[str, set[str]]) -> bool:
    """Return True if the row passes --jobs: if `wanted` does not have the job, names the job without a step,
    or names this step. `wanted` is a dict from each job in --jobs to the set of its named steps; an empty
    text in this set means the job without a step.
    """
    for name in (row["label"], str(row["id"])):
        if name in wanted:
            return "" in wanted[str(name)] or row["step"] in wanted[str(name)]
    return True


def _jobs(arguments: Arguments, needs: list[str], steps: list[tuple[str, str]]) -> Rows:
    """Return the jobs that the command line selects. The elements of an array that have not started are in
    common rows (see `grouped`).
    """
    now = time.time()
    states = _states(arguments.last("state"))
    until = _moment(arguments, "endtime", now)
    since = _moment(arguments, "starttime", now)
    if since is None:
        since = now if states is not None and until is None else read_moment("today", now)
    if since > (now if until is None else until) and not steps:
        start, end = moment(since, ""), moment(now if until is None else until, "")
        raise SlurmError(f"Start time ({start}) requested is after end time ({end}).")
    columns = (*needs, *GROUP_COLUMNS, *STATE_COLUMNS, "started_at", "ended_at", "held", "nodes", "cpu_milli")
    columns += ("name", "limit_s", "detail", "signal", *(("qos",) if arguments.has("qos") else ()), "user")
    if not arguments.has("allocations") or "DerivedExitCode" in _fields(arguments):
        columns += ("steps", "gpus")
    groups = _groups(arguments)
    with controller() as transport:
        jobs = job_rows(
            transport,
            columns,
            jobs=[job for job, _ in steps],
            users=_users(arguments, bool(steps)),
            queues=_words(arguments.last("partition")),
            projects=_words(arguments.last("accounts")),
            since=None if steps else since,
            until=until,
        )
    if arguments.has("starttime") and steps:
        jobs = [job for job in jobs if job["ended_at"] is None or job["ended_at"] >= since]
    names, nodes = _words(arguments.last("name")), set(hosts(arguments.last("nodelist") or "any"))
    chosen = [
        job
        for job in jobs
        if (states is None or _accounting_state(job) in states)
        and (not names or job["name"] in names)
        and (not arguments.has("nodelist") or nodes & {entry[0] for entry in job["held"]})
        and (not arguments.has("qos") or job["qos"] in _words(arguments.last("qos")))
        and (not arguments.has("nnodes") or _between(job["nodes"], arguments.last("nnodes")))
        and (not arguments.has("ncpus") or _between(cpus(job), arguments.last("ncpus")))
        and (not arguments.has("timelimit-min") or _limited(job, arguments))
        and not arguments.has("wckeys")
        and (groups is None or gid_of(str(job["user"])) in groups)
    ]
    chosen = [job for job in chosen if _of_cluster(arguments, str(job["cluster"]))]
    return sorted(
        grouped(chosen), key=lambda job: (job["array"] or job["id"], job["index"] or 0, str(job["label"]))
    )


def _accounting_state(job: dict[str, object]) -> str:
    return state({**job, "step": ""}).split(" ")[0]


def _of_cluster(arguments: Arguments, name: str) -> bool:
    text = arguments.last("clusters") or arguments.last("cluster")
    return not text or text in ("all", "-1") or name in text.split(",")


def _limited(job: dict[str, object], arguments: Arguments) -> bool:
    limit = job["limit_s"]
    low, high = arguments.last("timelimit-min"), arguments.last("timelimit-max")
    minutes = float("inf") if limit is None else float(str(limit)) / 60
    if not low.isdigit() or (high and not high.isdigit()):
        raise SlurmError(f"Invalid time limit specification: {low} {high}".rstrip())
    return int(low) <= minutes <= int(high or low)


def _between(number: int, text: str) -> bool:
    low, dash, high = text.partition("-")
    if not low.isdigit() or (dash and not high.isdigit()):
        raise SlurmError(f"Invalid range: {text}")
    return int(low) <= number <= int(high if dash else low)


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _moment(arguments: Arguments, name: str, now: float) -> float | None:
    text = arguments.last(name)
    if not text:
        return None
    try:
        return read_moment(text, now)
    except ValueError:
        print(f"Invalid time specification (pos=0): {text}", file=sys.stderr)
        raise SlurmError from None


def _states(text: str) -> frozenset[str] | None:
    if not text:
        return None
    try:
        return read_states(text)
    except KeyError as error:
        print(f"sacct: fatal: unrecognized job state value '{error.args[0]}'", file=sys.stderr)
        raise SlurmError from None


def _users(arguments: Arguments, named: bool) -> list[str]:
    """Return the users whose jobs are listed; empty for all users. By default, root sees the jobs of all
    users, and any other user only its own jobs. --allusers, --user and --jobs (`named` is True) override this
    default.
    """
    text = arguments.last("uid") or arguments.last("user")
    if text and text != "-1":
        return [_user(word) for word in _words(text)]
    if arguments.has("allusers") or named or text or os.geteuid() == 0:
        return []
    return [_user(str(os.geteuid()))]


def _groups(arguments: Arguments) -> set[int] | None:
    """Return the ids (gid) of the groups that --gid names; None without this option."""
    text = arguments.last("gid") or arguments.last("group")
    if not text:
        return None
    try:
        return {
            grp.getgrgid(int(word)).gr_gid if word.isdigit() else grp.getgrnam(word).gr_gid
            for word in _words(text)
        }
    except (KeyError, OverflowError, ValueError):
        raise SlurmError(f"Invalid group id: {text}") from None


def _user(word: str) -> str:
    try:
        return pwd.getpwuid(int(word)).pw_name if word.isdigit() else pwd.getpwnam(word).pw_name
    except (KeyError, OverflowError):
        raise SlurmError(f"Invalid user id: {word}") from None
