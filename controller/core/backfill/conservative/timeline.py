"""Timelines: how the free resources of a node, or the free count of a licence, change from now on."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Generic, TypeVar

from controller.core.cluster.free_resources import FreeResources
from controller.core.cluster.gpus.gpu_requirements import GpuNeeds
from controller.core.cluster.node import Node
from controller.core.model.allocation import Allocation
from controller.core.model.job import NEVER
from controller.core.model.request import LicenceCounts, PerNodeRequest

T = TypeVar("T")


class Timeline(Generic[T]):
    """A value over time: `values[i]` is valid from `times[i]` until `times[i + 1]`. The last value is valid
    forever.

    Example: with times [0, 10, 30] and values [2, 0, 4], the value is 2 until 10, then 0 until 30, and then
    4.
    """

    __slots__ = ("times", "values")

    def __init__(self, times: list[float], values: list[T]) -> None:
        self.times = times
        self.values = values

    def index_at(self, moment: float) -> int:
        """Return the index of the value at the time `moment`; 0 for a time before the timeline begins."""
        return max(0, bisect_right(self.times, moment) - 1)

    def cut(self, moment: float) -> int:
        """Split the segment around `moment`, so that a segment begins at `moment`.

        Return the index of the segment that begins at `moment`. For NEVER (infinity), return the number of
        segments.
        """
        if moment == NEVER:
            return len(self.times)
        at = bisect_left(self.times, moment)
        if at == len(self.times) or self.times[at] != moment:
            self.times.insert(at, moment)
            self.values.insert(at, self.values[at - 1])
        return at

    def forget_past(self, now: float) -> bool:
        """Drop the segments (parts of the timeline) that end at or before the time `now`. Return whether
        there were such segments.
        """
        past = bisect_right(self.times, now) - 1
        if past > 0:
            del self.times[:past], self.values[:past]
        return past > 0


class Segment:
    """The free resources of one node in one segment of time. Also a cache of the requests that fit in these
    resources.

    `free` never changes, so copies of a timeline share their segments and this cache.
    """

    __slots__ = ("fits", "free")

    def __init__(self, free: FreeResources) -> None:
        self.free = free
        self.fits: dict[PerNodeRequest, bool] = {}


class NodeTimeline(Timeline[Segment]):
    """The resources that running jobs and backfill reservations leave free on one node, over time."""

    __slots__ = ("_dips", "_fits", "node")

    def __init__(self, node: Node, now: float, free: FreeResources) -> None:
        super().__init__([now], [Segment(free)])
        self.node = node
        self._forget_caches()

    def _forget_caches(self) -> None:
        self._fits: dict[PerNodeRequest, bytes] = {}
        """For each request, one byte for each segment. The byte is 1 if the request fits in the segment."""
        self._dips: list[int] | None = None
        """The indices of the segments in which less of some resource is free than in the segment before. None
        if the indices have not been computed since the last change of the timeline.
        """

    def copy(self, node: Node) -> NodeTimeline:
        """Return a copy that refers to `node`, the same node in another copy of the cluster state."""
        other = NodeTimeline(node, 0.0, self.values[0].free)
        other.times, other.values = self.times.copy(), self.values.copy()
        return other

    def append(self, moment: float, free: FreeResources) -> None:
        """Set the free resources from `moment` on. `moment` must be later than all times in the timeline."""
        if free != self.values[-1].free:
            self._forget_caches()
            self.times.append(moment)
            self.values.append(Segment(free))

    def give(self, start: float, end: float, allocation: Allocation, sign: int) -> None:
        """Change the free resources from `start` to `end`: add an allocation (`sign` 1) or subtract an
        allocation (`sign` -1).
        """
        if end <= start:
            return
        self._forget_caches()
        first, last = self.cut(start), self.cut(end)
        for at in range(first, last):
            free = self.values[at].free.copy()
            free.add(self.node, allocation, sign)
            self.values[at] = Segment(free)
        for at in (last, first):  # Merge neighbouring segments that have become equal.
            if 0 < at < len(self.times) and self.values[at].free == self.values[at - 1].free:
                del self.times[at], self.values[at]

    def forget_past(self, now: float) -> bool:
        dropped = super().forget_past(now)
        if dropped:
            self._forget_caches()
        return dropped

    def least(self, since: float, duration: float) -> FreeResources:
        """Return the resources that stay free from `since` to `since + duration`."""
        # Add the duration to the time, as the computation of `times` does. Subtracting times instead would
        # round differently.
        at, end = self.index_at(since), since + duration
        least = self.values[at].free
        for later in range(at + 1, len(self.times)):
            if self.times[later] >= end:
                break
            least = least.minimum(self.values[later].free)
        return least

    def first_start(
        self, part: PerNodeRequest, needs: GpuNeeds, duration: float, since: float
    ) -> tuple[float, FreeResources] | None:
        """Return the first time, at or after `since`, when the request `part` fits for the next `duration`
        seconds.

        Also return the resources that stay free while the job runs. Return None if there is no such time. A
        job keeps the same GPUs until it ends, so the GPUs of a request must be free in all segments.

        1. Go to the next segment in which the request fits. From there, go to the next segment in which the
           request does not fit. If the request stops fitting while the job would run, continue after that
           segment.
        2. Find the resources that stay free in all segments between these two (`_least_fitting`). If the
           request does not fit in these resources, start one segment later.
        """
        times, fits = self.times, self._fits.get(part)
        if fits is None:
            fits = self._fits[part] = self._fitting_segments(part, needs)
        at, start = self.index_at(since), since
        if not fits[at]:
            at = fits.find(1, at)
            start = times[at]
        while at >= 0:
            too_full = fits.find(0, at)
            if too_full >= 0 and times[too_full] < start + duration:
                at = fits.find(1, too_full)
            else:
                least = self._least_fitting(part, needs, at, start + duration)
                if least is not None:
                    return start, least
                at = fits.find(1, at + 1)
            start = times[at]
        return None

    def _fitting_segments(self, part: PerNodeRequest, needs: GpuNeeds) -> bytes:
        row, found = self.node.row, bytearray()
        for segment in self.values:
            fits = segment.fits.get(part)
            if fits is None:
                fits = segment.fits[part] = segment.free.fits(part, needs, row)
            found.append(fits)
        return bytes(found)

    def _least_fitting(
        self, part: PerNodeRequest, needs: GpuNeeds, at: int, end: float
    ) -> FreeResources | None:
        """Return the resources that stay free from segment `at` until the time `end`. For a request without
        GPUs, return the resources of the segment `at`: the request fits in all these segments. Return None if
        the request does not fit in these resources.

        The function compares only the segments in `_dips`. In every other segment, at least as much of each
        resource is free as in the segment before.
        """
        least = self.values[at].free
        if not needs.count:
            return least
        if self._dips is None:
            self._dips = [
                later
                for later in range(1, len(self.values))
                if not self.values[later].free.covers(self.values[later - 1].free)
            ]
        for dip in self._dips[bisect_right(self._dips, at) :]:
            if self.times[dip] >= end:
                break
            least = least.minimum(self.values[dip].free)
            if not least.fits(part, needs, self.node.row):
                return None
        return least


class LicenceTimeline(Timeline[int]):
    """The free count of one licence over time."""

    __slots__ = ()

    def __init__(self, now: float, free: int) -> None:
        super().__init__([now], [free])

    def copy(self) -> LicenceTimeline:
        other = LicenceTimeline(0.0, 0)
        other.times, other.values = self.times.copy(), self.values.copy()
        return other

    def give(self, start: float, end: float, count: int) -> None:
        """Add `count`, which may be negative, to the free count from `start` to `end`."""
        start = max(start, self.times[0])
        if end > start:
            first, last = self.cut(start), self.cut(end)
            for at in range(first, last):
                self.values[at] += count

    def first_start(self, count: int, duration: float, since: float) -> float | None:
        """Return the first time, at or after `since`, when `count` licences are free for `duration` seconds.
        Return None if there is no such time.
        """
        times, values = self.times, self.values
        at, start = self.index_at(since), since
        while True:
            until = at
            while values[until] >= count:
                until += 1
                if until == len(times) or times[until] >= start + duration:
                    return start
            at = until + 1
            if at >= len(times):
                return None
            start = max(since, times[at])


class LicenceTimelines:
    def __init__(self, now: float, free: Mapping[str, int]) -> None:
        self._by_name = {name: LicenceTimeline(now, count) for name, count in free.items()}

    def copy(self) -> LicenceTimelines:
        other = LicenceTimelines(0.0, {})
        other._by_name = {name: timeline.copy() for name, timeline in self._by_name.items()}
        return other

    def give(self, wanted: LicenceCounts, start: float, end: float, sign: int) -> None:
        """Change the free licences from `start` to `end`: add the licences `wanted` (`sign` 1) or subtract
        them (`sign` -1).
        """
        for name, count in wanted:
            if name in self._by_name:
                self._by_name[name].give(start, end, sign * count)

    def first_start(self, wanted: LicenceCounts, duration: float, since: float) -> float | None:
        """Return the first time, at or after `since`, when all these licences are free for `duration`
        seconds. Return None if there is no such time.
        """
        moment = since
        while True:
            before = moment
            for name, count in wanted:
                timeline = self._by_name.get(name)
                found = None if timeline is None else timeline.first_start(count, duration, moment)
                if found is None:
                    return None
                moment = found
            if moment == before:
                return moment

    def forget_past(self, now: float) -> None:
        for timeline in self._by_name.values():
            timeline.forget_past(now)
