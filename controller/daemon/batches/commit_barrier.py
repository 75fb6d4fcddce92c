"""Lets readers wait while the engine's state has changes that are not on disk."""

from __future__ import annotations

import asyncio


class CommitBarrier:
    """A barrier that is closed while a batch of inputs is processed, and open otherwise."""

    def __init__(self) -> None:
        self._closed = False
        self._waiting: list[asyncio.Future[None]] = []

    def close(self) -> None:
        self._closed = True

    def open(self) -> None:
        """Open the barrier, and wake all callers of wait()."""
        self._closed = False
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self) -> None:
        """Wait until the barrier is open. If it was closed again in the meantime, continue to wait."""
        while self._closed:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
