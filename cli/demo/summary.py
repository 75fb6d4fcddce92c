"""Prints the summary at the end of the demo."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from cli.output.formats import Column, Table, terminal_width, write
from wire.api.jobs import JobView
from wire.names import JobState
from wire.text import duration


@dataclass(frozen=True)
class Line:
    """One row of the summary: the jobs of one user, or of all users."""

    user: str
    jobs: Sequence[JobView]

    def count(self, state: JobState) -> str:
        return str(sum(job.state is state for job in self.jobs))

    @property
    def waited(self) -> str:
        """Return the mean time from submit to start, such as 1.5s, over the jobs that have started."""
        waits = [job.started_at - job.submitted_at for job in self.jobs if job.started_at is not None]
        return f"{sum(waits) / len(waits):.1f}s" if waits else "-"

    @property
    def gpu_hours(self) -> float:
        return sum(
            job.gpus * (job.ended_at - job.started_at) / 3_600
            for job in self.jobs
            if job.started_at is not None and job.ended_at is not None
        )


def table() -> Table[Line]:
    return Table(
        [
            Column("USER", lambda line: line.user),
            Column("JOBS", lambda line: str(len(line.jobs)), right=True),
            Column("COMPLETED", lambda line: line.count(JobState.COMPLETED), right=True),
            Column("FAILED", lambda line: line.count(JobState.FAILED), rank=2, right=True),
            Column("CANCELLED", lambda line: line.count(JobState.CANCELLED), rank=3, right=True),
            Column("MEAN WAIT", lambda line: line.waited, rank=5, right=True),
            Column("GPU-HOURS", lambda line: f"{line.gpu_hours:.3f}", rank=4, right=True),
        ],
        name=lambda line: line.user,
        kind=Line,
    )


def show(jobs: Sequence[JobView], seconds: float) -> None:
    by_user = defaultdict(list)
    for job in jobs:
        by_user[job.user].append(job)
    lines = [Line(user, by_user[user]) for user in sorted(by_user)] + [Line("all", jobs)]
    write("\n")
    for line in table().lines(lines, terminal_width()):
        write(line + "\n")
    write(f"\n{len(jobs)} jobs in {duration(seconds)}.\n")
