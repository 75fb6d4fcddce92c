"""scancel: cancels jobs, or sends a signal to jobs."""

from __future__ import annotations

import os
import pwd
import re
import signal
import sys
from collections.abc import Iterator

from cli.slurm.arguments import COMMON, Arguments, Option, parse, prints_only_help, switch
from cli.slurm.programs import SlurmError
from cli.slurm.selections import hosts, require_own_cluster
from wire.agent.orders import SignalTo
from wire.api.jobs import JobRefused, JobsOrder, JobView
from wire.http.client import Client, Refused
from wire.job.arrays import array_indices
from wire.names import SHOWN_STATES, SLURM_QOS, JobState

OPTIONS = (
    Option("account", "A", help="Only jobs of this account (project)."),
    switch("batch", "b", "Send the signal to the batch script only."),
    switch("ctld", ""),
    switch("full", "f", "Send the signal to the batch script and to all steps."),
    switch("hurry", "H"),
    switch("interactive", "i", "Ask for confirmation for each job."),
    Option("clusters", "M"),
    Option("name", "n", help="Only jobs with this name."),
    Option("jobname"),
    switch("me", "", "Only jobs of the user that runs the command."),
    Option("partition", "p", help="Only jobs of this partition (queue)."),
    switch("quiet", "Q", "Print no warnings."),
    Option("qos", "q", help="Only jobs with this quality of service."),
    Option("reservation", "R", help="Only jobs of this reservation."),
    Option("signal", "s", help="Send this signal, a name or a number, instead of ending the job."),
    Option("state", "t", help="Only jobs in this state: PENDING, RUNNING or SUSPENDED."),
    Option("user", "u", help="Only jobs of this user, a name or a number."),
    switch("verbose", "v", "Print each job that is cancelled."),
    Option("nodelist", "w", help="Only jobs that run on these nodes."),
    Option("wckey"),
    switch("help", "", "Show this help and exit."),
    *COMMON[1:],
)
USAGE = "scancel [OPTIONS] [job_id[_array_id][.step_id]]..."

_STATES = {
    "PENDING": {JobState.QUEUED},
    "PD": {JobState.QUEUED},
    "RUNNING": {JobState.RUNNING, JobState.SCHEDULED},
    "R": {JobState.RUNNING, JobState.SCHEDULED},
    "SUSPENDED": set[JobState](),
    "S": set[JobState](),
}
_FILTERS = (
    *("account", "jobname", "me", "name", "nodelist", "partition", "qos"),
    *("reservation", "state", "user", "wckey"),
)
_JOB = re.compile(r"(\d+(?:_(?:\d+|\[[\d,:-]+\]|\*))?)(?:\.(\d+|batch))?(?:\+\d+)?", re.ASCII)
_ENDED = "Job/step already completing or completed"
_UNKNOWN = "Invalid job id specified"
_DENIED = "Access/permission denied"


def main(words: list[str]) -> int:
    """Cancel jobs, or send them a signal. Return 1 if the controller refused to cancel a job or to send a
    signal. As in Slurm, an unknown or ended job is an error only with --signal or with an option that filters
    jobs, such as --user.
    """
    arguments = parse(OPTIONS, words)
    if prints_only_help(arguments, USAGE, OPTIONS):
        return 0
    number = _signal(arguments.last("signal"))
    states = _states(arguments.last("state"))
    user = _user(arguments)
    ids = [_job_id(word) for text in arguments.words for word in _commas(text)]
    filtered = any(arguments.has(name) for name in _FILTERS)
    if not ids and not filtered:
        raise SlurmError("No job identification provided")
    with Client() as client:
        require_own_cluster(arguments, lambda: client.cluster().name)
        steps = [(job, int(step)) for job, step in ids if step.isdigit()]
        code = max([_step(client, job, step, number, arguments) for job, step in steps], default=0)
        ids = [(job, step) for job, step in ids if not step.isdigit()]
        if steps and not ids:
            return code
        unknown: list[str] = []
        jobs = [job for job, _ in ids]
        ranges = any("[" in job for job in jobs)
        if filtered or ranges or arguments.has("interactive"):
            chosen = list(_chosen(client, arguments, user, states))
            jobs, unknown = _among(chosen, jobs) if jobs else ([job.label for job in chosen], [])
            if states != _states(""):
                # A job in another state than --state is known, so print no error about its id.
                active = list(_chosen(client, Arguments(), "", _states("")))
                unknown = _among(active, unknown)[1]
            if not filtered:
                # Print no error for an id without a job, because a range such as 8_[1-3] may name elements
                # that the array does not have.
                unknown = []
            jobs = [job for job in jobs if not arguments.has("interactive") or _confirmed(job)]
        for job in unknown:
            print(f"scancel: error: Kill job error on job id {job}: {_UNKNOWN}", file=sys.stderr)
        code = 1 if unknown else code
        if not jobs:
            return code
        if number in (None, signal.SIGKILL):
            return max(code, _cancel(client, jobs, arguments))
        return max(code, _send(client, jobs, number, arguments))


