"""The list of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

from textual.binding import BindingType

from tui import actions
from tui.app_interface import app_of
from tui.data.cluster_feed import Changes
from tui.data.job_listing import JobListing
from tui.data.request_workers import Failure
from tui.look import cells
from tui.look.columns import ListColumn
from tui.look.paint import Piece
from tui.views.list_view import ListView
from tui.views.view import bindings
from wire.api.jobs import Held, JobList, JobView
from wire.names import JobState
from wire.text import duration, memory, printable

ENDS_EVERY_S: Final = 30
"""Seconds between two requests for the expected ends of workloads and arrays. The controller makes a new
forecast after the same time.
"""
ACTIVE: Final = tuple(state for state in JobState if not state.terminal)


class QueueView(ListView[int, JobView]):
    NAME = actions.QUEUE

    listing: JobListing

    def __init__(self, listing: JobListing) -> None:
        self.folding = listing.folding
        self._ticks = 0
        super().__init__(listing)

    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.QUEUE)

    def columns(self) -> Sequence[ListColumn[JobView]]:
        text = cells.text_part
        return (
            ListColumn(
                "id", "ID", 1, 6, lambda job: [(printable(self._label(job)), text(job))], narrow=5, right=True
            ),
            ListColumn(
                "name", "NAME", 2, 14, lambda job: [(printable(job.name), text(job))], 10, grow=3, most=44
            ),
            ListColumn(
                "user", "USER", 4, 8, lambda job: [(printable(job.user), text(job))], 6, grow=1, most=14
            ),
            ListColumn("gpus", "GPUS", 3, 5, self._gpus, 4, right=True),
            ListColumn("state", "STATE", 1, 11, lambda job: [cells.job_state(job)], 9),
            ListColumn("why", "WHERE/WHY", 6, 13, self._where, 9, grow=2, most=30),
            ListColumn("time", "TIME", 5, 7, lambda job: [cells.job_time(job, self._now())], 6, right=True),
            ListColumn("priority", "PRIORITY", 7, 9, lambda job: [cells.priority(job)]),
            ListColumn("nodes", "NODES", 12, 5, lambda job: [(str(job.nodes), "muted")], right=True),
            ListColumn(
                "cpus", "CPUS", 10, 5, lambda job: [(f"{job.cpu_milli / 1000:g}", "muted")], right=True
            ),
            ListColumn(
                "memory", "MEMORY", 11, 6, lambda job: [(memory(job.memory_mib), "muted")], right=True
            ),
            ListColumn(
                "limit", "LIMIT", 14, 6, lambda job: [(duration(job.time_limit_s), "muted")], right=True
            ),
            ListColumn(
                "queue", "QUEUE", 9, 9, lambda job: [(printable(job.queue), "muted")], grow=1, most=14
            ),
            ListColumn(
                "project", "PROJECT", 8, 9, lambda job: [(printable(job.project), "muted")], grow=1, most=16
            ),
            ListColumn("submitted", "SUBMITTED", 13, 12, self._submitted),
            ListColumn(
                "detail", "DETAIL", 15, 24, lambda job: [(printable(job.detail), "faint")], grow=6, most=90
            ),
        )

    def _label(self, job: JobView) -> str:
        folded = self.folding.row(job.id)
        return job.label if folded is None else folded.label

    def _where(self, job: JobView) -> Sequence[Piece]:
        """Return the nodes of the job or the reason why it waits. For a folded row, return the progress of
        its jobs.
        """
        folded = self.folding.row(job.id)
        return [cells.job_location_cell(job)] if folded is None else [(folded.progress, "text")]

    def _gpus(self, job: JobView) -> Sequence[Piece]:
        """Return the GPUs of the job. For a folded row, return the GPUs of its running jobs."""
        folded = self.folding.row(job.id)
        return [cells.gpus(job if folded is None else replace(job, gpus=folded.gpus))]

    def _now(self) -> float:
        return app_of(self).model.now()

    def _submitted(self, job: JobView) -> Sequence[Piece]:
        return [(cells.clock(job.submitted_at, self._now()), "muted")]

    def title(self) -> str:
        return "Queue"

    def status(self) -> Sequence[Piece]:
        """Return a sentence about the job under the cursor, for the status line."""
        job = self._here()
        if job is None:
            return [
                ("no jobs yet: N submits one", "muted")
                if not self.filter_text
                else ("no job matches the filter", "muted")
            ]
        return [
            (f"{printable(job.label)} ", "strong"),
            (f"{printable(job.name, 40)}  ", "text"),
            self._sentence(job),
        ]

    def _sentence(self, job: JobView) -> Piece:
        if job.detail:
            return (printable(job.detail, 400), "failed" if job.state is JobState.FAILED else "muted")
        if job.held:
            return (f"on {', '.join(_held(held) for held in job.held)}", "muted")
        return (f"{job.state.value.lower()} {job.reason.value.replace('_', ' ')}", "muted")

    def _here(self) -> JobView | None:
        return self.listing.rows.get(self.listing.cursor) if self.listing.cursor is not None else None

    def jobs(self) -> list[JobView]:
        """Return the marked jobs, or the job under the cursor. A folded row counts as all of its jobs."""
        return self.listing.chosen()

    def changed(self, changes: Changes) -> None:
        """Repaint the rows that have changed. If no row has changed, update only the shown times."""
        if changes.jobs or changes.fresh:
            self.table.sync()
        if changes.fresh:
            self._ask_ends()

    def tick(self) -> None:
        """Show the times again. At intervals, request the expected ends of folded groups."""
        self._ticks += 1
        if self._ticks % ENDS_EVERY_S == 0:
            self._ask_ends()
        self.table.refresh_changed()

    def _ask_ends(self) -> None:
        app = app_of(self)
        if self.folding.is_waiting_for_ends() and app.model.connection.state != "lost":
            app.requests.ask(lambda client: client.jobs(states=ACTIVE, limit=1, folded=True), self._answered)

    def _answered(self, answer: JobList | Failure) -> None:
        if isinstance(answer, JobList) and self.is_attached:
            self.folding.told(answer.groups)
            self.table.refresh()

    def undo(self) -> bool:
        """Remove the filter. Without a filter, remove the marks. Return False if there are no filter and no
        marks.
        """
        if super().undo():
            return True
        if self.listing.marks:
            self.listing.marks.clear()
            self.table.refresh()
            self.moved()
            return True
        return False

    def act_open(self) -> None:
        if self.listing.cursor is not None:
            app_of(self).open_job(self.listing.cursor)

    def act_fold(self) -> None:
        """Show the workload or array under the cursor with one row for each job, or with one row for all jobs
        again.
        """
        if self.listing.fold_one():
            self._folded()

    def act_foldall(self) -> None:
        """Show all workloads and arrays with one row for each job, or each of them with one row for all its
        jobs again.
        """
        self.listing.fold_all()
        self._folded()

    def _folded(self) -> None:
        self.table.sync()
        self.table.refresh()
        self.moved()

    def act_mark(self) -> None:
        if self.listing.cursor is not None:
            self._marked_last = self.listing.cursor
            self.listing.toggle(self.listing.cursor)
            self.table.step(1)

    def act_range(self) -> None:
        """Mark all jobs from the last marked job to the cursor."""
        if self.listing.cursor is not None:
            self.listing.mark_between(self._marked_last or self.listing.cursor, self.listing.cursor)
            self._marked_last = self.listing.cursor
            self.table.refresh()
            self.moved()

    def act_all(self) -> None:
        self.listing.mark_shown()
        self.table.refresh()
        self.moved()

    _marked_last: int | None = None


def _held(held: Held) -> str:
    gpus = ",".join(gpu.number for gpu in held.gpus)
    return printable(held.node) + (f" GPU {gpus}" if gpus else "")
