"""Passes inputs to the engine at intervals, such as start estimates and orders to rebalance."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from controller.core.model.inputs.input import Input
from controller.store.errors import StoreUnavailable


class PeriodicInputs:
    """Calls the function `find` every `every_s` seconds. Passes the inputs that `find` returns to the engine,
    with the function `tell`. If `every_s` is 0, `find` is not called.

    If `find` raises StoreUnavailable because the store cannot be written, nothing is passed. Other errors are
    logged by the logger `corral.NAME`. In both cases, `find` is called again after `every_s` seconds.
    """

    def __init__(
        self,
        name: str,
        every_s: float,
        find: Callable[[], Awaitable[Iterable[Input]]],
        tell: Callable[[Input], None],
    ) -> None:
        self._log = logging.getLogger(f"corral.{name}")
        self._every_s = every_s
        self._find = find
        self._tell = tell
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Start calling `find` at intervals, unless `every_s` is 0."""
        if self._every_s:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def reconfigure(self, every_s: float) -> None:
        """Call `find` every `every_s` seconds from now on; never if `every_s` is 0."""
        if every_s != self._every_s:
            self.close()
            self._every_s = every_s
            self.open()

    def close(self) -> None:
        """Cancel the task that calls `find`. A call that has begun is cancelled too."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                for given in await self._find():
                    self._tell(given)
            except StoreUnavailable:
                continue
            except Exception:
                self._log.exception("looking for inputs failed; the next try is in %gs", self._every_s)
