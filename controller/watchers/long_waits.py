"""Searches every minute for jobs that have waited much longer than usual, and reports these jobs to the
engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from controller.core.model.inputs import Input
from controller.store.errors import StoreUnavailable

EVERY_S = 60.0
"""Seconds between two searches."""

log = logging.getLogger("corral.waits")


class LongWaitWatch:
    """Calls `find` every EVERY_S seconds. `find` returns inputs about jobs that have waited too long, and
    `tell` passes the inputs to the engine.

    If `find` raises StoreUnavailable because the store cannot be written, nothing is passed.
    """

    def __init__(
        self,
        find: Callable[[], Awaitable[Iterable[Input]]],
        tell: Callable[[Input], None],
    ) -> None:
        self._find = find
        self._tell = tell
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Start calling `find` every EVERY_S seconds."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Stop calling `find`."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                for each in await self._find():
                    self._tell(each)
            except StoreUnavailable:
                continue
            except Exception:
                log.exception("looking for long waits failed; the next try is in %gs", EVERY_S)
