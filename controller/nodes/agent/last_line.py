"""Keeps the last line that an agent or an SSH login writes to stderr, for error messages."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol

import asyncssh

from wire.text import printable

READ = 1 << 20


class Source(Protocol):
    """The stderr stream of a process on this machine or of an SSH channel."""

    async def read(self, n: int = -1) -> bytes:
        """Read the next bytes. The result is empty at the end of the stream."""


class LastLine:
    """Keeps the last line that a program writes to stderr.

    The stream is read until its end, because a full pipe would block the program.
    """

    def __init__(self, source: Source) -> None:
        self._last = b""
        self._task = asyncio.get_running_loop().create_task(self._listen(source))

    async def _listen(self, source: Source) -> None:
        with suppress(asyncssh.Error, OSError):
            while data := await source.read(READ):
                lines = [line for line in (self._last + data)[-2_000:].split(b"\n") if line.strip()]
                self._last = lines[-1] if lines else b""

    async def end(self, patience_s: float) -> str:
        """Wait up to `patience_s` seconds until the program has closed stderr, then return its last line."""
        await asyncio.wait([self._task], timeout=patience_s)
        self._task.cancel()
        return self.now()

    def now(self) -> str:
        """Return the last line that has arrived; empty if none has arrived."""
        return printable(self._last.decode("utf-8", "replace").strip(), 500)
