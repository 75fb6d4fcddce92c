"""Merges the output of a job on several nodes: whole lines, each with the name of its node."""

from __future__ import annotations

import threading

from cli.jobs.logs import ByteSink

LONGEST = 64 * 1024
"""The most bytes of a line. A longer line is written in parts, because its end may never arrive."""

_TURN = threading.Lock()
"""The lock that is held while a line is written, so that lines of several nodes do not mix."""


class NodeLineWriter:
    """Writes the output of one node to a sink that it shares with other nodes."""

    def __init__(self, node: str, sink: ByteSink) -> None:
        self._mark = node.encode() + b": "
        self._sink = sink
        self._rest = b""

    def write(self, data: bytes) -> int:
        """Write all complete lines, and keep the unfinished line until its end arrives."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST:
            lines, self._rest = [*lines, self._rest], b""
        with _TURN:
            for line in lines:
                self._sink.write(self._mark + line + b"\n")
        return len(data)

    def flush(self) -> None:
        """Flush the sink."""
        self._sink.flush()

    def finish(self) -> None:
        """Write the unfinished line at the end of the output."""
        if self._rest:
            self.write(b"\n")
        self.flush()
