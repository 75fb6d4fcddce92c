"""squeue: lists jobs."""

from __future__ import annotations

import os
import pwd
import sys
import time

from cli.slurm.arguments import COMMON, Arguments, Option, Value, parse, prints_only_help, switch
from cli.slurm.formats.output_formats import Format, named_format, percent_format, print_lines
from cli.slurm.formats.resources import natural
from cli.slurm.formats.states import ACTIVE, COMPACT, ENDED, ORDER, STATE_COLUMNS, job_state, read_states
from cli.slurm.openapi.documents import OPENAPI, print_document, wanted
from cli.slurm.programs import SlurmError
from cli.slurm.selections import hosts, pause_s, require_own_cluster
from cli.slurm.show.controller import Rows, ask, cluster_name, controller, job_rows
from cli.slurm.show.jobs import GROUP_COLUMNS, grouped
from cli.slurm.show.squeue_fields import FIELDS
from wire.http.controllers import Controllers

OPTIONS = (
    Option("account", "A", help="Only jobs of these accounts (projects)."),
    switch("all", "a"),
    switch("array", "r", "Print each waiting element of an array on a line of its own."),
    switch("array-unique"),
    Option(
        "Format", "O", help="The fields to print, by name, such as JobArrayID:20,State. Default width: 20."
    ),
    Option("format", "o", help="The fields to print, by letter, such as '%.18i %.9P %.2t'."),
    switch("federation"),
    switch("noheader", "h", "Print no header."),
    switch("hide"),
    Option("iterate", "i", help="Print the list again every VALUE seconds."),
    Option("jobs", "j", Value.OPTIONAL, "Only these jobs, such as 7,8_[1-3]."),
    switch("json", "", "Print JSON."),
    switch("yaml", "", "Print YAML."),
    switch("local"),
    switch("long", "l", "Also print the time limit."),
    Option("licenses", "L", help="Only jobs that request one of these licences."),
    Option("clusters", "M"),
    Option("cluster"),
    switch("me", "", "Only jobs of the user that runs the command."),
    Option("name", "n", help="Only jobs with these names."),
    switch("noconvert"),
    Option("nodelist", "w", help="Only jobs on these nodes."),
    Option("nodes"),
    Option("node"),
    Option("partition", "p", help="Only jobs of these partitions (queues)."),
    switch("priority", "P"),
    Option("qos", "q", help="Only jobs with these qualities of service."),
    Option("reservation", "R", help="Only jobs of this reservation."),
    switch("sibling"),
    Option(
        "sort",
        "S",
        help="Sort the lines by these fields (letters of --format), such as 'P,-i'. '-' reverses.",
    ),
    switch("start", "", "Print when waiting jobs are expected to start."),
    Option("steps", "s", Value.OPTIONAL),
    Option("states", "t", help="Only jobs in these states, such as PD,R. 'all' also selects ended jobs."),
    Option("users", "u", help="Only jobs of these users (names or uids), such as ada,1000."),
    switch("verbose", "v"),
    switch("help", "", "Show this help and exit."),
    *COMMON[1:],
)
USAGE = "squeue [OPTIONS]"

DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
DEFAULT_SORT = "P,t,-p"
MIN_JOB_AGE_S = 300
"""squeue lists an ended job for this many seconds after its end, if --states selects its state."""


def main(words: list[str]) -> int:
    """Print the jobs once, or with --iterate again and again. Return 1 if --jobs names only one job, and this
    job is unknown or ended more than MIN_JOB_AGE_S seconds ago.
    """
    arguments = _with_environment(parse(OPTIONS, words))
    if prints_only_help(arguments, USAGE, OPTIONS):
        return 0
    if arguments.has("format") and arguments.has("Format"):
        raise SlurmError("-O (--Format) is incompatible with -o (--format)")
    every = pause_s(arguments)
    code = _once(arguments)
    while every and code == 0:
        sys.stdout.flush()
        time.sleep(every)
        print()
        code = _once(arguments)
    return code


_ENVIRONMENT = {
    "SQUEUE_ACCOUNT": "account",
    "SQUEUE_NAMES": "name",
    "SQUEUE_LICENSES": "licenses",
    "SQUEUE_PARTITION": "partition",
    "SQUEUE_QOS": "qos",
    "SQUEUE_SORT": "sort",
    "SQUEUE_STATES": "states",
    "SQUEUE_USERS": "users",
    "SQUEUE_ARRAY": "array",
}


