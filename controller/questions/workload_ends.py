"""Forecasts when the jobs of workloads and arrays will have ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping

from controller.core.forecast.forecast import forecast, with_run_times
from controller.core.model.job import NEVER, Job
from controller.questions.engine_copy import EngineCopy, QuestionRefused
from wire.names import JobState

EVERY_S = 30.0
"""A forecast is used for at least this many seconds, and for at least ten times as long as its computation
took."""
Group = tuple[str, int]
"""Names a workload as ("workload", id), or an array as ("array", id)."""
NOT_KNOWN: Mapping[Group, float] = {}


def workload_ends(engine_copy: EngineCopy) -> Iterator[dict[Group, float]]:
    """Yield the expected end of each workload, and of each array outside of workloads, with waiting or
    running jobs. A workload or array is left out if one of its jobs may run forever or does not start in the
    forecast.

    The forecast uses predicted run times where they are known, and time limits otherwise.
    """
    ahead = with_run_times(engine_copy.engine, predicted=True)
    ahead.state.estimates = ahead.state.estimates.read_only()
    live = {job.id: group for job in ahead.state.live() if (group := group_of(job)) is not None}

    def going(_moment: float, starts: Container[int]) -> bool:
        return engine_copy.in_time and any(
            ahead.state.jobs[job].state is JobState.QUEUED and job not in starts for job in live
        )

    ends = forecast(ahead, engine_copy.now, going=going).ends
    found: dict[Group, float] = {}
    for number, group in live.items():
        job = ahead.state.jobs.get(number)
        running = job is not None and not job.state.terminal
        end = job.expected_end if job is not None and running else ends.get(number, NEVER)
        found[group] = max(end, found.get(group, 0.0))
    yield {group: end for group, end in found.items() if end < NEVER}


def group_of(job: Job) -> Group | None:
    """Return the workload of a job, or else the array of the job; None if the job belongs to neither."""
    if job.workload is not None:
        return "workload", job.workload
    return ("array", job.array) if job.array is not None else None


class WorkloadEnds:
    """Keeps the last forecast of the ends of workloads and arrays, because many clients ask for it.

    1. `known` returns the last forecast, and starts a new forecast in the background if the last one is too
       old.
    2. `fresh` waits for a forecast that was made after the last change of the workload.
    """

    def __init__(self, ask: Callable[[], Awaitable[dict[Group, float] | None]]) -> None:
        self._ask = ask
        self._ends: Mapping[Group, float] = NOT_KNOWN
        self._until = 0.0
        self._task: asyncio.Task[Mapping[Group, float]] | None = None

    def known(self) -> Mapping[Group, float]:
        """Return the expected ends of workloads and arrays from the last forecast."""
        if time.monotonic() >= self._until and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self.fresh())
        return self._ends

    async def fresh(self) -> Mapping[Group, float]:
        """Return the expected ends of workloads from a new forecast. If the new forecast is not ready in
        time, return the ends from the last forecast."""
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
