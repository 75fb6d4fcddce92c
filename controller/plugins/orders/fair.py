"""Whoever used least of their share comes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from controller.core.jobs import Job
from controller.core.queue import Group
from controller.core.shares import Path
from controller.core.standing import View

LEVELS = 3


@dataclass(frozen=True, slots=True)
class Fair:
    """By weight / (usage + 1), from the top of the tree down; within one user, the submit order."""

    name: ClassVar[str] = "fair"

    def rank(self, job: Job) -> tuple[float, ...]:
        """All the same: the submit order breaks the tie."""
        return ()

    def group(self, job: Job, tenant: Path) -> Group:
        """One tenant's jobs stand in submit order."""
        return tenant

    def place(self, job: Job, view: View) -> tuple[float, ...]:
        """Lower is first; whoever is past a soft limit comes behind everybody else."""
        path = view.path(job)
        fairness = [-each for each in view.shares.fairness(path, view.now)]
        return float(view.shares.beyond(path, view.now)), *fairness, *[0.0] * (LEVELS - len(fairness))