def _commas(text: str) -> Iterator[str]:
    """Yield the ids in a text such as `7,8_[1,3]`. A comma in brackets does not separate ids."""
    parts = re.split(r",(?![^\[]*\])", text)
    yield from (part for part in parts if part or len(parts) == 1)


def _job_id(text: str) -> tuple[str, str]:
    match = _JOB.fullmatch(text)
    if match is None or not int(match[1].partition("_")[0]):
        raise SlurmError(f"Invalid job id {text}")
    if "[" in match[1]:
        try:
            array_indices(match[1].partition("[")[2][:-1])
        except ValueError as error:
            raise SlurmError(f"Invalid job id {text}: {error}") from None
    return match[1].removesuffix("_*"), match[2] or ""


def _signal(text: str) -> signal.Signals | None:
    if not text:
        return None
    try:
        if text.isdigit():
            return signal.Signals(int(text))
        return signal.Signals["SIG" + text.upper().removeprefix("SIG")]
    except (KeyError, ValueError):
        print(f"Unknown job signal: {text}", file=sys.stderr)
        raise SlurmError from None


def _states(text: str) -> set[JobState]:
    if not text:
        return {state for state in SHOWN_STATES if not state.terminal}
    found: set[JobState] = set()
    for word in text.upper().split(","):
        if word not in _STATES:
            print(
                f"Invalid job state specified: {word}\nValid job states are PENDING, RUNNING, and SUSPENDED",
                file=sys.stderr,
            )
            raise SlurmError
        found |= _STATES[word]
    return found


def _user(arguments: Arguments) -> str:
    """Return the user that --user or --me selects; empty for all users."""
    name = arguments.last("user")
    try:
        if arguments.has("me"):
            return pwd.getpwuid(os.getuid()).pw_name
        return pwd.getpwuid(int(name)).pw_name if name.isdigit() else name and pwd.getpwnam(name).pw_name
    except KeyError:
        raise SlurmError(f"Invalid user name: {name}") from None


def _chosen(client: Client, arguments: Arguments, user: str, states: set[JobState]) -> Iterator[JobView]:
    """Yield the jobs in one of these states that match all filters of the command line. `user` is the owner
    of the jobs; empty for all users.
    """
    from cli.jobs.selection import pages

    name = arguments.last("name") or arguments.last("jobname")
    nodes = set(hosts(arguments.last("nodelist"))) if arguments.has("nodelist") else set()
    # With --wckey, select no job, because Corral has no counterpart of wckeys.
    if arguments.last("wckey"):
        return
    inside = _in_reservations(arguments.last("reservation"))
    settings = {each.name: each.settings for each in client.queues().queues} if arguments.has("qos") else {}
    qos = {name: each.get("qos") or SLURM_QOS for name, each in settings.items()}
    for job in pages(client, states, user) if states else ():
        wanted = (
            (name, job.name),
            (arguments.last("account"), job.project),
            (arguments.last("partition"), job.queue),
            (arguments.last("qos"), qos.get(job.queue, SLURM_QOS)),
        )
        if all(not text or value in text.split(",") for text, value in wanted) and (
            (not nodes or nodes & {held.node for held in job.held}) and (inside is None or job.id in inside)
        ):
            yield job


