"""Watches the controller itself: overdue scheduling cycles, long commits, and a blocked event loop."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from controller.watchers.counters import ControllerCounters
from wire.text import duration

EVERY_S = 1.0
KEPT = 60
"""The number of kept lags: those of the last minute."""
CYCLE_OVERDUE_S, COMMIT_S, LAG_S = 30.0, 10.0, 5.0
"""Above these limits, a figure is an alarm. A cycle over the longest measured queues takes a second."""


class SelfWatch:
    """Measures every second whether the controller does its work in time.

    1. The lag of the event loop: the time by which this task wakes too late. The largest lag of the last
       minute counts, because the task cannot run while the loop is blocked.
    2. An overdue cycle: the time since which a scheduling cycle is due although no cycle has run.
    3. The age of a commit that has begun and is not on disk yet.

    Invariant: the figures never influence a decision. Example: the disk does not answer for 25 s. The commit
    is an alarm after 10 s. Cycles count as due only after it, so no cycle is overdue.
    """

    def __init__(self, counters: ControllerCounters, is_cycle_due: Callable[[], bool]) -> None:
        self._counters = counters
        self._is_cycle_due = is_cycle_due
        self._lags: deque[float] = deque(maxlen=KEPT)
        self._due_since: float | None = None
        """The time (monotonic clock) since which a cycle is due; None if none is."""
        self._cycles_before = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def lag_s(self) -> float:
        """Return the largest lag of the event loop in the last minute, in seconds."""
        return max(self._lags, default=0.0)

    @property
    def cycle_overdue_s(self) -> float:
        """Return the seconds since which a cycle is due; 0 if none is."""
        return 0.0 if self._due_since is None else time.monotonic() - self._due_since

    @property
    def commit_age_s(self) -> float:
        """Return the seconds for which the present commit has taken; 0 if there is none."""
        began = self._counters.commit_began
        return 0.0 if began is None else time.monotonic() - began

    @property
    def stuck(self) -> str:
        """Return the reason why the controller makes no progress; empty if it does."""
        if self.commit_age_s > COMMIT_S:
            return f"a commit to the store has taken {duration(self.commit_age_s)} and is not done"
        if self.cycle_overdue_s > CYCLE_OVERDUE_S:
            return f"a scheduling cycle is due since {duration(self.cycle_overdue_s)}, and none has run"
        return ""

    @property
    def alarms(self) -> tuple[str, ...]:
        """Return all alarms as sentences."""
        lag = f"the controller did not react for {duration(self.lag_s)} within the last minute"
        return (*filter(None, [self.stuck]), *([lag] if self.lag_s > LAG_S else []))

    def open(self) -> None:
        """Begin to measure."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Stop measuring."""
        if self._task is not None:
            self._task.cancel()

    def measure(self, lag_s: float) -> None:
        """Record one lag of the event loop, and whether a cycle is due."""
        self._lags.append(max(0.0, lag_s))
        cycles = sum(self._counters.cycles.counts)
        if not self._is_cycle_due() or cycles != self._cycles_before:
            self._due_since = None
        elif self._due_since is None:
            self._due_since = time.monotonic()
        self._cycles_before = cycles

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(EVERY_S)
            self.measure(time.monotonic() - began - EVERY_S)
