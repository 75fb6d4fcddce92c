"""Takes a sample of start estimates at a fixed interval, so that `corral report starts` can score them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from controller.core.engine import Engine
from controller.core.forecast.forecast import fork
from controller.core.forecast.start_samples import jobs_to_sample, start_estimates
from controller.core.model.inputs import Input

log = logging.getLogger("corral.starts")


class StartSampler:
    """Estimates the starts of a few waiting jobs every so often, and hands the estimates in as inputs.

    1. Every `every_s` seconds take the oldest waiting jobs that have no estimate yet.
    2. Copy the engine, and make one forecast for all of them beside the event loop.
    3. Record what it says (NoteStart). The engine scores each estimate when its job starts.

    A question such as `corral explain` records nothing. With `every_s` = 0 no sample is ever taken.
    """

    def __init__(
        self,
        every_s: float,
        engine: Callable[[], Engine],
        clock: Callable[[], float],
        tell: Callable[[Input], None],
    ) -> None:
        self._every_s = every_s
        self._engine = engine
        self._clock = clock
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
                await self._sample()
            except Exception:
                log.exception("a sample of start estimates failed; the next one is in %gs", self._every_s)

    async def _sample(self) -> None:
        engine, now = self._engine(), self._clock()
        jobs = [job.id for job in jobs_to_sample(engine.state)]
        if jobs:
            for note in await asyncio.to_thread(start_estimates, fork(engine), jobs, now):
                self._tell(note)
