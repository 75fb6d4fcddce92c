"""The output of a job, copied to somewhere."""

from __future__ import annotations

from typing import Protocol

from cli.follow import Patience
from wire.client import Client, JobName, Refused, Unreachable

PER_LINE = 256
"""First guess at the length of a line when only the last ones are wanted."""

MOST = 16 * 1024 * 1024
"""Bytes that the last lines may have: progress bars can be one endless line."""


class Sink(Protocol):
    """Where bytes can go."""

    def write(self, data: bytes, /) -> object: ...
    def flush(self) -> None: ...


def copy(
    client: Client,
    job: JobName,
    stream: str,
    sink: Sink,
    *,
    follow: bool = False,
    offset: int = 0,
    quiet: bool = False,
    node: str = "",
) -> None:
    """Write a log to `sink` from `offset` on; a lost connection while following is taken up again."""
    patience = Patience(quiet=quiet)
    while True:
        try:
            for piece in client.logs(job, stream=stream, follow=follow, offset=offset, node=node):
                sink.write(piece)
                sink.flush()
                offset += len(piece)
                patience.heard()
            return
        except (Unreachable, Refused) as lost:
            # A controller that has just come back may not have its nodes yet.
            if not follow or (isinstance(lost, Refused) and lost.problem.code != "node_away"):
                raise
            patience.lost(lost)


def last_lines(client: Client, job: JobName, stream: str, count: int, *, node: str = "") -> bytes:
    """The last lines of a log, without reading all of a long one."""
    reach = max(count, 1) * PER_LINE
    while True:
        data = b"".join(client.logs(job, stream=stream, offset=-reach, node=node))
        if data.count(b"\n") > count or len(data) < reach or reach > MOST:
            return tail(data, count)
        reach *= 8


def last_lines_and_place(
    client: Client, job: JobName, stream: str, count: int, *, node: str = ""
) -> tuple[bytes, int]:
    """The last lines and the offset behind them, which only reading from the start can tell."""
    kept, place = b"", 0
    for piece in client.logs(job, stream=stream, node=node):
        kept = tail(kept + piece, count)[-MOST:]
        place += len(piece)
    return kept, place


def tail(text: bytes, count: int) -> bytes:
    """The last lines of a text; an unfinished one counts."""
    end = len(text) - text.endswith(b"\n")
    for _ in range(count):
        end = text.rfind(b"\n", 0, end)
        if end < 0:
            return text
    return text[end + 1 :]
