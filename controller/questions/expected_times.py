"""Forecasts when waiting jobs start, and when the jobs of workloads and arrays will have ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from controller.core.forecast.forecast import forecast, with_run_times
from controller.core.model.job import NEVER, Job
from controller.questions.engine_copy.engine_copy import EngineCopy, QuestionRefused
from wire.names import JobState

EVERY_S = 5.0
"""A forecast is used for at least this many seconds, and for at least 20 times as long as its computation
took.
"""
STARTS = 200
"""The forecast continues at least until it has the starts of this many jobs, even if no job of a workload or
array waits.
"""
PATIENCE_S = 0.2
"""Seconds. If the last forecast is too old, `recent` waits at most this long for a new one."""
Group = tuple[str, int]
"""A workload as ("workload", id), or an array as ("array", id)."""


@dataclass(frozen=True)
class Times:
    """What a forecast has found: expected starts of waiting jobs, and the expected end of each workload and
    array.
    """

    starts: Mapping[int, float] = field(default_factory=dict)
    ends: Mapping[Group, float] = field(default_factory=dict)


def expected_times(engine_copy: EngineCopy) -> Iterator[Times]:
    """Yield the expected starts of the waiting jobs that start first, and the expected ends of workloads and
    arrays with waiting or running jobs. An array that belongs to a workload has no end of its own. A workload
    or array is left out if one of its jobs may run forever or does not start in the forecast.

    In the forecast, jobs with a prediction end after the predicted run time, and all other jobs at their time
    limits.
    """
    ahead = with_run_times(engine_copy.engine, predicted=True)
    ahead.state.estimates = ahead.state.estimates.read_only()
    live = {job.id: group for job in ahead.state.live() if (group := group_of(job)) is not None}

    def going(_moment: float, starts: Collection[int]) -> bool:
        return engine_copy.in_time and (len(starts) < STARTS or _waits(starts))

    def _waits(starts: Collection[int]) -> bool:
        return any(ahead.state.jobs[job].state is JobState.QUEUED and job not in starts for job in live)

    found = forecast(ahead, engine_copy.now, going=going)
    ends: dict[Group, float] = {}
    for number, group in live.items():
        job = ahead.state.jobs.get(number)
        running = job is not None and not job.state.terminal
        end = job.expected_end if job is not None and running else found.ends.get(number, NEVER)
        ends[group] = max(end, ends.get(group, 0.0))
    yield Times(
        {number: start.at for number, start in found.starts.items()},
        {group: end for group, end in ends.items() if end < NEVER},
    )


def group_of(job: Job) -> Group | None:
    """Return the workload of a job. If the job belongs to no workload, return its array, or None without an
    array.
    """
    if job.workload is not None:
        return "workload", job.workload
    return ("array", job.array) if job.array is not None else None


class ExpectedTimes:
    """Keeps the last forecast, because many clients request these times.

    1. `known` returns the last forecast. If the last forecast is too old, a new forecast begins in the
       background.
    2. `recent` does the same, and waits up to `PATIENCE_S` for the new forecast.
    3. `fresh` begins a new forecast and waits for it.
    """

    def __init__(self, ask: Callable[[], Awaitable[Times | None]]) -> None:
        self._ask = ask
        self._times = Times()
        self._until = 0.0
        self._task: asyncio.Task[Times] | None = None

    def known(self) -> Times:
        """Return the times of the last forecast. Begin a new one in the background if it is too old."""
        if time.monotonic() >= self._until and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self.fresh())
        return self._times

    async def recent(self) -> Times:
        """Return the times of the last forecast. If that forecast is too old, wait up to PATIENCE_S seconds
        for a new one, and return the times of the new forecast if it is ready.
        """
        known = self.known()
        if self._task is None or self._task.done():
            return known
        await asyncio.wait((self._task,), timeout=PATIENCE_S)
        return self._times

    async def fresh(self) -> Times:
        """Return the times of a new forecast. If the new forecast is not ready in time, return the times of
        the last forecast.
        """
        began = time.monotonic()
        try:
            found = await self._ask()
        except QuestionRefused:
            found = None
        if found is not None:
            self._times = found
        took = time.monotonic() - began
        self._until = began + took + max(EVERY_S, 20 * took)
        return self._times
