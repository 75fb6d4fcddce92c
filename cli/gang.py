"""The output of a job on several nodes as one: whole lines, each with the node it comes from."""

from __future__ import annotations

import threading
from typing import BinaryIO

from cli.logs import copy, last_lines
from wire.client import Client, JobName, Refused, Unreachable

LONGEST = 64 * 1024
"""More without a newline is shown as it is, for it may never end."""

_TURN = threading.Lock()
"""Lines of several nodes go to one terminal, one at a time."""


class Marked:
    """Somewhere to write the output of one node."""

    def __init__(self, node: str, sink: BinaryIO) -> None:
        self._mark = node.encode() + b": "
        self._sink = sink
        self._rest = b""

    def write(self, data: bytes) -> int:
        """Whole lines go out, the rest waits."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST:
            lines, self._rest = [*lines, self._rest], b""
        with _TURN:
            self._sink.writelines(self._mark + line + b"\n" for line in lines)
        return len(data)

    def flush(self) -> None:
        """What is out is seen."""
        self._sink.flush()

    def finish(self) -> None:
        """There is no more: the last line may have no end."""
        if self._rest:
            self.write(b"\n")
        self.flush()


def show(
    client: Client, job: JobName, nodes: list[str], stream: str, sink: BinaryIO, lines: int | None
) -> None:
    """What each node has now, one after the other."""
    for node in nodes:
        marked = Marked(node, sink)
        if lines is None:
            copy(client, job, stream, marked, node=node)
        else:
            marked.write(last_lines(client, job, stream, lines, node=node))
        marked.finish()


def follow(job: JobName, nodes: list[str], stream: str, sink: BinaryIO) -> None:
    """All nodes at once, until the job has ended."""
    failures: list[Exception] = []

    def one(node: str) -> None:
        marked = Marked(node, sink)
        try:
            copy(Client(), job, stream, marked, follow=True, node=node)
            marked.finish()
        except (Refused, Unreachable, OSError) as failure:
            failures.append(failure)

    threads = [threading.Thread(target=one, args=(node,), daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
