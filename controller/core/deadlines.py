"""Waiting jobs with a deadline, and the room that must be there for them when they have to start."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from controller.core.allowance import Allowance
from controller.core.columns import Bools
from controller.core.events import DeadlineDoubted
from controller.core.jobs import NEVER, Job
from controller.core.placement import Place, Placer, Shape
from controller.core.queue import Queue
from controller.core.shadow import Shadow
from controller.core.state import State

MOST = 16
"""Waiting jobs that are guarded at a time, those first that have to start first."""
MARGIN_S = 10.0
"""So long before its last moment a job is lifted: orders and clocks take their time."""


class Guarded:
    """Promises to those with deadlines, worked out once a pass: room when they have to start at the latest.

    Counted by limits: whoever runs is gone when its limit is up. Each is promised room by itself; if there is
    not enough for all of them, those that have to start first come first.
    """

    def __init__(self, state: State, placer: Placer, allowance: Allowance, queue: Queue) -> None:
        self._state = state
        self._queue = queue
        self._allowance = allowance
        self._placer = placer
        self._made: list[Shadow] | None = None
        self._doubted: dict[int, bool] = {}
        """Of those looked at: can the deadline no longer be met as things stand?"""

    def begin(self) -> None:
        """Another pass: nothing that was worked out holds any longer."""
        self._made = None

    def urgent(self, now: float) -> list[int]:
        """Those that start now or never, the first first."""
        dated = self._queue.dated
        return [job for _, job in dated[: bisect_right(dated, (now + MARGIN_S, np.inf))]]

    def again_at(self, now: float) -> float:
        """When the next of them starts then or never."""
        dated = self._queue.dated
        at = bisect_right(dated, (now + MARGIN_S, np.inf))
        return dated[at][0] - MARGIN_S if at < len(dated) else NEVER

    def against(self, job: Job, now: float) -> list[Shadow]:
        """The promises that a job breaks if it takes their room: it runs then, and has more time itself."""
        if not self._queue.dated:
            return []
        latest = job.latest_start, job.id
        return [
            each
            for each in self._promises(now)
            if now + job.limit > each.at and latest > (each.at, each.job) and each.job in self._queue
        ]

    def kept_from(self, job: Job, shape: Shape, barred: Bools | None, now: float) -> Bools | None:
        """Where the job may not start: what is barred already, and room that is promised."""
        for promise in self.against(job, now):
            barred = promise.kept_from(shape.part, barred)
            if not promise.lends(job.ask.licences):
                return np.ones(self._state.nodes.columns.height, dtype=np.bool_)
            if promise.spare >= shape.nodes:
                continue
            spoilt = promise.spoilt(self._placer, shape.part, self._placer.ranking(shape.part).rows)
            if spoilt:
                height = self._state.nodes.columns.height
                barred = np.zeros(height, dtype=np.bool_) if barred is None else barred.copy()
                barred[[*spoilt]] = True
        return barred

    def take(self, job: Job, shape: Shape, place: Place, now: float) -> None:
        """The job starts there. Call it before the nodes know."""
        if self._made is None:
            return
        for promise in self.against(job, now):
            promise.take(self._placer, shape.part, place)
            promise.lend(job.ask.licences)

    def warnings(self, now: float) -> Iterator[DeadlineDoubted]:
        """Those whose deadline could be met when they were looked at last and cannot now; or it can again."""
        if self._queue.dated:
            self._promises(now)
            for number, doubted in self._doubted.items():
                job = self._state.jobs[number]
                if job.ready and job.wait.doubted != doubted:
                    yield DeadlineDoubted(number, now, doubted)

    def _promises(self, now: float) -> list[Shadow]:
        if self._made is None:
            self._made = []
            self._doubted = {}
            for latest, number in self._queue.dated[:MOST]:
                job = self._state.jobs[number]
                if self._allowance.over(job, now) is not None:
                    continue  # whatever room there is, it may not have it
                promise = promised(self._state, self._placer, job, max(latest, now))
                self._doubted[number] = promise is None
                if promise is not None:
                    self._made.append(promise)
        return self._made


def promised(state: State, placer: Placer, job: Job, at: float) -> Shadow | None:
    """Room for a waiting job at that moment, if nobody else starts any more; None if there is none then."""
    shape = placer.shape(job.ask)
    if shape is None:
        return None
    promise = Shadow(state, placer, shape, job.id)
    return promise if promise.stand_at(at) else None
