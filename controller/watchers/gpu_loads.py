"""Keeps the load (utilisation) of each GPU over the last 10 minutes in memory, for the small graphs beside
jobs, nodes and GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from controller.core.model.job import Job
from controller.core.state.state import State
from wire.agent.reports import GpuSample

SAMPLE_S: Final = 10.0
KEPT: Final = 60
"""The number of samples that are kept for each GPU: one for each 10 seconds of 10 minutes."""
KEPT_S: Final = SAMPLE_S * KEPT

_UNKNOWN: Final = 255
"""The value that a ring (the samples of one GPU) contains for a time without a reading."""

Loads = tuple[int | None, ...]
"""The last 10 minutes are divided into equal parts. This is the mean load in each part in percent, the oldest
part first; None for a part without a reading.
"""


class GpuLoads:
    """The loads of all GPUs.

    1. `add` is called every second. In the first call of each 10 seconds, it writes the latest reading of
       each GPU of a connected node into the ring of the GPU. GPUs and nodes that were removed lose their
       rings.
    2. The index of a sample in the ring is its number (time / SAMPLE_S) modulo KEPT. If `add` was not called
       in a period of 10 seconds, or if the GPU had no reading, the value at this index is _UNKNOWN.
    3. An answer divides the time into parts of KEPT_S / `points` seconds. Parts begin at fixed times
       (multiples of their length), so that the mean of a part does not change when the part is over.

    The loads are not stored and never influence a decision. Cost: O(GPUs) every 10 seconds. Memory: 60 bytes
    for each GPU, with Python's objects about 250 bytes: 2.5 MB for 10,000 GPUs.

    Example: with points=8, a part is 75 s long and its load is the mean of 7 or 8 samples.
    """

    def __init__(self) -> None:
        self._rings: dict[str, dict[str, bytearray]] = {}
        self._latest = 0
        """The number of the latest sample: its time divided by SAMPLE_S, rounded down."""

    def add(self, now: float, state: State, readings: Mapping[str, Mapping[str, GpuSample]]) -> None:
        """Add the latest reading of each GPU, unless the present period of 10 seconds has a sample
        already.
        """
        number = int(now // SAMPLE_S)
        if number == self._latest:
            return
        # Mark all samples as unknown if the clock was set back, because they would be from the future.
        missed = range(self._latest + 1, number + 1) if number > self._latest else range(KEPT)
        places = {each % KEPT for each in (missed if len(missed) < KEPT else range(KEPT))}
        rings: dict[str, dict[str, bytearray]] = {}
        for node in state.nodes:
            if node.facts is None:
                continue
            known, there = readings.get(node.name, {}) if node.up else {}, self._rings.get(node.name, {})
            rings[node.name] = mine = {}
            for gpu in node.facts.gpus:
                ring = there.get(gpu.uuid) or bytearray([_UNKNOWN]) * KEPT
                for place in places:
                    ring[place] = _UNKNOWN
                reading = known.get(gpu.uuid)
                if reading is not None:
                    ring[number % KEPT] = max(0, min(100, round(reading.utilisation)))
                mine[gpu.uuid] = ring
        self._rings, self._latest = rings, number

    def of_node(self, name: str, points: int) -> dict[str, Loads]:
        """Return the loads of each GPU of a node by UUID. The last 10 minutes are divided into `points`
        parts.
        """
        return {uuid: self._parts([(ring, 0.0, math.inf)], points) for uuid, ring in self._of(name).items()}

    def of_job(self, job: Job, points: int) -> Loads:
        """Return the mean load of the GPUs of the last attempt of a job. The last 10 minutes are divided into
        `points` parts. Samples before the start or after the end of the attempt are left out.
        """
        held = [
            (ring, member.started_at, math.inf if member.ended_at is None else member.ended_at)
            for member in job.shown_members
            if member.started_at is not None
            for gpu in member.allocation.gpus
            if (ring := self._of(member.allocation.node).get(gpu.uuid)) is not None
        ]
        return self._parts(held, points)

    def _of(self, node: str) -> Mapping[str, bytearray]:
        return self._rings.get(node, {})

    def _parts(self, held: Iterable[tuple[bytearray, float, float]], points: int) -> Loads:
        """Return the mean load over all rings in `held`, for each of `points` parts of the last 10 minutes.
        Each element of `held` is (ring, begin, end): only samples from `begin` to `end` count.
        """
        part_s = KEPT_S / points
        first = int(self._latest * SAMPLE_S // part_s) - points + 1
        sums, counts = [0] * points, [0] * points
        for ring, begin, end in held:
            for number in range(self._latest - KEPT + 1, self._latest + 1):
                value, at = ring[number % KEPT], number * SAMPLE_S
                part = int(at // part_s) - first
                if value != _UNKNOWN and part >= 0 and begin <= at <= end:
                    sums[part] += value
                    counts[part] += 1
        return tuple(
            round(total / count) if count else None for total, count in zip(sums, counts, strict=True)
        )
