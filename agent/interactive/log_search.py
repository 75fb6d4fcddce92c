"""Searches the logs of jobs for a text, so that the controller and the user need not read the whole log."""

from __future__ import annotations

import os
from typing import Callable

from agent.attempts.log_rotation import STREAMS
from agent.attempts.spool import AttemptKey, Spool, format_key
from agent.controller_channel import Channel
from wire.agent.orders import SearchLog
from wire.agent.reports import LogFound
from wire.dataclass import dataclass

BLOCK_BYTES = 1 << 20
MOST_BYTES = 1 << 30
"""The number of bytes after which a search without a match ends. The answer then contains the offset up to
which the search has read.
"""
MOST_SEARCHES = 16
"""The most searches that run at the same time. Further searches are refused, because each search takes time
in every iteration of the agent's event loop.
"""


@dataclass
class _Search:
    order: SearchLog
    text: bytes
    fold: bool
    descriptor: int
    size: int
    place: int
    """The offset in the log up to which the search has read. A search forward continues after this offset, a
    search back continues before it.
    """
    read: int = 0


class LogSearch:
    """The searches that are not yet answered.

    1. In each iteration of the event loop, read one block of the log for each search. The agent does other
       work between the blocks.
    2. A search forward finds the first match that begins at the byte `offset` of the log or later. A search
       back finds the last match that begins before this byte.
    3. Neighbouring blocks overlap by the length of the text minus one byte. Therefore a match that lies in
       two blocks is found, and is found only once.
    4. A search forward without a match ends at the end of the log, and a search back at the beginning. Any
       search ends when it has read MOST_BYTES.
    5. If the text has no capital letter (ASCII), capital letters in the log match too.

    The text is not a regular expression, because some regular expressions take exponential time and would
    block the agent. Memory: two blocks. Cost: 1 GB takes about a second.

    Example: in a log of 3 MB, a search back from the end reads the bytes from 2 MB, then from 1 MB.
    """

    def __init__(
        self, spool: Spool, has_ended: Callable[[AttemptKey], bool | None], channel: Channel
    ) -> None:
        self._spool = spool
        self._has_ended = has_ended
        self._channel = channel
        self._searches: dict[int, _Search] = {}

    @property
    def ready(self) -> bool:
        """Return whether a search has more of its log to read. If so, the event loop must not sleep."""
        return bool(self._searches)

    def search(self, order: SearchLog) -> None:
        """Begin a search. If the log cannot be searched, answer at once with the reason."""
        key = (order.job, order.attempt)
        text = order.text.encode("utf-8", "replace")
        if order.stream not in STREAMS:
            self._refuse(order, f"there is no stream {order.stream!r}; choose stdout or stderr")
            return
        if len(self._searches) >= MOST_SEARCHES:
            self._refuse(
                order, f"{MOST_SEARCHES} searches run on this node already; try again in some seconds"
            )
            return
        if self._has_ended(key) is None:
            self._refuse(order, f"this node has no log of attempt {order.attempt} of job {order.job}")
            return
        try:
            descriptor = self._spool.open_log(key, order.stream)
        except FileNotFoundError:
            # Answer that nothing was found, because an attempt that has not started has no log.
            self._channel.send(LogFound(order.request))
            return
        except OSError as error:
            self._refuse(order, f"cannot read {format_key(key)}/{order.stream}: {error.strerror}")
            return
        size = os.fstat(descriptor).st_size
        place = size if order.offset < 0 else min(order.offset, size)
        fold = text == text.lower()
        self._searches[order.request] = _Search(order, text, fold, descriptor, size, place)

    def stop(self, request: int) -> None:
        """End the search with the number `request`, if there is one, without an answer."""
        search = self._searches.pop(request, None)
        if search is not None:
            os.close(search.descriptor)

    def read_blocks(self) -> None:
        """Read one block for each search. Send the answer of a search that has found a match, has no more of
        its log to read, or has read MOST_BYTES.
        """
        for search in list(self._searches.values()):
            try:
                found = _back(search) if search.order.back else _forward(search)
            except OSError as error:
                self._refuse(search.order, f"cannot read the log: {error.strerror}")
                self.stop(search.order.request)
                continue
            ends = search.place <= 0 if search.order.back else search.place >= search.size
            if found is not None or ends or search.read >= MOST_BYTES or not search.text:
                self._channel.send(LogFound(search.order.request, found, search.place, search.size))
                self.stop(search.order.request)

    def _refuse(self, order: SearchLog, error: str) -> None:
        self._channel.send(LogFound(order.request, error=error))


def _forward(search: _Search) -> int | None:
    """Read the next block. Return the offset in the log of the first match in this block; None without a
    match.
    """
    begin = search.place
    end = min(search.size, begin + BLOCK_BYTES)
    data = _read(search, begin, min(search.size, end + len(search.text) - 1))
    search.place = end
    at = data.find(search.text)
    return begin + at if at >= 0 else None


def _back(search: _Search) -> int | None:
    """Read the previous block. Return the offset in the log of the last match in this block; None without a
    match.
    """
    end = search.place
    begin = max(0, end - BLOCK_BYTES)
    data = _read(search, begin, min(search.size, end + len(search.text) - 1))
    search.place = begin
    at = data.rfind(search.text)
    return begin + at if at >= 0 else None


def _read(search: _Search, begin: int, end: int) -> bytes:
    data = os.pread(search.descriptor, max(0, end - begin), begin)
    search.read += end - begin
    return data.lower() if search.fold else data
