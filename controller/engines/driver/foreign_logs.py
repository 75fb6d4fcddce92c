"""Answers requests for the output of attempts on an execution engine: parts of a log, and searches."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable

from controller.engines.contract import EngineUnavailable, ExecutionEngine
from controller.engines.driver.foreign_attempts import ForeignAttempt
from controller.engines.driver.record_files import MOST_LOG_BYTES, RecordFiles
from wire.agent.frames import AgentFrame
from wire.agent.orders import ReadLog, SearchLog
from wire.agent.reports import LogChunk, LogFound

PIECE = 256 * 1024
"""The most bytes in one message with a part of a log."""


class ForeignLogs:
    """Reads logs for the sessions of one engine. A log comes from the file of the ended attempt, or from the
    engine while the attempt runs.
    """

    def __init__(self, engine: ExecutionEngine, files: RecordFiles) -> None:
        self._engine = engine
        self._files = files

    async def collect(self, attempt: ForeignAttempt) -> None:
        """Store the logs of an attempt that has ended, of each at most the first MOST_LOG_BYTES. Do nothing
        if the engine gives no logs.
        """
        record = attempt.record
        if not self._engine.caps.logs or not record.ref:
            return
        for stream in ("stdout", "stderr"):
            data = bytearray()
            async for piece in self._engine.logs(record.ref, stream, follow=False):
                data += piece
                if len(data) >= MOST_LOG_BYTES:
                    del data[MOST_LOG_BYTES:]
                    break
            await asyncio.to_thread(self._files.save_log, record.tag, stream, bytes(data))

    async def read(
        self, order: ReadLog, attempt: ForeignAttempt | None, send: Callable[[AgentFrame], None]
    ) -> None:
        """Send the requested part of a log. A negative offset counts from the present end of the log."""
        if attempt is None:
            why = f"there is no log of attempt {order.attempt} of job {order.job}"
            send(LogChunk(order.request, end=True, error=why))
            return
        try:
            offset = order.offset
            if offset < 0:
                # Only count the bytes now, and read the log again afterwards, because a log can be larger
                # than the memory.
                size = 0
                async for piece in self._pieces(attempt, order.stream, False):
                    size += len(piece)
                offset = max(0, size + offset)
            at = 0
            async for piece in self._pieces(attempt, order.stream, order.follow):
                begin, at = at, at + len(piece)
                for start in range(max(0, offset - begin), len(piece), PIECE):
                    part = piece[start : start + PIECE]
                    send(LogChunk(order.request, b64encode(part).decode(), offset=begin + start))
                    # Let other tasks run: the session sends the piece, or stops this task if the reader is
                    # too slow.
                    await asyncio.sleep(0)
            send(LogChunk(order.request, end=True, offset=at))
        except EngineUnavailable as error:
            send(LogChunk(order.request, end=True, error=str(error)))

    async def search(
        self, order: SearchLog, attempt: ForeignAttempt | None, send: Callable[[AgentFrame], None]
    ) -> None:
        """Search a log, and send the answer. A text without capital letters also matches capital letters.

        Cost: the log is read once, and one piece of it is in memory at a time.
        """
        if attempt is None:
            why = f"there is no log of attempt {order.attempt} of job {order.job}"
            send(LogFound(order.request, error=why))
            return
        text = order.text.encode("utf-8", "surrogateescape")
        found, size, rest = None, 0, b""
        try:
            async for piece in self._pieces(attempt, order.stream, False):
                # Put the end of the previous piece before this one, because a match can lie in both.
                before, size = size - len(rest), size + len(piece)
                data = rest + piece
                searched = data.lower() if order.text == order.text.lower() else data
                rest = data[max(0, len(data) - len(text) + 1) :]
                if order.back:
                    end = len(searched) if order.offset < 0 else order.offset - before
                    at = searched.rfind(text, 0, end) if end > 0 else -1
                    found = before + at if at >= 0 else found
                elif found is None and order.offset >= 0:
                    at = searched.find(text, max(0, order.offset - before))
                    found = before + at if at >= 0 else None
                await asyncio.sleep(0)
        except EngineUnavailable as error:
            send(LogFound(order.request, error=str(error)))
            return
        send(LogFound(order.request, found, 0 if order.back else size, size))

    async def _pieces(self, attempt: ForeignAttempt, stream: str, follow: bool) -> AsyncIterator[bytes]:
        record = attempt.record
        if self._files.has_log(record.tag, stream):
            yield await asyncio.to_thread(self._files.log_path(record.tag, stream).read_bytes)
        elif record.ref and record.ended_at is None and self._engine.caps.logs:
            async for piece in self._engine.logs(record.ref, stream, follow=follow):
                yield piece
        elif record.ref and not self._engine.caps.logs:
            raise EngineUnavailable("this engine does not give the output of jobs")
