"""Prints what `scontrol show` shows: each object as lines of KEY=value."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from cli.slurm.arguments import VERSION, Arguments
from cli.slurm.formats.output_formats import safe
from cli.slurm.programs import SlurmError
from cli.slurm.selections import hosts
from wire.cluster.hostlist import fold_hostlist

MOST_CHARACTERS = 1_000_000
"""At most this many characters of a file with a host list are read."""
Show = Callable[[str, Arguments], int]


def version(_words: Sequence[str], _arguments: Arguments) -> int:
    print(VERSION)
    return 0


def ping(_words: Sequence[str], _arguments: Arguments) -> int:
    """Print whether the controller answers. Return 1 if there is no answer."""
    import socket

    from cli.slurm.show.controller import ask, controller
    from wire.http.transport import Unreachable

    host = socket.gethostname()
    try:
        with controller() as transport:
            ask(transport, "/v1/health")
    except Unreachable:
        print(f"Slurmctld(primary) at {host} is DOWN")
        return 1
    print(f"Slurmctld(primary) at {host} is UP")
    return 0


def show(words: Sequence[str], arguments: Arguments) -> int:
    """Print all objects of the kind that the first word names, such as `job`; with further words, only the
    objects that these words name. Return the exit code.
    """
    if not words:
        print("too few arguments for keyword:show", file=sys.stderr)
        return 1
    text, equals, named = words[0].partition("=")
    if equals:
        # Read `show jobid=7` as `show jobid 7`.
        words = [text, named, *words[1:]]
    text = text.lower()
    entity = text if text in _ENTITIES else _beginning(text)
    if not entity:
        print(f"invalid entity:{words[0]} for keyword:show ", file=sys.stderr)
        return 1
    return _ENTITIES[entity](" ".join(words[1:]), arguments)


def _beginning(text: str) -> str:
    return next((name for name in _ENTITIES if len(text) > 2 and name.startswith(text)), "")


def _print_objects(objects: Sequence[list[str]], arguments: Arguments, end: str = "") -> None:
    """Print each object: its lines below each other, or with --oneliner on one line. `end` is printed after
    the lines of an object; on one line, a space takes its place.
    """
    for lines in objects:
        lines = [safe(line) for line in lines]
        if arguments.has("oneliner"):
            print(" ".join([*lines, ""]) if end else " ".join(lines))
        else:
            print("\n   ".join(lines) + end + "\n")


def _jobs(text: str, arguments: Arguments) -> int:
    from cli.slurm.nodes.job_text import JOB_COLUMNS, job_lines
    from cli.slurm.show.controller import controller, job_rows
    from cli.slurm.show.jobs import grouped
    from cli.slurm.show.squeue import MIN_JOB_AGE_S

    ids = re.fullmatch(r"(\d+(?:_(?:\d+|\[[\d,:-]+\]))?)(?:[.+].*)?", text) if text else None
    if text and ids is None:
        raise _Unknown("slurm_load_jobs error: Invalid job id specified")
    with controller() as transport:
        wanted = [ids[1]] if ids else []
        since = None if ids else time.time() - MIN_JOB_AGE_S
        jobs = job_rows(transport, JOB_COLUMNS, jobs=wanted, since=since)
    if ids and not jobs and "_" in ids[1]:
        print(f"Job {ids[1]} not found")
        return 1
    if ids and not jobs:
        raise _Unknown("slurm_load_jobs error: Invalid job id specified")
    if not jobs:
        print("No jobs in the system")
        return 0
    rows = sorted(grouped(jobs), key=lambda job: (job["array"] or job["id"], -(job["index"] or 0)))
    objects = [job_lines(job, details=arguments.has("details")) for job in rows]
    _print_objects(objects, arguments, "\n   ")
    return 0


def _nodes(text: str, arguments: Arguments) -> int:
    from cli.slurm.nodes.node_text import node_lines
    from cli.slurm.nodes.partitions import nodes, partitions
    from cli.slurm.show.controller import controller

    with controller() as transport:
        known = nodes(transport)
        queues = partitions(transport, known)
    details = arguments.has("details")
    if text:
        wanted = hosts(text)
        names = {node.name for node in known}
        missing = [name for name in wanted if name not in names]
        known = [node for node in known if node.name in wanted]
        _print_objects([node_lines(node, queues, details=details) for node in known], arguments)
        for name in missing:
            print(f"Node {name} not found")
        return 1 if missing else 0
    _print_objects([node_lines(node, queues, details=details) for node in known], arguments)
    return 0


def _partitions(text: str, arguments: Arguments) -> int:
    from cli.slurm.nodes.node_text import partition_lines
    from cli.slurm.nodes.partitions import nodes, partitions
    from cli.slurm.show.controller import controller

    with controller() as transport:
        found = partitions(transport, nodes(transport))
    chosen = [each for each in found if not text or each.name in text.split(",")]
    if text and not chosen:
        print(f"Partition {safe(text)} not found")
        return 1
    _print_objects([partition_lines(each) for each in chosen], arguments)
    return 0


def _reservations(text: str, arguments: Arguments) -> int:
    from cli.slurm.nodes.reservations import reservation_pairs, reservations
    from cli.slurm.show.controller import controller

    with controller() as transport:
        found = [view for view in reservations(transport) if not text or view["spec"]["name"] == text]
    if not found:
        print(f"Reservation {safe(text)} not found" if text else "No reservations in the system")
        return 1 if text else 0
    _print_objects([reservation_pairs(view) for view in found], arguments)
    return 0


def _licences(text: str, arguments: Arguments) -> int:
    from cli.slurm.show.controller import ask, controller

    with controller() as transport:
        found = ask(transport, "/v1/licences")["licences"]
    if not found:
        print("No licenses configured in Slurm.")
    for each in found:
        if not text or each["name"] == text:
            numbers = f"Total={each['total']} Used={each['used']} Free={each['total'] - each['used']}"
            gap = " " if arguments.has("oneliner") else "\n    "
            print(f"LicenseName={each['name']}{gap}{numbers} Reserved=0 Remote=no")
    return 0


def _config(text: str, _arguments: Arguments) -> int:
    from cli.slurm.nodes.config_text import config_lines

    lines = config_lines()
    if text:
        lines = [line for line in lines if line.split(" ")[0].lower() == text.lower()]
    print("\n".join(lines))
    return 0


def _steps(text: str, arguments: Arguments) -> int:
    from cli.slurm.show.controller import controller, job_rows
    from cli.slurm.show.steps import STEP_COLUMNS, running_steps, step_id, step_lines

    job, dot, _ = text.partition(".")
    with controller() as transport:
        jobs = job_rows(transport, STEP_COLUMNS, jobs=[job] if job else [])
    running = [row for row in jobs if row["state"] == "RUNNING"]
    if job and not running:
        raise _Unknown("slurm_get_job_steps error: Invalid job id specified")
    rows = [row for row in running_steps(running) if not dot or step_id(row) == text]
    if dot and not rows:
        print(f"Job step {text} not found")
        return 1
    _print_objects([step_lines(row) for row in rows], arguments)
    return 0


def _hostnames(text: str, _arguments: Arguments) -> int:
    print("\n".join(_expanded(text)))
    return 0


def _hostlist(text: str, _arguments: Arguments) -> int:
    if not text:
        print("invalid encode argument", file=sys.stderr)
        return 1
    print(fold_hostlist(_expanded(text)))
    return 0


def _sorted_hostlist(text: str, _arguments: Arguments) -> int:
    from cli.slurm.formats.resources import natural

    if not text:
        print("invalid encode argument", file=sys.stderr)
        return 1
    print(fold_hostlist(sorted(set(_expanded(text)), key=natural)))
    return 0


def _expanded(text: str) -> list[str]:
    """Return the host names in the host list `text`. If `text` is an absolute path, read the host list from
    this file. If `text` is empty, use the nodes of the job in which scontrol runs.
    """
    text = text or os.environ.get("SLURM_JOB_NODELIST", "") or os.environ.get("SLURM_NODELIST", "")
    if text.startswith("/"):
        with open(text, encoding="utf-8") as file:
            text = ",".join(file.read(MOST_CHARACTERS).split())
    if not text:
        raise SlurmError("host list is empty", code=0)
    return hosts(text)


def _daemons(_text: str, _arguments: Arguments) -> int:
    print("slurmctld slurmd ")
    return 0


def _topology(_text: str, _arguments: Arguments) -> int:
    raise SlurmError("No topology information available")


class _Unknown(SlurmError):
    """Ends the command with exit code 1. The error line is printed at once, because unlike the line of
    another SlurmError it does not begin with `scontrol: error:`.
    """

    def __init__(self, line: str) -> None:
        super().__init__()
        print(line, file=sys.stderr)


_ENTITIES: Mapping[str, Show] = {
    "config": _config,
    "daemons": _daemons,
    "hostlist": _hostlist,
    "hostlistsorted": _sorted_hostlist,
    "hostnames": _hostnames,
    "job": _jobs,
    "jobs": _jobs,
    "jobid": _jobs,
    "licenses": _licences,
    "node": _nodes,
    "nodes": _nodes,
    "partition": _partitions,
    "partitions": _partitions,
    "reservation": _reservations,
    "reservations": _reservations,
    "step": _steps,
    "steps": _steps,
    "topology": _topology,
    "version": lambda _text, _arguments: version((), _arguments),
}
"""For each kind of object: the function that prints objects of this kind. On the command line, the beginning
of the kind (three letters or more) is enough.
"""
