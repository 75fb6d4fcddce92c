"""Stores the output of Pods that are being deleted, because a node removes the output with the container."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

from controller.engines.contract import EngineUnavailable

MOST_BYTES = 64 * 1024 * 1024
"""The most bytes that are kept of one output."""
OPEN_S = 1.0
"""The most seconds for which a deletion waits until the output is being read."""


class KeptLogs:
    """The output of Pods that end by a deletion, in one file for each Pod.

    1. Before a deletion, `keep` begins to read the output of the Pod into a file, and follows it until the
       container has ended. So the file also has the lines that the program writes after SIGTERM.
    2. `read` waits for the end of the reading, and yields the file.
    3. `forget` deletes the file after Corral has stored the output.

    A further `keep` has no effect if the output is stored, or is being stored. If the controller restarts
    before the output is stored, `keep` reads it again from its first byte, provided that the container still
    exists.
    """

    def __init__(self, directory: Path, output: Callable[[str], AsyncIterator[bytes]]) -> None:
        """`output` yields the output of a foreign job until its container has ended."""
        self._directory = directory
        self._output = output
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def keep(self, ref: str) -> None:
        """Begin to store the output of a Pod. Return when the API server has begun to answer, or after
        OPEN_S, because some nodes do not answer before the program has written its first byte.
        """
        if self.has(ref):
            return
        opened = asyncio.Event()
        task = self._tasks[ref] = asyncio.get_running_loop().create_task(self._store(ref, opened))
        task.add_done_callback(lambda _: opened.set())
        with suppress(TimeoutError):
            async with asyncio.timeout(OPEN_S):
                await opened.wait()

    async def read(self, ref: str) -> AsyncIterator[bytes]:
        """Yield the stored output of a Pod; nothing if none was stored."""
        task = self._tasks.get(ref)
        if task is not None:
            await asyncio.wait([task])
        with suppress(FileNotFoundError):
            yield await asyncio.to_thread(self._path(ref).read_bytes)

    def has(self, ref: str) -> bool:
        """Return whether output of this Pod is stored, or is being stored."""
        task = self._tasks.get(ref)
        return (task is not None and not task.done()) or self._path(ref).exists()

    async def forget(self, ref: str) -> None:
        """Delete the stored output of a Pod."""
        task = self._tasks.pop(ref, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await asyncio.to_thread(self._path(ref).unlink, missing_ok=True)

    async def close(self) -> None:
        """Stop all reading. Complete files stay."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    async def _store(self, ref: str, opened: asyncio.Event) -> None:
        path, size = self._path(ref), 0
        path.parent.mkdir(mode=0o700, exist_ok=True)
        partial = path.with_name(f".{path.name}")
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        # If the API server fails, stop reading, and keep the output that has arrived.
        with open(descriptor, "wb") as file, suppress(EngineUnavailable):
            async for piece in self._output(ref):
                opened.set()
                await asyncio.to_thread(file.write, piece[: MOST_BYTES - size])
                size += len(piece)
                if size >= MOST_BYTES:
                    break
        if size:
            partial.replace(path)
        else:
            partial.unlink()

    def _path(self, ref: str) -> Path:
        return self._directory / ref.replace("/", "+")
