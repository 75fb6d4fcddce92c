"""Which jobs let their GPUs do nothing, by the readings of agents; looked at now and then, as time passes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from controller.core import inputs
from controller.core.inputs import Input
from controller.core.jobs import Job
from wire.frames import GpuSample
from wire.words import JobState

IDLE_PERCENT = 5
"""Below this utilisation a GPU does nothing: agents tell every change by as much."""
_LONGEST_S, _LEAST_S = 30.0, 0.1


class IdleWatch:
    """Since when each GPU has been doing nothing worth the name, and who is to be told about it."""

    def __init__(
        self, after_s: float, jobs: Callable[[], Iterable[Job]], tell: Callable[[Input], None]
    ) -> None:
        self.since: dict[str, dict[str, float]] = {}
        """By node and UUID; what works, or was not heard of, is not in it."""
        self._busy: dict[str, set[str]] = {}
        self._after_s = after_s
        self._jobs = jobs
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None

    def read(self, node: str, samples: Iterable[GpuSample], now: float) -> None:
        """Readings that changed."""
        idle, busy = self.since.setdefault(node, {}), self._busy.setdefault(node, set())
        for sample in samples:
            if sample.utilisation < IDLE_PERCENT:
                idle.setdefault(sample.uuid, now)
                busy.discard(sample.uuid)
            else:
                idle.pop(sample.uuid, None)
                busy.add(sample.uuid)

    def forget(self, node: str) -> None:
        """What happens there nobody knows any more; its agent begins with all readings."""
        self.since.pop(node, None)
        self._busy.pop(node, None)

    def open(self, clock: Callable[[], float]) -> None:
        """Look from now on; never, if GPUs may idle for ever."""
        if self._after_s:
            self._look(clock)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self, clock: Callable[[], float]) -> None:
        for given in self.found(clock()):
            self._tell(given)
        pause = max(_LEAST_S, min(_LONGEST_S, self._after_s / 4))
        self._timer = asyncio.get_running_loop().call_later(pause, self._look, clock)

    def found(self, now: float) -> Iterator[Input]:
        """What the engine has to be told now."""
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