def _with_environment(arguments: Arguments) -> Arguments:
    """Return the arguments with the options that environment variables set. An option on the command line
    overrides its variable. A word after -j or -s without a value becomes the value. Raise SlurmError for any
    other word.
    """
    for name in ("node", "nodes", "nodelist"):
        if name != "nodelist" and arguments.has(name):
            arguments.options.append(("nodelist", arguments.last(name)))
    for variable, name in _ENVIRONMENT.items():
        if variable in os.environ and not arguments.has(name):
            arguments.options.append((name, os.environ[variable]))
    own = ("format", "Format", "long", "start", "steps")
    if not any(arguments.has(name) for name in own):
        for variable, name in (("SQUEUE_FORMAT", "format"), ("SQUEUE_FORMAT2", "Format")):
            if variable in os.environ:
                arguments.options.append((name, os.environ[variable]))
                break
    if arguments.words and arguments.has("jobs") and not arguments.last("jobs"):
        arguments.options.append(("jobs", arguments.words.pop(0)))
    if arguments.words and arguments.has("steps") and not arguments.last("steps"):
        arguments.options.append(("steps", arguments.words.pop(0)))
    if arguments.words:
        raise SlurmError(f"Unrecognized option: {arguments.words[0]}")
    return arguments


def _once(arguments: Arguments) -> int:
    if arguments.has("steps"):
        return _print_steps(arguments)
    if wanted(arguments):
        from cli.slurm.openapi.jobs import COLUMNS, job_object

        found = _jobs(arguments, COLUMNS, DEFAULT_SORT)
        shown = sorted_jobs(found or [], DEFAULT_SORT)
        return print_document("jobs", [job_object(job) for job in shown], OPENAPI, arguments)
    form = _format(arguments)
    sort = arguments.last("sort", "S" if arguments.has("start") else DEFAULT_SORT)
    _check_sort(sort)
    jobs = _jobs(arguments, form.columns, sort)
    if jobs is None:
        print("slurm_load_jobs error: Invalid job id specified", file=sys.stderr)
        return 1
    if not arguments.has("noheader"):
        if arguments.has("long"):
            print(time.strftime("%a %b %d %H:%M:%S %Y"))
        print(form.header())
    print_lines([form.line(job) for job in sorted_jobs(jobs, sort)])
    return 0


def _print_steps(arguments: Arguments) -> int:
    """Print the running steps that the command line selects. Return exit code 0."""
    from cli.slurm.show import steps

    if arguments.has("Format"):
        form = named_format(arguments.last("Format"), steps.FIELDS)
    else:
        form = percent_format(arguments.last("format") or steps.DEFAULT, steps.FIELDS)
    for name in form.unknown:
        print(f"squeue: error: Invalid job step format specification: {name}", file=sys.stderr)
    named = [text for name in ("jobs", "steps") for text in arguments.all(name) if text]
    users = str(os.geteuid()) if arguments.has("me") else arguments.last("users")
    with controller() as transport:
        jobs = job_rows(
            transport,
            steps.STEP_COLUMNS,
            jobs=[word for text in named for word in job_words(text)],
            users=user_names(users) if users else [],
            queues=_list(arguments.last("partition")),
        )
    named_steps = {word for text in arguments.all("steps") for word in text.split(",") if "." in word}
    rows = [row for row in steps.running_steps(jobs) if not named_steps or steps.step_id(row) in named_steps]
    rows.sort(key=lambda row: (row["queue"], natural(str(row["label"])), natural(str(row["step"]))))
    if not arguments.has("noheader"):
        print(form.header())
    print_lines([form.line(row) for row in rows])
    return 0


def _format(arguments: Arguments) -> Format:
    if arguments.has("Format"):
        form = named_format(arguments.last("Format"), FIELDS)
    else:
        default = LONG if arguments.has("long") else START if arguments.has("start") else DEFAULT
        form = percent_format(arguments.last("format") or default, FIELDS)
    for name in form.unknown:
        print(f"squeue: error: Invalid job format specification: {name}", file=sys.stderr)
    return form


def job_words(text: str) -> list[str]:
    """Return the job ids in a text such as 7,8_[1-3],9.0; for the step 9.0, the id of its job. Raise
    SlurmError if an id is invalid.
    """
    import re

    found = []
    for word in filter(None, re.split(r",(?![^\[]*\])", text)):
        match = re.fullmatch(r"(\d+(?:_(?:\d+|\[[\d,:-]+\]))?)(?:[.+].*)?", word.strip())
        if match is None:
            raise SlurmError(f"Invalid job id: {word}")
        found.append(match[1])
    if not found:
        raise SlurmError(f"Invalid job id: {text}")
    return found


def user_names(text: str) -> list[str]:
    """Return the names of the users in a list of names and uids such as ada,1000. As in Slurm, print an error
    for an unknown user, and continue.
    """
    found = []
    for word in text.split(","):
        try:
            found.append(pwd.getpwuid(int(word)).pw_name if word.isdigit() else pwd.getpwnam(word).pw_name)
        except (KeyError, OverflowError):
            print(f"squeue: error: Invalid user: {word}\n", file=sys.stderr)
    return found


