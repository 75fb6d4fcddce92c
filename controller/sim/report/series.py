"""Steps over time, as the averages of equally long bins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controller.sim.report.run import Run, Span
from controller.sim.results import Life

Floats = npt.NDArray[np.float64]

BINS, FEW = 480, 160
"""Of one line in a chart, and of several, which would hide each other if they were as nervous."""


@dataclass(frozen=True)
class Steps:
    """A level that changes at moments: how much of something is there."""

    moments: Floats
    levels: Floats
    """From the moment of the same place to the next one."""

    def means(self, span: Span, bins: int = BINS) -> Floats:
        """The average level in each bin; exact, not sampled."""
        edges = np.linspace(span.begin_s, span.end_s, bins + 1)
        if not len(self.moments):
            return np.zeros(bins)
        areas = np.concatenate(([0.0], np.cumsum(self.levels[:-1] * np.diff(self.moments))))
        return np.diff(np.interp(edges, self.moments, areas)) / np.diff(edges)

    def peak(self) -> tuple[float, float]:
        """The highest level, and when it was first reached."""
        if not len(self.moments):
            return 0.0, 0.0
        place = int(np.argmax(self.levels))
        return float(self.levels[place]), float(self.moments[place])


def steps(parts: Iterable[tuple[float, float, float]]) -> Steps:
    """The sum of parts, each (from, to, how much)."""
    table = np.array([*parts], dtype=np.float64).reshape(-1, 3)
    moments = np.concatenate((table[:, 0], table[:, 1]))
    changes = np.concatenate((table[:, 2], -table[:, 2]))
    kept, places = np.unique(moments, return_inverse=True)
    return Steps(kept, np.cumsum(np.bincount(places, changes, len(kept))))


def busy(run: Run) -> Steps:
    """GPUs, or processors, that jobs held."""
    return _held(run, run.held)


def busy_cores(run: Run) -> Steps:
    """Processors that jobs held, also where GPUs are what counts."""
    return _held(run, run.cores)


def _held(run: Run, amount: Callable[[Life], float]) -> Steps:
    return steps(
        (life.start_s, life.start_s + run.ran_s(life), amount(life))
        for life in run.started
        if life.start_s is not None
    )


def queued(run: Run) -> Steps:
    """Jobs that waited; one that never started waited until it was cancelled, or until the end."""
    return steps((life.submit_s, _left_queue(run, life.start_s, life.end_s), 1.0) for life in run.lives)


def _left_queue(run: Run, start_s: float | None, end_s: float | None) -> float:
    return next((moment for moment in (start_s, end_s) if moment is not None), run.end_s)
