"""sbcast: copies a file to all nodes of a job."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Mapping

from cli.slurm.arguments import COMMON, Arguments, Option, Value, parse, prints_only_help, switch
from cli.slurm.programs import SlurmError
from cli.slurm.steps.links import LinkLost, RemoteCommand, StepLink, TaskEnd, node_of, open_link
from wire.cluster.hostlist import expand_hostlist

OPTIONS = (
    Option("compress", "C", Value.OPTIONAL),
    Option("exclude"),
    Option("fanout", "F"),
    switch("force", "f", "Replace the file if it exists."),
    Option("jobid", "j", help="Copy the file to the nodes of this job, such as 7 or 7.0."),
    switch("preserve", "p", "Give the copies the time of the last change of the file."),
    Option("send-libs", "", Value.OPTIONAL),
    Option("size", "s"),
    Option("timeout", "t"),
    switch("verbose", "v"),
    *COMMON,
)
USAGE = "sbcast [OPTIONS] SOURCE DEST"
_CHUNK = 1 << 20
_AHEAD = 4
"""sbcast sends the next chunk to a node only if the node has written all sent chunks except the last _AHEAD.
This limits the memory that the agents need.
"""
_RECEIVE = (
    'if [ -e "$1" ] && [ -z "$2" ]; then echo "$1: File exists" >&2; exit 1; fi; '
    't="$1.$$.tmp"; : > "$t" || exit 1; n=$3; '
    'while [ "$n" -gt 0 ]; do head -c 1048576 >> "$t" || exit 1; echo; n=$((n-1)); done; '
    'chmod "$4" "$t" && { [ -z "$5" ] || touch -d "@$5" "$t"; } && mv -f "$t" "$1"'
)


def main(words: list[str]) -> int:
    """Copy a file to all nodes of a job. Return 1 if the copy to a node has failed."""
    arguments = parse(OPTIONS, words)
    if prints_only_help(arguments, USAGE, OPTIONS):
        return 0
    if len(arguments.words) != 2:
        raise SlurmError(f"Need two file names, have {len(arguments.words)} names")
    if arguments.has("exclude") or arguments.has("send-libs"):
        raise SlurmError(
            "Corral has no --exclude and --send-libs of sbcast. Copy the file to a shared directory."
        )
    source, target = arguments.words
    environment = dict(os.environ)
    job = arguments.last("jobid").partition(".")[0] or environment.get("SLURM_JOB_ID", "")
    if not job:
        raise SlurmError("Command only valid from within SLURM job")
    nodes = environment.get("SLURM_JOB_NODELIST", "") if job == environment.get("SLURM_JOB_ID") else ""
    if not nodes:
        from cli.slurm.submit.allocation import nodes_of

        nodes = nodes_of(job)
    return _copy(arguments, job, expand_hostlist(nodes), source, os.path.abspath(target), environment)


def _copy(
    arguments: Arguments, job: str, nodes: list[str], source: str, target: str, environment: Mapping[str, str]
) -> int:
    try:
        size = os.stat(source).st_size
    except OSError as error:
        raise SlurmError(f"Can't open `{source}`: {error.strerror}") from None
    here = node_of(job, environment)
    if here in nodes:
        if os.path.exists(target) and not arguments.has("force"):
            raise SlurmError(f"{here}: {target}: File exists")
        temporary = f"{target}.{os.getpid()}.tmp"
        (shutil.copy2 if arguments.has("preserve") else shutil.copy)(source, temporary)
        os.replace(temporary, target)
    others = [node for node in nodes if node != here]
    if not others:
        return 0
    found = os.stat(source)
    words: tuple[str, ...] = (
        "/bin/sh",
        "-c",
        _RECEIVE,
        "sbcast",
        target,
        "f" if arguments.has("force") else "",
    )
    words += (str(-(-size // _CHUNK)), f"{found.st_mode & 0o777:o}")
    words += (str(int(found.st_mtime)) if arguments.has("preserve") else "",)
    link = open_link(job, environment)
    try:
        link.connect()
        copies = [_NodeCopy(link, place, node, words) for place, node in enumerate(others)]
        return _send(source, link, copies)
    except LinkLost as lost:
        raise SlurmError(str(lost)) from None
    finally:
        link.close()


class _NodeCopy:
    """The copy of the file on one node. `written` is the number of chunks that the node has written."""

    def __init__(self, link: StepLink, rank: int, node: str, words: tuple[str, ...]) -> None:
        self.rank = rank
        self.node = node
        self.end: TaskEnd | None = None
        self.changed = threading.Condition()
        self.written = 0
        self._error = b""
        link.open(rank, node, RemoteCommand(words), self._take, self._ended)

    def await_chunk(self, number: int) -> None:
        """Wait until the node has written `number` chunks, or until the copy on this node has ended."""
        with self.changed:
            self.changed.wait_for(lambda: self.written >= number or self.end is not None)

    def result(self) -> int:
        with self.changed:
            self.changed.wait_for(lambda: self.end is not None)
        assert self.end is not None
        if self.end.code or self.end.error:
            why = self.end.error or self._error.decode("utf-8", "replace").strip()
            print(f"sbcast: error: {self.node}: {why or 'the file was not written'}", file=sys.stderr)
        return 1 if self.end.code or self.end.error else 0

    def _take(self, stream: str, data: bytes) -> None:
        with self.changed:
            if stream == "stdout":
                self.written += data.count(b"\n")
            else:
                self._error = (self._error + data)[-1_000:]
            self.changed.notify_all()

    def _ended(self, end: TaskEnd) -> None:
        with self.changed:
            self.end = end
            self.changed.notify_all()


def _send(source: str, link: StepLink, copies: list[_NodeCopy]) -> int:
    """Send the file to all nodes, no faster than the slowest node writes. Return 1 if the copy to a node has
    failed.
    """
    with open(source, "rb") as file:
        number = 0
        while chunk := file.read(_CHUNK):
            for copy in copies:
                copy.await_chunk(number - _AHEAD)
                link.write(copy.rank, chunk)
            number += 1
    for copy in copies:
        link.write(copy.rank, b"", end=True)
    return max(copy.result() for copy in copies)
