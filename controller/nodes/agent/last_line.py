"""The last line that an agent or a login writes to stderr, for messages about what failed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol

import asyncssh

from wire.text import printable

READ = 1 << 20


class Source(Protocol):
    """The stderr of a process on this machine, or of an SSH channel."""

    async def read(self, n: int = -1) -> bytes:
        """The next bytes; empty at the end."""


class LastLine:
    """Keeps the last line of stderr. Reads to the end, because a full pipe would block the writer."""

    def __init__(self, source: Source) -> None:
        self._last = b""
        self._task = asyncio.get_running_loop().create_task(self._listen(source))

    async def _listen(self, source: Source) -> None:
        with suppress(asyncssh.Error, OSError):
            while data := await source.read(READ):
                lines = [line for line in (self._last + data)[-2_000:].split(b"\n") if line.strip()]
                self._last = lines[-1] if lines else b""

    async def end(self, patience_s: float) -> str:
        """The last line, after the writer has ended or `patience_s` has passed."""
        await asyncio.wait([self._task], timeout=patience_s)
        self._task.cancel()
        return self.now()

    def now(self) -> str:
        """The last line until now."""
        return printable(self._last.decode("utf-8", "replace").strip(), 500)
