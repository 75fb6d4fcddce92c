"""Forecasts when the jobs of workloads will have ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping

from controller.core.engine import Engine
from controller.core.forecast.forecast import forecast, with_run_times
from controller.core.model.job import NEVER
from controller.questions.engine_copy import EngineCopy, QuestionRefused
from wire.names import JobState

EVERY_S = 30.0
"""A forecast is used for this many seconds, and for ten times as long as it took to compute."""
NOT_KNOWN: Mapping[int, float] = {}


def workload_ends(engine_copy: EngineCopy) -> Iterator[dict[int, float]]:
    """Yield the expected end of each workload that has jobs in the queue or running, by id. A workload is
    left out if a job of it may run forever, or was not started in the forecast.

    The forecast uses predicted run times where they are known, and time limits otherwise.
    """
    ahead = with_run_times(engine_copy.engine, predicted=True)
    ahead.state.estimates = ahead.state.estimates.read_only()
    live = {job.id: job.workload for job in ahead.state.live() if job.workload is not None}

    def going(_moment: float, starts: Container[int]) -> bool:
        return engine_copy.in_time and any(
            ahead.state.jobs[job].state is JobState.QUEUED and job not in starts for job in live
        )

    forecast(ahead, engine_copy.now, going=going)
    found = {number: _end(ahead, number) for number in dict.fromkeys(live.values())}
    yield {number: end for number, end in found.items() if end < NEVER}


def _end(ahead: Engine, number: int) -> float:
    """Return the end of a workload in the engine after a forecast; NEVER if it is not known."""
    workload = ahead.state.workloads.by_id[number]
    ends = [workload.last_end or 0.0]
    for task in workload.tasks.values():
        jobs = (ahead.state.jobs.get(job) for job in task.ids())
        ends += [job.expected_end for job in jobs if job is not None and not job.state.terminal]
    return max(ends)


class WorkloadEnds:
    """Keeps the last forecast of the ends of workloads, because many clients ask for it again and again.

    1. `known` returns the last forecast, and starts another one in the background if the last one is too old.
    2. `fresh` waits for a forecast that was made after the last change of the workload.
    """

    def __init__(self, ask: Callable[[], Awaitable[dict[int, float] | None]]) -> None:
        self._ask = ask
        self._ends: Mapping[int, float] = NOT_KNOWN
        self._until = 0.0
        self._task: asyncio.Task[Mapping[int, float]] | None = None

    def known(self) -> Mapping[int, float]:
        """Return the expected ends of workloads, as far as they are known now."""
        if time.monotonic() >= self._until and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self.fresh())
        return self._ends

    async def fresh(self) -> Mapping[int, float]:
        """Return the expected ends of workloads from a new forecast. If there is no answer in time, return
        those of the last forecast.
        """
        began = time.monotonic()
        try:
            found = await self._ask()
        except QuestionRefused:
            found = None
        if found is not None:
            self._ends = found
        took = time.monotonic() - began
        self._until = began + took + max(EVERY_S, 10 * took)
        return self._ends
