"""Folds the jobs of each workload and of each array into one row of the job list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wire.api.jobs import JobView
from wire.names import JobState
from wire.workload.bodies import progress_text


@dataclass(frozen=True)
class FoldedRow:
    """One row for several jobs: its label, its progress and the ids of its jobs."""

    label: str
    progress: str
    jobs: tuple[int, ...]


class JobFolding:
    """Decides which rows of the job list are hidden while workloads and arrays are folded.

    1. Group the jobs by workload, the others by array. A job that a retry has replaced is not counted.
    2. Each group is shown in the row of its first unended job, or of its first job if all have ended. All
       other rows of the group are hidden.

    Only jobs that the terminal UI has received are counted. Cost: O(jobs) for each update.
    """

    def __init__(self) -> None:
        self.on = False
        self.rows: dict[int, FoldedRow] = {}
        """The folded rows by the id of the job in whose row the group is shown."""
        self.hidden: frozenset[int] = frozenset()

    def update(self, jobs: Iterable[JobView]) -> None:
        """Compute the folded rows again."""
        self.rows, self.hidden = {}, frozenset()
        if not self.on:
            return
        groups: dict[tuple[str, int], list[JobView]] = {}
        for job in jobs:
            if job.workload is not None:
                groups.setdefault(("w", job.workload), []).append(job)
            elif job.array is not None:
                groups.setdefault(("", job.array), []).append(job)
        hidden: set[int] = set()
        for (letter, number), members in groups.items():
            members.sort(key=lambda job: job.id)
            shown = next((job for job in members if not job.state.terminal), members[0])
            label = f"w{number}" if letter else f"{number}_*"
            self.rows[shown.id] = FoldedRow(label, _progress(members), tuple(job.id for job in members))
            hidden.update(job.id for job in members if job is not shown)
        self.hidden = frozenset(hidden)


def _progress(members: list[JobView]) -> str:
    latest = {(job.task, job.index): job for job in members}
    ended = [job for job in latest.values() if job.state.terminal]
    return progress_text(len(latest), len(ended), sum(job.state is JobState.FAILED for job in ended))
