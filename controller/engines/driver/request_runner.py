"""Runs the requests to one execution engine in tasks, with a limit of their number and of their time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from controller.engines.contract import EngineUnavailable

MOST_REQUESTS = 8
"""The most requests about single foreign jobs that run at the same time."""

T = TypeVar("T")
log = logging.getLogger("corral.engines")


class RequestRunner:
    """The tasks with requests to one engine. At most MOST_REQUESTS run at the same time, and at most one for
    each key, such as the tag of an attempt.
    """

    def __init__(
        self, name: str, timeout_s: float, may_act: Callable[[], bool], ended: Callable[[], None]
    ) -> None:
        """`ended` is called after the end of each task."""
        self.name = name
        self._timeout_s = timeout_s
        self._may_act = may_act
        self._ended = ended
        self._busy: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._limit = asyncio.Semaphore(MOST_REQUESTS)

    def is_busy(self, key: str) -> bool:
        """Return whether a task with this key is under way."""
        return key in self._busy

    def run(
        self, key: str, work: Coroutine[Any, Any, None], failed: Callable[[str], None] | None = None
    ) -> None:
        """Run `work` in a task. Do nothing if a task with this key is under way. If `work` raises an
        exception, call `failed` with the reason, or log the reason.
        """
        if key in self._busy:
            work.close()
            return
        self._busy.add(key)
        task = asyncio.get_running_loop().create_task(self._run(key, work, failed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def answer(self, request: Coroutine[Any, Any, T]) -> T:
        """Return the answer to one request. Raise TimeoutError after `timeout_s`, and EngineUnavailable if
        another controller may lead.
        """
        if not self._may_act():
            request.close()
            raise EngineUnavailable("another controller may lead, so this controller makes no requests")
        async with asyncio.timeout(self._timeout_s):
            return await request

    def reason(self, error: Exception, what: str) -> str:
        """Return the reason of a failed request, as a sentence for operators."""
        if isinstance(error, TimeoutError):
            return f"no answer within {self._timeout_s:g} s"
        if isinstance(error, EngineUnavailable):
            return str(error)
        log.error("engine %s: %s failed", self.name, what, exc_info=error)
        return f"{type(error).__name__}: {error}"

    async def idle(self) -> None:
        """Wait until no task is under way. For tests."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Cancel all tasks, and wait for their ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(
        self, key: str, work: Coroutine[Any, Any, None], failed: Callable[[str], None] | None
    ) -> None:
        try:
            async with self._limit:
                await work
        except Exception as error:
            why = self.reason(error, "a request")
            if failed is not None:
                failed(why)
            else:
                log.warning("engine %s: %s: %s", self.name, key, why)
        finally:
            work.close()
            self._busy.discard(key)
            self._ended()
