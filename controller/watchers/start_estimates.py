"""Records start estimates at intervals. `corral report starts` compares these estimates with the actual
starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from controller.core.model.inputs import Input

log = logging.getLogger("corral.starts")


class StartEstimateRecorder:
    """Estimates the starts of a few waiting jobs at intervals, and sends the estimates to the engine.

    1. Every `every_s` seconds, estimate in another process the starts of the oldest waiting jobs that have no
       estimate yet (`controller/questions/start_estimation.py`). Submits are thus not delayed.
    2. Send the estimates to the engine (NoteStart). When a job starts, the engine compares its start with the
       estimate.

    Only these estimates are recorded, not the starts that `corral explain` computes for users. If `every_s`
    is 0, nothing is estimated.
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
        """Start estimating at intervals, unless `every_s` is 0."""
        if self._every_s:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def reconfigure(self, every_s: float) -> None:
        """From now on, estimate the starts of jobs every `every_s` seconds."""
        if every_s != self._every_s:
            self.close()
            self._every_s = every_s
            self.open()

    def close(self) -> None:
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
