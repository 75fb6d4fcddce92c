"""Decides from simulations of ended jobs whether backfill may use predicted run times."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from typing import Any

from controller.core.estimates.pool_backfill import PoolBackfill, PoolJob

HELD = 200
"""This many ended jobs are kept, and the one with the earliest submit is simulated next. Jobs do not end in
the order of their submits, but the simulation needs this order.
"""
BLOCK = 200
"""One comparison of the two simulations (a block) covers this many jobs."""
BLOCKS = 5
"""The decision depends on this many of the latest blocks."""
LOST_BLOCKS, WON_BLOCKS = 4, 3
"""If at least LOST_BLOCKS of the latest BLOCKS blocks are lost, backfill stops using predictions (see also
LEAST_LOSS). If at least WON_BLOCKS are won, backfill uses predictions again.
"""
NOTICEABLE = 0.01
"""A block is lost if the slowdown with predictions is higher than the slowdown with time limits by more than
this fraction, and won if it is lower by more than this fraction.
"""
LEAST_LOSS = 0.02
"""Backfill stops using predictions only if, over all latest blocks together, the slowdown with predictions is
higher than the slowdown with time limits by more than this fraction.
"""

SNAPSHOT = 200
"""The store gets the state of the simulations after each SNAPSHOT jobs, and a row for each job in between."""


class PredictionGuard:
    """Compares backfill by predictions with backfill by time limits, on the same jobs that have ended.

    Algorithm
    1. `learn`: keep the last HELD ended jobs, sorted by submit time. Simulate the first of them twice: with
       EASY backfill in queue order by time limits, and with backfill by the predictions that the jobs had at
       their starts (PoolBackfill). A job that ran so long that later jobs were simulated before it counts as
       submitted now.
    2. When a job has started in both simulations, add its two bounded slowdowns to the present block. A block
       has BLOCK jobs.
    3. Backfill stops using predictions when LOST_BLOCKS of the latest BLOCKS blocks are lost by more than
       NOTICEABLE, and all these blocks together by more than LEAST_LOSS. It uses predictions again when
       WON_BLOCKS of these blocks are won and all together are not lost. Both simulations always continue.

    One lost block does not decide: the slowdowns of 200 jobs depend on a few jobs with long waits, and each
    change between predictions and time limits delays jobs in a long queue.

    4. The store gets a row for each job that was given to `learn` (`rows`), and after each SNAPSHOT jobs the
       state of both simulations (`snapshot`). `load` restores the snapshot and gives the later rows to
       `learn` again, so that a restarted controller decides as if it had never ended.

    Invariant: the decision depends only on the jobs that have ended. Cost: that of two PoolBackfill.

    Example: in four of the last five blocks, jobs had mean slowdowns of 9.0 with time limits and 9.6 with
    predictions. In the fifth, the slowdowns were equal. Backfill then uses time limits, until the condition
    of step 3 for predictions holds.
    """

    def __init__(self, *, shortest_first: bool = True) -> None:
        self.learned = 0
        """The number of jobs that were given to `learn`."""
        self.rows: dict[int, list[Any]] = {}
        """The last SNAPSHOT calls of `learn`, as data for JSON: the number of the call, `units`, and the job.
        The key is the number of the call modulo SNAPSHOT.
        """
        self.trusted = True
        """True if backfill may use predictions."""
        self.blocks: deque[tuple[float, float]] = deque(maxlen=BLOCKS)
        """For each of the latest blocks: (sum of the slowdowns with time limits, sum of the slowdowns with
        predictions).
        """
        self.changed: dict[int | None, None] = {None: None}
        """The keys of the rows that the next commit must write to the store. None is the snapshot."""
        self.shortest_first = shortest_first
        self._held: list[PoolJob] = []
        self._by_limit = PoolBackfill(shortest_first=False)
        self._by_prediction = PoolBackfill(shortest_first=shortest_first)
        self._compared: deque[int] = deque()
        self._block = (0, 0.0, 0.0)
        self.snapshot = self._dump()
        """The state after the last multiple of SNAPSHOT jobs, as data for JSON."""

    def learn(self, job: PoolJob, predicted_s: float | None, units: float) -> None:
        """Add an ended job. `predicted_s` is the run time that was predicted at its start; None if there was
        no prediction. `units` is the present size of the cluster.
        """
        assumed_s = job.limit_s if predicted_s is None else predicted_s
        job = job._replace(assumed_s=assumed_s)
        self._add(job, units)
        key = self.learned % SNAPSHOT
        self.rows[key] = [self.learned, units, *job]
        self.changed[key] = None
        if key == 0:
            self.snapshot = self._dump()
            self.changed[None] = None

    def _add(self, job: PoolJob, units: float) -> None:
        """Hold the job back, and simulate the held job with the earliest submit (steps 1 to 3)."""
        self.learned += 1
        heapq.heappush(self._held, job)
        if len(self._held) <= HELD:
            return
        job = heapq.heappop(self._held)
        job = job._replace(submit_s=max(job.submit_s, self._by_limit.now))
        for pool, assumed_s in ((self._by_limit, job.limit_s), (self._by_prediction, job.assumed_s)):
            if pool.units != units:
                pool.resize(units)
            pool.add(job._replace(assumed_s=assumed_s))
        self._compared.append(job.number)
        self._compare()

    @property
    def ratio(self) -> float | None:
        """The slowdown with predictions divided by the slowdown with time limits, over the latest blocks.
        None before the first block is complete.
        """
        limits, predictions = map(sum, zip(*self.blocks, strict=True)) if self.blocks else (0.0, 0.0)
        return predictions / limits if limits else None

    def _dump(self) -> dict[str, Any]:
        return {
            "learned": self.learned,
            "trusted": self.trusted,
            "shortest_first": self.shortest_first,
            "blocks": [list(block) for block in self.blocks],
            "block": list(self._block),
            "held": sorted(self._held),
            "compared": list(self._compared),
            "by_limit": self._by_limit.dump(),
            "by_prediction": self._by_prediction.dump(),
        }

    def load(self, snapshot: dict[str, Any], rows: Iterable[list[Any]]) -> None:
        """Restore the state from the snapshot and the rows of the store (step 4).

        Earlier versions stored only `trusted` and `blocks`. Their simulations begin again.
        """
        self.trusted = snapshot["trusted"]
        self.blocks.extend((limits, predictions) for limits, predictions in snapshot["blocks"])
        if "learned" in snapshot:
            self.learned = snapshot["learned"]
            self._block = tuple(snapshot["block"])
            self._held = [PoolJob(*each) for each in snapshot["held"]]
            self._compared.extend(snapshot["compared"])
            self._by_limit.load(snapshot["by_limit"])
            self._by_prediction.load(snapshot["by_prediction"])
        self.snapshot = self._dump()
        self.changed.clear()
        for number, units, *job in sorted(rows):
            self.rows[number % SNAPSHOT] = [number, units, *job]
            if number > self.learned:
                self._add(PoolJob(*job), units)

    def _compare(self) -> None:
        """Add the jobs that have started in both simulations to the present block (step 2)."""
        limits, predictions = self._by_limit.slowdowns, self._by_prediction.slowdowns
        while self._compared and self._compared[0] in limits and self._compared[0] in predictions:
            number = self._compared.popleft()
            jobs, by_limit, by_prediction = self._block
            self._block = jobs + 1, by_limit + limits.pop(number), by_prediction + predictions.pop(number)
            if self._block[0] == BLOCK:
                self.blocks.append(self._block[1:])
                self._block = (0, 0.0, 0.0)
                self._decide()

    def _decide(self) -> None:
        """Decide whether backfill may use predictions (step 3)."""
        ratio = self.ratio or 1.0
        if self.trusted:
            lost = sum(after > before * (1 + NOTICEABLE) for before, after in self.blocks)
            self.trusted = lost < LOST_BLOCKS or ratio <= 1 + LEAST_LOSS
        else:
            won = sum(after < before * (1 - NOTICEABLE) for before, after in self.blocks)
            self.trusted = won >= WON_BLOCKS and ratio <= 1
