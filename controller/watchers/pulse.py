"""Samples figures of the cluster (GPUs, load, power, queue, starts, waits) every second, and keeps the
samples in memory for graphs."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from controller.core.accounting.wait_histogram import Waits, bin_of, quantile
from controller.core.engine import Engine
from controller.core.model.events.attempts import JobEnded, JobPlaced
from controller.core.model.events.event import Event
from controller.core.model.job import NEVER
from controller.core.rebalance.proposals import free_gpu_layout
from controller.core.state.state import State
from controller.store.errors import StoreUnavailable
from controller.watchers.gpu_loads import GpuLoads
from wire.agent.reports import GpuSample
from wire.api.service.cluster import PulseSample
from wire.names import WHOLE_GPU, JobState

EVERY_S, MINUTE_S, HOUR_S = 1.0, 60.0, 3_600.0
SECONDS_KEPT, MINUTES_KEPT = 600, 1_440
"""The number of kept samples: one for each of the last 600 seconds, and one for each of the last 1,440
minutes."""
LONGEST_COMMIT_S = 5.0
"""After this many seconds in which the state is not on disk, no sample is taken."""
QUEUE_PART = 0.02
"""The largest fraction of the controller's time that may be spent on counting the GPU-hours of the waiting
jobs."""

Readings = Mapping[str, Mapping[str, GpuSample]]

log = logging.getLogger("corral.pulse")


@dataclass(slots=True)
class _Minute:
    """For one minute: the number of jobs that started for the first time, the number of jobs that failed, and
    the waits of the started jobs.
    """

    number: int
    started: int = 0
    failed: int = 0
    waits: Waits = field(default_factory=Counter)


class Pulse:
    """Keeps samples of the cluster's figures in two rings (lists of the newest samples): one by second, one
    by minute.

    1. `observe` adds the starts and failures of each commit to the counts of its minute. The counts of the
       last hour are kept.
    2. Every second, `sample` reads the other figures from the state. The sample is added to the ring of
       seconds, and passed to `publish`.
    3. When a minute is over, one sample with the means of the minute's samples is added to the ring of
       minutes.
    4. Every 10 seconds, the load of each GPU is added to `gpu_loads`.
    5. While the store cannot be written, no samples are taken, because the engine's state is then not on
       disk. Only alarms about the controller itself are published.

    The rings are not stored. After a restart, the rings are empty, so graphs show a gap.

    Invariant: the figures never influence a decision. Cost: O(GPUs) for a sample. Counting the GPU-hours of
    the waiting jobs costs O(waiting jobs), so the count is repeated at intervals and takes at most the
    fraction QUEUE_PART of the time. Memory: at most SECONDS_KEPT + MINUTES_KEPT samples of about 200 bytes,
    60 histograms, and the rings of GpuLoads.
    """

    def __init__(
        self,
        engine: Callable[[], Engine],
        readings: Callable[[], Readings],
        clock: Callable[[], float],
        settled: Callable[[], Awaitable[None]],
        publish: Callable[[PulseSample], None],
        alarms: Callable[[], tuple[str, ...]] = lambda: (),
    ) -> None:
        self.seconds: deque[PulseSample] = deque(maxlen=SECONDS_KEPT)
        self.minutes: deque[PulseSample] = deque(maxlen=MINUTES_KEPT)
        self.gpu_loads = GpuLoads()
        self._engine = engine
        self._readings = readings
        self._clock = clock
        self._settled = settled
        self._publish = publish
        self._alarms = alarms
        self._hour: deque[_Minute] = deque()
        self._present: list[PulseSample] = []
        """The samples of the present minute."""
        self._queued_gpu_hours = 0.0
        self._count_queue_at = 0.0
        """The earliest time (monotonic clock) of the next count of the waiting jobs' GPU-hours."""
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Start taking a sample every second."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Stop taking samples."""
        if self._task is not None:
            self._task.cancel()

    def observe(self, state: State, happened: Iterable[Event]) -> None:
        """Count the first start of each job, and each job that fails, among the events of a commit."""
        for event in happened:
            if isinstance(event, JobPlaced) and event.attempt == 1:
                minute = self._minute(event.at)
                job = state.jobs.get(event.job)
                minute.started += 1
                if job is not None:
                    minute.waits[bin_of(max(0.0, event.at - job.ready_at))] += 1
            elif isinstance(event, JobEnded) and event.state is JobState.FAILED:
                self._minute(event.at).failed += 1

    def sample(self, now: float) -> PulseSample:
        """Return the figures of the cluster at the time `now`."""
        engine = self._engine()
        state = engine.state
        hour = [each for each in self._hour if each.number > now // MINUTE_S - 60]
        waits: Waits = Counter()
        for minute in hour:
            waits.update(minute.waits)
        columns = state.nodes.columns
        held = sum(gpu.milli for node in state.nodes for part in node.held.values() for gpu in part.gpus)
        load, power_w = _load(state, self._readings())
        return PulseSample(
            now,
            int(columns.gpu_count.sum()),
            held / WHOLE_GPU,
            load,
            power_w,
            len(state.queue),
            self._gpu_hours_waiting(engine),
            sum(each.started for each in hour),
            sum(each.failed for each in hour),
            quantile(waits, 0.5),
            quantile(waits, 0.9),
            round(free_gpu_layout(columns).fragmentation, 4),
            self._alarms(),
        )

    def add(self, sample: PulseSample) -> None:
        """Add a sample to the ring of seconds. If it is the first sample of a minute, also add the mean of
        the previous minute to the ring of minutes.
        """
        self.seconds.append(sample)
        if self._present and sample.at // MINUTE_S != self._present[0].at // MINUTE_S:
            self.minutes.append(_mean(self._present))
            self._present.clear()
        self._present.append(sample)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S - time.time() % EVERY_S)
            try:
                async with asyncio.timeout(LONGEST_COMMIT_S):
                    await self._settled()
                sample = self.sample(self._clock())
                self.gpu_loads.add(sample.at, self._engine().state, self._readings())
            except (StoreUnavailable, TimeoutError):
                # Send the alarms with the figures of the last sample, because the present state is not on
                # disk.
                if self.seconds and (alarms := self._alarms()):
                    self._publish(replace(self.seconds[-1], at=self._clock(), alarms=alarms))
                continue
            except Exception:
                log.exception("a sample of the cluster's figures failed; the next one is in %gs", EVERY_S)
                continue
            self.add(sample)
            self._publish(sample)

    def _minute(self, at: float) -> _Minute:
        """Return the counts of the minute that contains `at`. Delete counts that are older than an hour."""
        number = int(at // MINUTE_S)
        if not self._hour or self._hour[-1].number < number:
            self._hour.append(_Minute(number))
        while self._hour[0].number <= number - 60:
            self._hour.popleft()
        return self._hour[-1]

    def _gpu_hours_waiting(self, engine: Engine) -> float:
        """Return the GPU-hours of the waiting jobs: the sum of GPUs * time limit in hours. A job without a
        time limit counts with `[jobs] default_time_limit_s`, or with 0 hours if that key is not set. Between
        two counts, return the result of the last count.
        """
        began = time.monotonic()
        if began < self._count_queue_at:
            return self._queued_gpu_hours
        state, default_s, total = engine.state, engine.pipeline.estimating.default_s, 0.0
        for lane in state.queue:
            for _, number in lane:
                job = state.jobs[number]
                limit_s = job.limit if job.limit < NEVER else default_s
                if limit_s < NEVER:
                    total += float(job.spec.gpus) * limit_s
        self._queued_gpu_hours = round(total / HOUR_S, 3)
        ended = time.monotonic()
        self._count_queue_at = ended + (ended - began) / QUEUE_PART
        return self._queued_gpu_hours


def _load(state: State, readings: Readings) -> tuple[float | None, float | None]:
    """Return the mean utilisation of the measured GPUs in percent, and the sum of their power in watts; None
    if no GPU of a connected node is measured."""
    samples = [sample for node in state.nodes if node.up for sample in readings.get(node.name, {}).values()]
    if not samples:
        return None, None
    power_w = float(sum(each.power_w for each in samples))
    return round(sum(each.utilisation for each in samples) / len(samples), 2), power_w


def _mean(samples: Sequence[PulseSample]) -> PulseSample:
    """Return one sample with the mean of each figure and the time of the first of these samples. Values that
    are None are left out of the means."""
    means: dict[str, Any] = {}
    for each in fields(PulseSample):
        if each.name == "alarms":
            continue
        known = [value for sample in samples if (value := getattr(sample, each.name)) is not None]
        means[each.name] = math.fsum(known) / len(known) if known else None
    return PulseSample(**{**means, "at": samples[0].at, "gpus": round(means["gpus"])})
