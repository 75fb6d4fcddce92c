"""Merges the output of a job on several nodes line by line. Each line begins with the name of its node."""

from __future__ import annotations

import threading

from cli.jobs.logs import ByteSink

LONGEST = 64 * 1024
"""A line with more bytes is written as several lines, because a program may never end its line."""

_TURN = threading.Lock()
"""The lock for writing a line, so that lines of several nodes do not mix."""


class NodeLineWriter:
    """Writes the output of one node to a stream that also gets the output of other nodes. Each line begins
    with the name of the node.
    """

    def __init__(self, node: str, sink: ByteSink) -> None:
        self._mark = node.encode() + b": "
        self._sink = sink
        self._rest = b""

    def write(self, data: bytes) -> int:
        """Write all complete lines, and keep the unfinished last line until its end arrives."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST:
            lines, self._rest = [*lines, self._rest], b""
        with _TURN:
            for line in lines:
                self._sink.write(self._mark + line + b"\n")
        return len(data)

    def flush(self) -> None:
        self._sink.flush()

    def finish(self) -> None:
        if self._rest:
            self.write(b"\n")
        self.flush()