def _in_reservations(text: str) -> set[int] | None:
    """Return the ids of the active jobs that request one of the reservations in `text`, a list such as a,b.
    Return None if `text` is empty.
    """
    from cli.slurm.show.controller import controller, job_rows

    if not text:
        return None
    with controller() as transport:
        jobs = job_rows(transport, ("id", "reservation"))
    return {job["id"] for job in jobs if job["reservation"] in text.split(",")}


def _among(chosen: list[JobView], ids: list[str]) -> tuple[list[str], list[str]]:
    """Return the display ids of the jobs in `chosen` that `ids` name, and the texts in `ids` that name no job
    in `chosen`.
    """
    labels: list[str] = []
    unknown = []
    for text in ids:
        array, _, indices = text.partition("_")
        found = [
            job.label
            for job in chosen
            if text in (job.label, str(job.id)) or (not indices and array == str(job.array or ""))
        ]
        if indices.startswith("["):
            wanted = set(array_indices(indices[1:-1]))
            found = [job.label for job in chosen if str(job.array) == array and job.index in wanted]
        labels += found
        unknown += [] if found else [text]
    return labels, unknown


def _confirmed(job: str) -> bool:
    print(f"Cancel job_id={job} [y/n]? ", end="", flush=True)
    return sys.stdin.readline().strip().lower().startswith("y")


def _cancel(client: Client, jobs: list[str], arguments: Arguments) -> int:
    """Cancel jobs in one request. Return 1 if the controller refuses a cancel, unless the job is unknown or
    has ended.
    """
    loud = arguments.has("verbose") and not arguments.has("quiet")
    if loud:
        for job in jobs:
            print(f"scancel: Terminating job {job}", file=sys.stderr)
    code = 0
    for refused in client.order(JobsOrder("cancel", tuple(jobs))).refused:
        why, harmless = _why(refused)
        if loud or not harmless:
            print(f"scancel: error: Kill job error on job id {refused.job}: {why}", file=sys.stderr)
        code = max(code, 0 if harmless else 1)
    return code


def _why(refused: JobRefused) -> tuple[str, bool]:
    """Return Slurm's message for a refused cancel, and True if the refusal is harmless, because the job is
    unknown or has ended already.
    """
    code = refused.problem.code
    if code == "not_allowed":
        return _DENIED, False
    if code in ("not_found", "conflict"):
        return (_UNKNOWN if code == "not_found" else _ENDED), True
    return refused.problem.message, False


def _send(client: Client, jobs: list[str], number: signal.Signals, arguments: Arguments) -> int:
    """Send a signal to jobs, one after the other: by default to their steps and not to the batch script.
    Return 1 if the controller refuses one of the signals.
    """
    full, batch = arguments.has("full"), arguments.has("batch")
    to = SignalTo.FULL if full else SignalTo.BATCH if batch else SignalTo.STEPS
    code = 0
    for job in jobs:
        if arguments.has("verbose"):
            print(f"scancel: Signal {number.value} to job {job}", file=sys.stderr)
        try:
            client.signal(job, number.name.removeprefix("SIG"), to)
        except Refused as error:
            codes = {"not_allowed": _DENIED, "not_found": _UNKNOWN, "conflict": _ENDED}
            why = codes.get(error.problem.code, error.problem.message)
            print(f"scancel: error: Kill job error on job id {job}: {why}", file=sys.stderr)
            code = 1
    return code


def _step(client: Client, job: str, step: int, number: signal.Signals | None, arguments: Arguments) -> int:
    """Cancel a step, or send a signal to its tasks. Return 1 if the controller refuses, for example because
    there is no such step.
    """
    if arguments.has("verbose"):
        print(
            f"scancel: {f'Signal {number.value} to' if number else 'Terminating'} step {job}.{step}",
            file=sys.stderr,
        )
    name = (number or signal.SIGKILL).name.removeprefix("SIG")
    try:
        client.signal_step(job, step, name, cancel=number in (None, signal.SIGKILL))
    except Refused as error:
        why = {"not_allowed": _DENIED, "not_found": _UNKNOWN, "conflict": _UNKNOWN}.get(
            error.problem.code, error.problem.message
        )
        print(f"scancel: error: Kill job error on job step id {job}.{step}: {why}", file=sys.stderr)
        return 1
    return 0
