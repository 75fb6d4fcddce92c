"""The paths that jobs wait for: looked for as long as somebody does, because file systems tell nobody."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress


class DataWatch:
    """Looks for wanted paths every so often, beside the loop, and not at all while none is wanted."""

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

    def wake(self) -> None:
        """Something was decided: begin to look if there is something to look for."""
        if (self._task is None or self._task.done()) and self._wanted():
            self._task = asyncio.create_task(self._look())

    def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

    async def _look(self) -> None:
        while wanted := self._wanted():
            for path in await _beside(lambda wanted=wanted: there(wanted, self._roots)):  # type: ignore[misc]
                self._found(path)
            await asyncio.sleep(self._every_s)


def there(paths: Iterable[str], roots: Iterable[str]) -> list[str]:
    """Those of the paths that exist and really lie below one of the roots, links followed."""
    real_roots = [os.path.realpath(root).rstrip("/") + "/" for root in roots]
    found = []
    for path in paths:
        real = os.path.realpath(path)
        if any(real.startswith(root) for root in real_roots) and os.path.exists(real):
            found.append(path)
    return found


async def _beside(work: Callable[[], list[str]]) -> list[str]:
    """Run it in a thread of its own: a dead network drive must hold up nothing, not even our end."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def tell(found: list[str]) -> None:
        if not answer.done():
            answer.set_result(found)

    def run() -> None:
        found = work()
        with suppress(RuntimeError):  # the loop is closed, and nobody wants to know any more
            loop.call_soon_threadsafe(tell, found)

    threading.Thread(target=run, daemon=True, name="data-watch").start()
    return await answer
