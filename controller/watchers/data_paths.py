"""Checks at intervals whether the files and directories that jobs wait for (--after-data) exist.

The checks are repeated, because network file systems send no notifications about new files.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress


class DataPathWatch:
    """Checks every `every_s` seconds whether the paths that jobs wait for (--after-data) exist. Nothing is
    checked while no job waits for a path."""

    def __init__(
        self,
        roots: Sequence[str],
        every_s: float,
        wanted: Callable[[], list[str]],
        found: Callable[[str], None],
    ) -> None:
        self._roots = roots
        self._every_s = every_s
        self._wanted = wanted
        self._found = found
        self._task: asyncio.Task[None] | None = None

    def reconfigure(self, roots: Sequence[str], every_s: float) -> None:
        """Use other root directories and another interval from the next check on."""
        self._roots, self._every_s = roots, every_s

    def wake(self) -> None:
        """Start the checks if a job waits for a path and the checks do not run yet. The daemon calls this
        method after every batch of inputs."""
        if (self._task is None or self._task.done()) and self._wanted():
            self._task = asyncio.create_task(self._check_until_found())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _check_until_found(self) -> None:
        while wanted := self._wanted():
            for path in await _in_thread(lambda wanted=wanted: existing_paths(wanted, self._roots)):  # type: ignore[misc]
                self._found(path)
            await asyncio.sleep(self._every_s)


def existing_paths(paths: Iterable[str], roots: Iterable[str]) -> list[str]:
    """Return those of `paths` that exist and are below one of the directories `roots`. Symbolic links are
    resolved before the comparison.
    """
    real_roots = [os.path.realpath(root).rstrip("/") + "/" for root in roots]
    found = []
    for path in paths:
        real = os.path.realpath(path)
        if any(real.startswith(root) for root in real_roots) and os.path.exists(real):
            found.append(path)
    return found


async def _in_thread(work: Callable[[], list[str]]) -> list[str]:
    """Call `work` in a daemon thread, and return its result. If a network file system does not answer,
    neither the event loop nor the exit of the controller is blocked.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def tell(found: list[str]) -> None:
        if not answer.done():
            answer.set_result(found)

    def run() -> None:
        found = work()
        # Ignore the RuntimeError that is raised if the event loop was closed while the thread checked the
        # path.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, found)

    threading.Thread(target=run, daemon=True, name="data-watch").start()
    return await answer
