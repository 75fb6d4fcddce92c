"""Tenants that hold far more than their share make room for those that hold less than theirs."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from controller.core.dues import Dues, Ground, fair_dues
from controller.core.jobs import Job
from controller.core.state import State


@dataclass(frozen=True, slots=True)
class Fair:
    """By what organisations, projects and users hold now, in billing units, beside all who have jobs."""

    name: ClassVar[str] = "fair"

    threshold: float = 1.25
    """How many times its fair part a side has to hold before anything of it is ended."""
    most: int = 100
    """Jobs of a higher priority than this are not ended for fairness."""

    def __post_init__(self) -> None:
        if not 1 <= self.threshold <= 1_000:
            raise ValueError("threshold must be at least 1: nobody is to be pushed below what is fair")

    def standing(self, job: Job) -> float:
        """The priority it runs with."""
        return job.spec.priority

    def reach(self, _job: Job) -> float | None:
        """The same for all: priorities are not what is weighed here."""
        return self.most

    def group(self, job: Job, state: State) -> Hashable:
        """Its tenant."""
        return state.tenant(job)

    def dues(self, job: Job, ground: Ground) -> Dues | None:
        """Who is far above, if this job would not lift its own side above what is fair."""
        return fair_dues(ground, job, self.threshold)
