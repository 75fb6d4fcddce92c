"""Values that change in steps over time, such as the number of waiting jobs, and their averages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controller.sim.job_results import SimulatedJob
from controller.sim.report.run import ReportRun, TimeSpan

Floats = npt.NDArray[np.float64]

BINS, FEW = 480, 160
"""Number of bins (points) of a curve: the first if it is the only curve of the chart, the second if there are
several. With fewer bins, several curves are easier to distinguish.
"""


@dataclass(frozen=True)
class Steps:
    """A step function of time: a value (level) that changes only at certain times."""

    moments: Floats
    levels: Floats
    """`levels[i]` is the level from the time `moments[i]` until `moments[i + 1]`."""

    def means(self, span: TimeSpan, bins: int = BINS) -> Floats:
        """Return the exact average level in each of `bins` equal parts of the time span."""
        edges = np.linspace(span.begin_s, span.end_s, bins + 1)
        if not len(self.moments):
            return np.zeros(bins)
        areas = np.concatenate(([0.0], np.cumsum(self.levels[:-1] * np.diff(self.moments))))
        return np.diff(np.interp(edges, self.moments, areas)) / np.diff(edges)

    def peak(self) -> tuple[float, float]:
        """Return the highest level, and the first time with this level."""
        if not len(self.moments):
            return 0.0, 0.0
        place = int(np.argmax(self.levels))
        return float(self.levels[place]), float(self.moments[place])


def steps(parts: Iterable[tuple[float, float, float]]) -> Steps:
    """Return the sum of `parts` over time. Each part is (begin, end, amount), and adds its amount from its
    begin to its end."""
    table = np.array([*parts], dtype=np.float64).reshape(-1, 3)
    moments = np.concatenate((table[:, 0], table[:, 1]))
    changes = np.concatenate((table[:, 2], -table[:, 2]))
    kept, places = np.unique(moments, return_inverse=True)
    return Steps(kept, np.cumsum(np.bincount(places, changes, len(kept))))


def busy(run: ReportRun) -> Steps:
    """Return the number of GPUs (or processors, if these are the unit of the run) that jobs held over
    time."""
    return _held(run, run.held)


def busy_cores(run: ReportRun) -> Steps:
    """Return the number of processors that jobs held over time, even if the report counts resources in
    GPUs."""
    return _held(run, run.cores)


def _held(run: ReportRun, amount: Callable[[SimulatedJob], float]) -> Steps:
    return steps(
        (record.start_s, record.start_s + run.ran_s(record), amount(record))
        for record in run.started
        if record.start_s is not None
    )


def queued(run: ReportRun) -> Steps:
    """Return the number of waiting jobs over time.

    A job that never started has waited until its end or the end of the run.
    """
    return steps(
        (record.submit_s, _left_queue(run, record.start_s, record.end_s), 1.0) for record in run.records
    )


def _left_queue(run: ReportRun, start_s: float | None, end_s: float | None) -> float:
    return next((moment for moment in (start_s, end_s) if moment is not None), run.end_s)
