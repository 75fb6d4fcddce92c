"""What a Gantt chart draws: the tracks of every node, and the bars jobs occupy on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import attrgetter

from controller.core.events import Allocation
from controller.sim.report.run import Run
from controller.sim.results import Life
from wire.frames import NodeFacts
from wire.words import WHOLE_GPU

TALLEST = 64
"""Tracks as high as this at most: a node without GPUs is one, a line high for each core."""


@dataclass(frozen=True, slots=True)
class Track:
    """One GPU, or all cores of a node without any; `height` in lines."""

    key: str
    """The GPU's uuid, or the node's name."""
    node: str
    name: str
    height: int
    units: int
    """GPU-milli, or CPU-milli."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A job on whole tracks that follow each other, or on a part of one, from `low` to `high` (of 1)."""

    life: Life
    first: int
    count: int = 1
    low: float = 0.0
    high: float = 1.0

    @property
    def whole(self) -> bool:
        """Whether it fills its tracks from edge to edge."""
        return self.low == 0.0 and self.high == 1.0


def tracks_of(run: Run) -> list[Track]:
    """The tracks from top to bottom. Of a cluster with GPUs, nodes without any have none."""
    return [track for name, node in run.cluster.nodes.items() for track in _tracks(run, name, node)]


def _tracks(run: Run, name: str, node: NodeFacts) -> Iterator[Track]:
    if not run.by_gpu:
        lines = min(max(node.cpu_milli // run.cluster.core_milli, 1), TALLEST)
        yield Track(name, name, "", lines, node.cpu_milli)
    for gpu in node.gpus:
        yield Track(gpu.uuid, name, str(gpu.index), 1, WHOLE_GPU)


def bars_of(run: Run) -> list[Bar]:
    """Every bar, in the order in which they begin."""
    tracks = tracks_of(run)
    places = {track.key: place for place, track in enumerate(tracks)}
    strips: dict[int, _Strip] = {}
    bars: list[Bar] = []
    for life in sorted(run.started, key=attrgetter("start_s", "job")):
        for part in life.allocations:
            whole: list[int] = []
            for key, units in _pieces(run, part):
                place = places[key]
                all_units = tracks[place].units
                if units >= all_units:
                    whole.append(place)
                    continue
                strip = strips.setdefault(place, _Strip(all_units))
                pieces = strip.take(life.job, units, life.start_s or 0.0, run.ran_s(life))
                bars += [Bar(life, place, 1, low / all_units, high / all_units) for low, high in pieces]
            bars += [Bar(life, first, count) for first, count in _rows(sorted(whole))]
    return bars


def _pieces(run: Run, part: Allocation) -> list[tuple[str, int]]:
    """The tracks held on one node, by key, and the units held there."""
    if run.by_gpu:
        return [(hold.uuid, hold.milli) for hold in part.gpus]
    return [(part.node, part.cpu_milli)]


def _rows(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbours as (first, how many)."""
    first = count = 0
    for place in places:
        if count and place == first + count:
            count += 1
        else:
            if count:
                yield first, count
            first, count = place, 1
    if count:
        yield first, count


@dataclass
class _Strip:
    """The units of one track: who comes takes the lowest that are free, in several pieces if need be."""

    units: int
    free: list[tuple[int, int]] = field(init=False)
    held: list[tuple[float, int, list[tuple[int, int]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = [(0, self.units)]

    def take(self, job: int, units: int, begin_s: float, run_s: float) -> list[tuple[int, int]]:
        """The pieces [low, high) a job gets while it runs."""
        while self.held and self.held[0][0] <= begin_s:
            self.free = _merged(self.free + heappop(self.held)[2])
        pieces: list[tuple[int, int]] = []
        rest: list[tuple[int, int]] = []
        for low, high in self.free:
            taken = min(units, high - low)
            if taken:
                pieces.append((low, low + taken))
                units -= taken
            if low + taken < high:
                rest.append((low + taken, high))
        self.free = rest
        heappush(self.held, (begin_s + run_s, job, pieces))
        return pieces


def _merged(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pieces):
        if merged and merged[-1][1] == low:
            merged[-1] = merged[-1][0], high
        else:
            merged.append((low, high))
    return merged