def _jobs(arguments: Arguments, needs: tuple[str, ...], sort: str) -> Rows | None:
    """Return the jobs that the command line selects. Return None if --jobs names only one job, and this job
    is unknown or ended more than MIN_JOB_AGE_S seconds ago.
    """
    states = _states(arguments)
    words = job_words(arguments.last("jobs")) if arguments.last("jobs") else []
    users = arguments.last("users")
    if arguments.has("me"):
        users = str(os.geteuid())
    names = user_names(users) if users else []
    wanted_ended = states is None or bool(states & ENDED)
    lists = {
        name: arguments.last(name)
        for name in ("account", "partition", "name", "licenses", "qos", "reservation")
    }
    columns = (*needs, *STATE_COLUMNS, *GROUP_COLUMNS, *sort_columns(sort), "ended_at", "started_at")
    more = {"name": "name", "licenses": "licences", "qos": "qos", "reservation": "reservation"}
    columns += tuple(column for name, column in more.items() if lists[name])
    columns += ("held",) if arguments.has("nodelist") else ()
    nodes = set(hosts(arguments.last("nodelist"))) if arguments.has("nodelist") else set()
    with controller() as transport:
        require_own_cluster(arguments, lambda: cluster_name(transport))
        if nodes:
            _require_nodes(nodes, transport)
        now = time.time()
        jobs = job_rows(
            transport,
            columns,
            jobs=words,
            users=names,
            queues=_list(lists["partition"]),
            projects=_list(lists["account"]),
            since=now - MIN_JOB_AGE_S if wanted_ended and not words else None,
        )
    young = [job for job in jobs if job["ended_at"] is None or job["ended_at"] >= job["now"] - MIN_JOB_AGE_S]
    if len(words) == 1 and not young:
        return None
    # Select no job if --users has only unknown users, because an empty list would select the jobs of all
    # users.
    if users and not names:
        return []
    chosen = [
        job
        for job in young
        if (states is None or job_state(job) in states)
        and (not lists["name"] or job["name"] in lists["name"].split(","))
        and (not lists["qos"] or job["qos"] in lists["qos"].split(","))
        and (not lists["licenses"] or set(lists["licenses"].split(",")) & set(job["licences"]))
        and (not nodes or nodes & {entry[0] for entry in job["held"]})
        and (not lists["reservation"] or job["reservation"] in lists["reservation"].split(","))
    ]
    return chosen if arguments.has("array") else grouped(chosen)


def _require_nodes(names: set[str], transport: Controllers) -> None:
    """Raise SlurmError if a name in `names` is the name of no node."""
    known = {node["name"] for node in ask(transport, "/v1/nodes")["nodes"]}
    for name in sorted(names - known):
        raise SlurmError("'sinfo -N' lists the nodes", f"Invalid node name {name}")


def _list(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _states(arguments: Arguments) -> frozenset[str] | None:
    text = arguments.last("states")
    if not text:
        return frozenset({"PENDING"}) if arguments.has("start") else ACTIVE
    try:
        return read_states(text)
    except KeyError as error:
        word = str(error.args[0])
        raise SlurmError(
            f"Invalid job state specified: {word}", f"Valid job states include: {','.join(COMPACT)}\n"
        ) from None


_SORT_COLUMNS = {
    **{field.letter: field.columns for field in FIELDS if field.letter},
    "i": ("id", "array", "index"),
    "p": ("priority", "id"),
    "Q": ("priority", "id"),
}


def _check_sort(sort: str) -> None:
    """Raise SlurmError if a word in `sort`, such as P,-i, is not the letter of a field. A sign before the
    letter is allowed.
    """
    letters = {field.letter for field in FIELDS} | {"p", "Q"}
    for word in sort.split(","):
        if word.strip() and word.strip().removeprefix("-").removeprefix("+") not in letters:
            raise SlurmError(
                f"Invalid sort specification: {word.strip()}; write letters of --format, as P,-i"
            )


def sort_columns(sort: str) -> tuple[str, ...]:
    """Return the columns of the job table that `sorted_jobs` reads for the letters in `sort`."""
    letters = [word.strip().lstrip("+-")[:1] for word in sort.split(",")]
    return ("id", *(name for letter in letters for name in _SORT_COLUMNS.get(letter, ())))


def sorted_jobs(jobs: Rows, sort: str) -> Rows:
    """Return the jobs in the order of `sort`, such as P,-i: first by the field P, then by the field i in
    descending order. Jobs that are equal in all these fields are in the order of their ids.
    """
    found = sorted(jobs, key=lambda job: (job["array"] or job["id"], job["index"] or 0, job["id"]))
    values = {field.letter: field.value for field in FIELDS if field.letter}
    for word in reversed(sort.split(",")):
        letter = word.strip().lstrip("+-")[:1]
        down = word.strip().startswith("-")
        if letter in ("p", "Q"):
            found.sort(key=lambda job: (0 if job["hold"] else 1, job["priority"]), reverse=down)
        elif letter in ("t", "T"):
            found.sort(key=lambda job: ORDER[job_state(job)], reverse=down)
        elif letter in ("i", "A", "F"):
            found.sort(key=lambda job: (job["array"] or job["id"], job["index"] or 0), reverse=down)
        elif letter in ("D", "C", "l", "M", "L", "m", "K"):
            value = values[letter]
            found.sort(key=lambda job: natural(value(job)), reverse=down)
        elif letter in values:
            value = values[letter]
            found.sort(key=value, reverse=down)
    return found
