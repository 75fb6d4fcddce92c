"""Finds running jobs whose GPUs are idle, from the mean utilisation that agents report."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterable, Iterator

from controller.core.lifecycle.idle_gpus import IdlePolicy
from controller.core.model.inputs import agent_inputs
from controller.core.model.inputs.input import Input
from controller.core.model.job import Job
from wire.agent.reports import GpuSample
from wire.names import JobState

IDLE_PERCENT = 5
"""A GPU with a mean utilisation below this percentage is idle. Agents report a reading at once if the
utilisation has crossed this percentage.
"""
_LONGEST_S, _LEAST_S = 30.0, 0.1
_DEFAULT_S = 1_800.0
"""The value of `window_s`, in seconds, if jobs are never flagged as idle (`idle_after_s` is 0). Idle times of
GPUs are then only shown.
"""
_SPANS = 48


class _Readings:
    """The utilisation of one GPU over the last `2 * window_s` seconds: a list of time spans, each with the
    mean utilisation in percent. The last time span continues until now.
    """

    __slots__ = ("percents", "starts")

    def __init__(self) -> None:
        # Use arrays to save memory, because each GPU of the cluster has up to _SPANS numbers in each list.
        self.starts, self.percents = array("d"), array("d")

    def add(self, percent: float, now: float, window_s: float) -> None:
        """Record that the GPU has the utilisation `percent` from the time `now` on. Drop the time spans that
        ended more than `2 * window_s` seconds ago.
        """
        starts, percents = self.starts, self.percents
        if starts and (percents[-1] == percent or now <= starts[-1]):
            percents[-1] = percent
            return
        starts.append(now)
        percents.append(percent)
        while len(starts) > 1 and starts[1] <= now - 2 * window_s:
            del starts[0], percents[0]
        if len(starts) > _SPANS:
            self._merge_older()

    def _merge_older(self) -> None:
        """Merge older time spans in pairs, so that half of their number remains."""
        starts, percents = self.starts, self.percents
        # The index increases by 1 and not by 2, because each step merges the spans `at` and `at + 1` into one
        # span.
        for at in range(_SPANS // 4):
            first, second, end = starts[at], starts[at + 1], starts[at + 2]
            percents[at] = (percents[at] * (second - first) + percents[at + 1] * (end - second)) / (
                end - first
            )
            del starts[at + 1], percents[at + 1]

    def _backwards(self) -> Iterator[tuple[float, float]]:
        return zip(reversed(self.starts), reversed(self.percents), strict=True)

    def mean(self, since: float, now: float) -> float:
        """Return the mean utilisation in percent from the time `since` to the time `now`. If the first
        measurement is later than `since`, the mean begins at this measurement.
        """
        work, end = 0.0, now
        for start, percent in self._backwards():
            work += percent * max(0.0, end - max(start, since))
            end = max(start, since)
            if start <= since:
                break
        return work / (now - end) if now > end else self.percents[-1]

    def idle_since(self, begun: float, now: float) -> float | None:
        """Return the time since which the GPU is idle, but not a time before `begun`. Return None if the GPU
        is not idle.

        The result is the begin of the longest time span up to now in which both the mean utilisation and the
        first measurement are below IDLE_PERCENT.
        """
        work, end, found = 0.0, now, None
        for start, percent in self._backwards():
            work += percent * max(0.0, end - max(start, begun))
            end = max(start, begun)
            if percent < IDLE_PERCENT and work <= IDLE_PERCENT * (now - end):
                found = end
            if start <= begun:
                break
        return found


class IdleGpuWatch:
    """Finds since when GPUs are idle, and sends the inputs `GpusIdle` and `GpusBusy` to the engine.

    `after_s` is the idle time in seconds after which a job counts as idle; each queue may have another value.

    1. A time span is idle if its mean utilisation and its first measurement are below IDLE_PERCENT. A GPU is
       idle since the begin of the longest idle span that ends now. Spans begin at most 2 * `after_s` ago.
    2. A GPU is busy, and thus not idle, if its mean utilisation over the last `after_s` / 3 seconds is at
       least IDLE_PERCENT.
    3. A job is flagged as idle when all its GPUs have been idle for `after_s` seconds. Time before its start
       does not count.
    4. The flag is removed when one of the job's GPUs is busy.

    A GPU without a measurement is neither idle nor busy.
    Cost: at most _SPANS steps for each GPU. For a busy job, only one of its GPUs is checked.

    Example: `after_s` is 1,800. A job that computes for 20 s at 50 % every 10 minutes has a mean of 1.7 % and
    is flagged after half an hour. A job that computes for 20 s every 2 minutes has a mean of 8 % and is not
    flagged.
    """

    def __init__(
        self, idling: IdlePolicy, jobs: Callable[[], Iterable[Job]], tell: Callable[[Input], None]
    ) -> None:
        self._readings: dict[str, dict[str, _Readings]] = {}
        """The utilisation of each GPU, by node name and GPU UUID."""
        self._idling = idling
        self._jobs = jobs
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None

    @property
    def _window_s(self) -> float:
        return self._idling.after_s or _DEFAULT_S

    def read(self, node: str, samples: Iterable[GpuSample], now: float) -> None:
        known, longest_s = self._readings.setdefault(node, {}), self._idling.longest_s or _DEFAULT_S
        for sample in samples:
            known.setdefault(sample.uuid, _Readings()).add(sample.utilisation, now, longest_s)

    def forget(self, node: str) -> None:
        """Delete the measurements of a node after its connection was lost or a new agent has connected."""
        self._readings.pop(node, None)

    def since(self, node: str, now: float) -> dict[str, float]:
        """Return the begin of the idle time of each idle GPU of a node, by UUID."""
        found = {}
        for uuid, readings in self._readings.get(node, {}).items():
            since = self._idle_since(readings, 0.0, now, self._window_s)
            if since is not None:
                found[uuid] = since
        return found

    def open(self, clock: Callable[[], float]) -> None:
        """Start checking for idle jobs, unless `after_s` is 0 for all queues."""
        if self._idling.longest_s:
            self._check(clock)

    def reconfigure(self, idling: IdlePolicy, clock: Callable[[], float]) -> None:
        """Use other settings for idle GPUs from now on."""
        self.close()
        self._idling = idling
        self.open(clock)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self, clock: Callable[[], float]) -> None:
        for given in self.found(clock()):
            self._tell(given)
        idling = self._idling, *self._idling.of_queues.values()
        shortest_s = min(each.after_s for each in idling if each.after_s)
        pause = max(_LEAST_S, min(_LONGEST_S, shortest_s / 4))
        self._timer = asyncio.get_running_loop().call_later(pause, self._check, clock)

    def found(self, now: float) -> Iterator[Input]:
        """Yield an input for the engine for each job whose GPUs have been idle for `after_s` seconds, and for
        each flagged job with a busy GPU.
        """
        for job in self._jobs():
            if job.state is not JobState.RUNNING or job.stopping is not None or job.started_at is None:
                continue
            after_s = self._idling.of(job.spec.queue).after_s
            window_s = after_s or _DEFAULT_S
            since = self._job_idle_since(job, job.started_at, now, window_s) if after_s else None
            if since is not None and now - since >= after_s:
                yield agent_inputs.GpusIdle(job.id, job.attempt, since)
            elif job.idle_since is not None and self._is_busy(job, job.started_at, now, window_s):
                yield agent_inputs.GpusBusy(job.id, job.attempt)

    def _job_idle_since(self, job: Job, begun: float, now: float, window_s: float) -> float | None:
        """Return the time since which all GPUs of the job are idle; None if a GPU is not idle or has no
        measurement."""
        latest = None
        for member in job.running:
            known = self._readings.get(member.allocation.node, {})
            for gpu in member.allocation.gpus:
                readings = known.get(gpu.uuid)
                since = None if readings is None else self._idle_since(readings, begun, now, window_s)
                if since is None:
                    return None
                latest = since if latest is None else max(latest, since)
        return latest

    def _is_busy(self, job: Job, begun: float, now: float, window_s: float) -> bool:
        """Return whether at least one GPU of the job is busy."""
        return any(
            self._gpu_is_busy(readings, begun, now, window_s)
            for member in job.running
            for gpu in member.allocation.gpus
            if (readings := self._readings.get(member.allocation.node, {}).get(gpu.uuid)) is not None
        )

    def _idle_since(self, readings: _Readings, begun: float, now: float, window_s: float) -> float | None:
        return None if self._gpu_is_busy(readings, begun, now, window_s) else readings.idle_since(begun, now)

    def _gpu_is_busy(self, readings: _Readings, begun: float, now: float, window_s: float) -> bool:
        return readings.mean(max(begun, now - window_s / 3), now) >= IDLE_PERCENT
