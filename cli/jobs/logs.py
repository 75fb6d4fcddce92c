"""Copies the output of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from cli.jobs.wait import RetryLimit
from wire.http.client import Client, JobName, Refused, Unreachable

PER_LINE = 256
"""The search for the last lines of a log first assumes that a line has this many bytes."""

MOST = 16 * 1024 * 1024
"""The search for the last lines of a log ends when it has read more than this many bytes, because a progress
bar may be one line of many GB.
"""


@dataclass(frozen=True)
class LogSource:
    """Names one log: stdout or stderr of one attempt on one node. An empty node means the first node; attempt
    0 means the last attempt.
    """

    job: JobName
    stream: str = "stdout"
    node: str = ""
    attempt: int = 0

    def read(self, client: Client, *, offset: int = 0, follow: bool = False) -> Iterator[bytes]:
        """Yield the bytes of the log in pieces, starting at byte `offset`. With `follow`, continue until the
        attempt ends.
        """
        return client.logs(
            self.job,
            stream=self.stream,
            follow=follow,
            offset=offset,
            node=self.node,
            attempt=self.attempt,
        )


class ByteSink(Protocol):
    def write(self, data: bytes, /) -> object: ...
    def flush(self) -> None: ...


def copy(
    client: Client,
    source: LogSource,
    sink: ByteSink,
    *,
    follow: bool = False,
    offset: int = 0,
    quiet: bool = False,
) -> None:
    """Write a log to `sink`, starting at byte `offset`. With `follow`, continue until the attempt ends, and
    reconnect if the connection is lost. With `quiet`, print no note about a lost connection.
    """
    retries = RetryLimit(quiet=quiet)
    while True:
        try:
            for piece in source.read(client, offset=offset, follow=follow):
                sink.write(piece)
                sink.flush()
                offset += len(piece)
                retries.connected()
            return
        except (Unreachable, Refused) as lost:
            if not follow or (isinstance(lost, Refused) and lost.problem.code != "node_away"):
                raise
            # Try again after a lost connection, and after the error node_away: a restarted controller may not
            # have reconnected to its nodes yet.
            retries.disconnected(lost)


def last_lines(client: Client, source: LogSource, count: int) -> bytes:
    """Return the last `count` lines of a log. Read only the end of the log: first a small part, then larger
    parts until the part contains the lines.
    """
    reach = max(count, 1) * PER_LINE
    while True:
        data = b"".join(source.read(client, offset=-reach))
        if data.count(b"\n") > count or len(data) < reach or reach > MOST:
            return tail(data, count)
        reach *= 8


def last_lines_and_offset(client: Client, source: LogSource, count: int) -> tuple[bytes, int]:
    """Return the last `count` lines of a log (at most MOST bytes), and the offset of the next byte after
    these lines. The whole log is read, because the API does not return this offset.
    """
    kept, place = b"", 0
    for piece in source.read(client):
        kept = tail(kept + piece, count)[-MOST:]
        place += len(piece)
    return kept, place


def show(client: Client, source: LogSource, sink: ByteSink, *, follow: bool, lines: int | None) -> None:
    """Write a log, or its last `lines` lines, to `sink`. With `follow`, also write new output until the
    attempt ends.
    """
    place = 0
    if lines is not None:
        if follow:
            text, place = last_lines_and_offset(client, source, lines)
        else:
            text = last_lines(client, source, lines)
        sink.write(text)
        sink.flush()
    if follow or lines is None:
        copy(client, source, sink, follow=follow, offset=place)


def tail(text: bytes, count: int) -> bytes:
    """Return the last `count` lines of a text. An unfinished last line counts as a line."""
    end = len(text) - text.endswith(b"\n")
    for _ in range(count):
        end = text.rfind(b"\n", 0, end)
        if end < 0:
            return text
    return text[end + 1 :]
