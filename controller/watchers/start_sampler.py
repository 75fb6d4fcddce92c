"""Records start estimates at a fixed interval, so that `corral report starts` can compare them with actual
starts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from controller.core.model.inputs import Input

log = logging.getLogger("corral.starts")


class StartSampler:
    """Estimates the starts of a few waiting jobs at a fixed interval, and sends the estimates to the engine.

    1. Every `every_s` seconds, ask for the starts of the oldest waiting jobs without an estimate. The replica
       computes them like the answer to a question (`controller/questions/start_samples.py`), so submits are
       not delayed even by a long queue.
    2. Record the estimates in the answer (NoteStart). The engine scores each estimate when its job starts.

    A question such as `corral explain` records no estimate. With `every_s` = 0, no sample is taken.
    """

    def __init__(
        self,
        every_s: float,
        estimate: Callable[[], Awaitable[Iterable[Input]]],
        tell: Callable[[Input], None],
    ) -> None:
        self._every_s = every_s
        self._estimate = estimate
        self._tell = tell
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Start taking samples."""
        if self._every_s:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def reconfigure(self, every_s: float) -> None:
        """Take samples at another interval from now on."""
        if every_s != self._every_s:
            self.close()
            self._every_s = every_s
            self.open()

    def close(self) -> None:
        """Take no more samples."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                for note in await self._estimate():
                    self._tell(note)
            except Exception:
                log.exception("a sample of start estimates failed; the next one is in %gs", self._every_s)
