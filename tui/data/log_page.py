"""Fetches a part of a log from any byte on, and lets the agent search a log, so that a long log is not loaded
as a whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tui.data.log_tail import clean
from wire.api.jobs import LogMatch
from wire.http.client import Client

PAGE_BYTES: Final = 1 << 20
BEFORE_BYTES: Final = 1 << 18
"""A page begins this many bytes before the requested byte (`place`)."""


@dataclass(frozen=True)
class LogPage:
    """A part of a log: its lines, and the byte of the log at which each line begins. `begin` is the first
    byte of the page, and `end` the byte after its last line. `over` is True if the page reaches the present
    end of the log.
    """

    lines: tuple[str, ...]
    offsets: tuple[int, ...]
    begin: int
    end: int
    over: bool

    def line_at(self, place: int) -> int:
        """Return the index in `lines` of the line that contains the byte `place` of the log."""
        return max(0, bisect_right(self.offsets, place) - 1)


def fetch_page(connect: Callable[[], Client], job: int, stream: str, place: int) -> LogPage:
    """Return the part of a log around the byte `place`.

    1. On a separate connection, read PAGE_BYTES, beginning BEFORE_BYTES before the byte `place`. Then close
       the connection, so that the agent does not send the rest of the log.
    2. Leave out the first and the last line if they are not complete. A line that is longer than the page is
       kept.
    """
    begin = max(0, place - BEFORE_BYTES)
    data = bytearray()
    client = connect()
    try:
        for piece in client.logs(job, stream=stream, offset=begin):
            data += piece
            if len(data) >= PAGE_BYTES:
                break
    finally:
        client.close()
    over = len(data) < PAGE_BYTES
    del data[PAGE_BYTES:]
    with suppress(ValueError):
        if begin and (first := data.index(b"\n") + 1) <= place - begin:
            del data[:first]
            begin += first
    with suppress(ValueError):
        if not over and (last := data.rindex(b"\n") + 1) > place - begin:
            del data[last:]
    lines, offsets, at = [], [], begin
    for line in data.split(b"\n"):
        lines.append(clean(line.decode("utf-8", "replace")))
        offsets.append(at)
        at += len(line) + 1
    if lines and not lines[-1]:
        del lines[-1], offsets[-1]
    return LogPage(tuple(lines), tuple(offsets), begin, begin + len(data), over)


@dataclass(frozen=True)
class FoundPage:
    """The result of a search: the byte at which the match begins, and the page around the match; both are
    None if there is no match. `wrapped` is True if the search has reached an end of the log, and has
    continued from the other end.
    """

    place: int | None
    page: LogPage | None
    wrapped: bool = False


def search(
    connect: Callable[[], Client], job: int, stream: str, text: str, place: int, back: bool
) -> FoundPage:
    """Search a log from the byte `place` on, or with `back` from this byte towards the beginning of the log.
    `place` -1 means the end of the log. If nothing is found before an end of the log is reached, continue at
    the other end.

    The agent also answers after it has read 1 GiB without a match. In this case, send another request that
    continues at the byte that the agent has reached.
    """
    client = connect()
    try:
        match, wrapped = _search_to_end(client, job, stream, text, place, back), False
        if match.found is None and (place >= 0 if back else place > 0):
            match, wrapped = _search_to_end(client, job, stream, text, -1 if back else 0, back), True
    finally:
        client.close()
    if match.found is None:
        return FoundPage(None, None, wrapped)
    return FoundPage(match.found, fetch_page(connect, job, stream, match.found), wrapped)


def _search_to_end(client: Client, job: int, stream: str, text: str, place: int, back: bool) -> LogMatch:
    match = client.search_log(job, text, stream=stream, offset=place, back=back)
    while match.found is None and 0 < match.reached < match.size:
        match = client.search_log(job, text, stream=stream, offset=match.reached, back=back)
    return match
