"""Rows and bars of a Gantt chart. A row (track) is one GPU, or all processors of a node. A bar is a job on
one row or on neighbouring rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import attrgetter

from controller.core.model.allocation import Allocation
from controller.sim.job_results import SimulatedJob
from controller.sim.report.run import ReportRun
from wire.agent.reports import NodeFacts
from wire.names import WHOLE_GPU

TALLEST = 64
"""Largest height of a track (a row of the chart), in lines of text. A track for the cores of a node has one
line per core, up to this height.
"""


@dataclass(frozen=True, slots=True)
class Track:
    """A row of the Gantt chart: one GPU, or all cores of a node in a report that counts processors. `height`
    is in lines of text.
    """

    key: str
    """The UUID of the GPU, or the name of the node."""
    node: str
    name: str
    height: int
    units: int
    """Capacity of the track (a row of the chart) in thousandths of a GPU, or of a core."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of the Gantt chart: one job on `count` neighbouring tracks from number `first` on.

    If the job holds only a part of one track, the bar covers the track from the fraction `low` to the
    fraction `high` of its height.
    """

    record: SimulatedJob
    first: int
    count: int = 1
    low: float = 0.0
    high: float = 1.0

    @property
    def whole(self) -> bool:
        """Return whether the job holds its tracks (rows of the chart) completely."""
        return self.low == 0.0 and self.high == 1.0


def tracks_of(run: ReportRun) -> list[Track]:
    """Return the tracks (rows) of the Gantt chart from top to bottom. If the report counts GPUs, nodes
    without GPUs have no track.
    """
    return [track for name, node in run.cluster.nodes.items() for track in _tracks(run, name, node)]


def _tracks(run: ReportRun, name: str, node: NodeFacts) -> Iterator[Track]:
    if not run.by_gpu:
        lines = min(max(node.cpu_milli // run.cluster.core_milli, 1), TALLEST)
        yield Track(name, name, "", lines, node.cpu_milli)
    for gpu in node.gpus:
        yield Track(gpu.uuid, name, str(gpu.index), 1, WHOLE_GPU)


def bars_of(run: ReportRun) -> list[Bar]:
    """Return the bars of all jobs that started, in the order of their starts."""
    tracks = tracks_of(run)
    places = {track.key: place for place, track in enumerate(tracks)}
    strips: dict[int, _Strip] = {}
    bars: list[Bar] = []
    for record in sorted(run.started, key=attrgetter("start_s", "job")):
        for part in record.allocations:
            whole: list[int] = []
            for key, units in _pieces(run, part):
                place = places[key]
                all_units = tracks[place].units
                if units >= all_units:
                    whole.append(place)
                    continue
                strip = strips.setdefault(place, _Strip(all_units))
                pieces = strip.take(record.job, units, record.start_s or 0.0, run.ran_s(record))
                bars += [Bar(record, place, 1, low / all_units, high / all_units) for low, high in pieces]
            bars += [Bar(record, first, count) for first, count in _rows(sorted(whole))]
    return bars


def _pieces(run: ReportRun, part: Allocation) -> list[tuple[str, int]]:
    """Return the tracks (rows) that the job holds on one node: the `key` of each track, and how many
    thousandths of a GPU or core the job holds there.
    """
    if run.by_gpu:
        return [(hold.uuid, hold.milli) for hold in part.gpus]
    return [(part.node, part.cpu_milli)]


def _rows(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Combine neighbouring track numbers (rows of the chart) into groups. Each group is (first number,
    count)."""
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
    """One track (row) of the chart, divided into units (thousandths of a GPU or core), and the jobs that hold
    these units."""

    units: int
    free: list[tuple[int, int]] = field(init=False)
    held: list[tuple[float, int, list[tuple[int, int]]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = [(0, self.units)]

    def take(self, job: int, units: int, begin_s: float, run_s: float) -> list[tuple[int, int]]:
        """Assign the lowest free units of the track to a job for `run_s` seconds. Return the assigned ranges
        of units, each as (low, high) without `high`.
        """
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
