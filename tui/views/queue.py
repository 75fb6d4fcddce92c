"""The list of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal

from tui import actions
from tui.app_interface import app_of
from tui.data.cluster_feed import Changes
from tui.data.lists.job_listing import JobListing
from tui.data.load_history import LoadRequests, ShownRows
from tui.data.request_workers import Failure
from tui.look import cells
from tui.look.columns import ListColumn
from tui.look.styled_lines import Piece
from tui.views.list_view import ListView
from tui.views.view import bindings
from tui.widgets.job_peek import JobPeek
from wire.api.jobs import Held, JobList, JobView
from wire.names import JobState
from wire.text import duration, memory, printable

PLACES_EVERY_S: Final = 5
"""Seconds between two requests for the places of waiting jobs and the expected ends of workloads and arrays.
The controller makes its forecasts at the same interval.
"""
PEEK_WIDTH: Final = 160
"""On a screen of at least this many terminal cells, the job under the cursor is shown beside the list."""
LOAD_WIDTH: Final = 11
ACTIVE: Final = tuple(state for state in JobState if not state.terminal)


class QueueView(ListView[int, JobView]):
    NAME = actions.QUEUE

    listing: JobListing

    def __init__(self, listing: JobListing) -> None:
        self.folding = listing.folding
        self._ticks = 0
        self._peeks: bool | None = None
        """Whether the user has chosen to see the job beside the list; None before the user has chosen."""
        super().__init__(listing)
        self.peek = JobPeek(self._here)
        self._loads = LoadRequests(lambda: app_of(self), self._shown_rows, self._show_loads)

    BINDINGS: ClassVar[list[BindingType]] = bindings(actions.QUEUE)

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield self.table
            yield self.peek

    def on_resize(self) -> None:
        """Show the details of the job under the cursor beside the list, if the user has chosen this, or if
        the screen is at least PEEK_WIDTH wide and the user has chosen nothing.
        """
        wide = self.size.width >= PEEK_WIDTH
        self.peek.display = self._peeks if self._peeks is not None else wide
        self.peek.styles.width = max(40, self.size.width // 3)
        self.peek.update()

    def act_peek(self) -> None:
        """Show or hide the details of the job under the cursor beside the list."""
        self._peeks = not self.peek.display
        self.on_resize()

    def moved(self) -> None:
        super().moved()
        self.peek.update()

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
            ListColumn("place", "#", 7, 5, self._place, right=True),
            ListColumn("starts", "LOAD/STARTS", 7, LOAD_WIDTH, self._load, right=True),
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
                "detail", "DETAIL", 15, 20, lambda job: [(printable(job.detail), "faint")], grow=6, most=90
            ),
        )

    def tint(self, job: JobView) -> str:
        """Return the style of the background of a row: red for a failed job, amber for a job that waits much
        longer than usual.
        """
        if self.folding.row(job.id) is not None:
            return ""
        return "failed-row" if job.state is JobState.FAILED else "late-row" if job.waits_long else ""

    def besides(self, job: JobView) -> object:
        return self.folding.row(job.id)

    def _label(self, job: JobView) -> str:
        folded = self.folding.row(job.id)
        return job.label if folded is None else folded.label

    def _where(self, job: JobView) -> Sequence[Piece]:
        """Return the nodes of the job, or the reason why the job waits. For a folded row, return the progress
        of its jobs.
        """
        folded = self.folding.row(job.id)
        return [cells.job_location_cell(job)] if folded is None else [(folded.progress, "text")]

    def _gpus(self, job: JobView) -> Sequence[Piece]:
        """Return the GPUs of the job. For a folded row, return the GPUs of its running jobs."""
        folded = self.folding.row(job.id)
        return [cells.gpus(job if folded is None else replace(job, gpus=folded.gpus))]

    def _place(self, job: JobView) -> Sequence[Piece]:
        """Return the place of a waiting job in the queue; empty for other jobs, or if the place
        is not known.
        """
        place = app_of(self).model.places.get(job.id)
        return [("" if place is None or job.state is not JobState.QUEUED else f"{place.place:,}", "muted")]

    def _starts(self, job: JobView) -> Sequence[Piece]:
        """Return the time until the expected start of a waiting job; empty for other jobs, or if it is not
        known.
        """
        place = app_of(self).model.places.get(job.id)
        if place is None or place.starts_at is None or job.state is not JobState.QUEUED:
            return [("", "muted")]
        return [(duration(max(0.0, place.starts_at - self._now())), "muted")]

    def _load(self, job: JobView) -> Sequence[Piece]:
        """Return a graph of the load of a running job's GPUs; for a waiting job, the time until its expected
        start.
        """
        if job.state is not JobState.RUNNING or not job.gpus:
            return self._starts(job)
        loads = app_of(self).model.loads.jobs.get(job.id, ())
        return [(" " * (LOAD_WIDTH - cells.SPARKS), "text"), *cells.load_graph(loads)]

    def _shown_rows(self) -> ShownRows:
        """Return the ids of the visible running jobs with GPUs, whose loads the application requests."""
        rows = (self.listing.rows[key] for key in self.table.visible_keys())
        return ShownRows(jobs=tuple(job.id for job in rows if job.state is JobState.RUNNING and job.gpus))

    def _show_loads(self) -> None:
        self.table.refresh_changed()
        self.peek.update()

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
        """Repaint the changed rows. If the whole state of the cluster was loaded, also request the places of
        the waiting jobs.
        """
        if changes.fresh:
            self.table.sync()
        elif changes.jobs:
            self.table.sync_rows()
        if changes.jobs or changes.fresh:
            self.peek.update()
        if changes.fresh:
            self._ask_places()
            self.call_after_refresh(self._loads.tick)

    def tick(self) -> None:
        """Update the shown times. At intervals, request the places of waiting jobs and the expected ends of
        folded workloads and arrays.
        """
        self._ticks += 1
        if self._ticks % PLACES_EVERY_S == 0:
            self._ask_places()
        self._loads.tick()
        self.table.refresh_changed()
        self.peek.update()

    def _ask_places(self) -> None:
        app = app_of(self)
        waits = app.model.waiting or app.model.places
        if (waits or self.folding.is_waiting_for_ends()) and app.model.connection.state != "lost":
            folded = self.folding.is_waiting_for_ends()
            app.requests.ask(
                lambda client: client.jobs(states=ACTIVE, limit=1, folded=folded, places=True), self._answered
            )

    def _answered(self, answer: JobList | Failure) -> None:
        if isinstance(answer, JobList) and self.is_attached:
            self.folding.told(answer.groups)
            app_of(self).model.take_places(answer.places)
            self.table.sync()

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
        """Unfold all workloads and arrays, so that each job has a row. If all are unfolded already, fold each
        workload and array into one row.
        """
        self.listing.fold_all()
        self._folded()

    def _folded(self) -> None:
        self.table.sync()
        self.table.refresh()
        self.moved()


def _held(held: Held) -> str:
    gpus = ",".join(gpu.number for gpu in held.gpus)
    return printable(held.node) + (f" GPU {gpus}" if gpus else "")
