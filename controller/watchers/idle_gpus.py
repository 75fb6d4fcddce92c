"""Finds running jobs whose GPUs are idle, by the readings of agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from controller.core.model import inputs
from controller.core.model.inputs import Input
from controller.core.model.job import Job
from wire.agent.frames import GpuSample
from wire.names import JobState

IDLE_PERCENT = 5
"""A GPU below this utilisation is idle. Agents report every change of at least this size."""
_LONGEST_S, _LEAST_S = 30.0, 0.1


class IdleGpuWatch:
    """Remembers since when each GPU is idle, and gives the engine `GpusIdle` and `GpusBusy`.

    A job is idle when all its GPUs have been idle for `after_s`. A GPU without a reading is neither
    idle nor busy.
    """

    def __init__(
        self, after_s: float, jobs: Callable[[], Iterable[Job]], tell: Callable[[Input], None]
    ) -> None:
        self.since: dict[str, dict[str, float]] = {}
        """When each idle GPU became idle, by node and UUID."""
        self._busy: dict[str, set[str]] = {}
        self._after_s = after_s
        self._jobs = jobs
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None

    def read(self, node: str, samples: Iterable[GpuSample], now: float) -> None:
        """Take the readings that have changed."""
        idle, busy = self.since.setdefault(node, {}), self._busy.setdefault(node, set())
        for sample in samples:
            if sample.utilisation < IDLE_PERCENT:
                idle.setdefault(sample.uuid, now)
                busy.discard(sample.uuid)
            else:
                idle.pop(sample.uuid, None)
                busy.add(sample.uuid)

    def forget(self, node: str) -> None:
        """Drop the readings of a node whose link is lost or whose agent is new."""
        self.since.pop(node, None)
        self._busy.pop(node, None)

    def open(self, clock: Callable[[], float]) -> None:
        """Start checking, unless `after_s` is 0."""
        if self._after_s:
            self._look(clock)

    def reconfigure(self, after_s: float, clock: Callable[[], float]) -> None:
        """Use another limit from now on."""
        self.close()
        self._after_s = after_s
        self.open(clock)

    def close(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, clock: Callable[[], float]) -> None:
        for given in self.found(clock()):
            self._tell(given)
        pause = max(_LEAST_S, min(_LONGEST_S, self._after_s / 4))
        self._timer = asyncio.get_running_loop().call_later(pause, self._look, clock)

    def found(self, now: float) -> Iterator[Input]:
        """The inputs that are due now."""
        for job in self._jobs():
            if job.state is not JobState.RUNNING or job.stopping is not None or job.started_at is None:
                continue
            gpus = [(each.allocation.node, gpu.uuid) for each in job.running for gpu in each.allocation.gpus]
            if not gpus:
                continue
            idle = [self.since.get(node, {}).get(uuid) for node, uuid in gpus]
            since = max((at for at in idle if at is not None), default=now)
            if None not in idle and now - max(since, job.started_at) >= self._after_s:
                yield inputs.GpusIdle(job.id, job.attempt, max(since, job.started_at))
            elif job.idle_since is not None and any(uuid in self._busy.get(node, ()) for node, uuid in gpus):
                yield inputs.GpusBusy(job.id, job.attempt)
