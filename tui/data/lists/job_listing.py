"""The list of jobs. Each workload and each array is one row until the user opens the row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tui.data.lists.filter import Fields
from tui.data.lists.job_folding import JobFolding
from tui.data.lists.listing import Listing
from wire.api.jobs import JobView


class JobListing(Listing[int, JobView]):
    """A list of jobs without the rows that `folding` hides.

    Invariant: `hidden` is the set of hidden rows of `folding`, and is up to date before rows are sorted into
    the list.
    """

    def __init__(
        self,
        key: Callable[[JobView], int],
        sorts: Mapping[str, Callable[[JobView], Any]],
        fields: Fields[JobView],
        haystack: Callable[[JobView], str],
    ) -> None:
        super().__init__(key, sorts, fields, haystack)
        self.folding = JobFolding()
        self.hidden = self.folding.hidden

    def put(self, rows: Iterable[JobView]) -> None:
        changed = {row.id: row for row in rows}
        moved = self.folding.put(changed.values(), self.filter)
        self._move_marks(moved)
        super().put([*changed.values(), *(self.rows[job] for job in moved - changed.keys())])

    def _move_marks(self, moved: set[int]) -> None:
        """Keep the cursor and the mark on a group that has moved to the row of another job. `moved` are the
        jobs whose rows are newly hidden or shown.
        """
        for job in moved & self.hidden:
            if job in self.marks:
                self.marks ^= {job, self.folding.shown_for(job)}
            if job == self._home:
                self._home = self.folding.shown_for(job)

    def replace(self, rows: Iterable[JobView]) -> None:
        rows = list(rows)
        self.folding.clear()
        self.folding.put(rows, self.filter)
        super().replace(rows)

    def drop(self, keys: Iterable[int]) -> None:
        keys = list(keys)
        moved = self.folding.drop(keys, self.filter)
        super().drop(keys)
        if moved:
            super().put([self.rows[job] for job in moved if job in self.rows])

    def narrow(self, text: str) -> None:
        super().narrow(text)
        self.folding.fold_all(self.filter)
        self.rearrange()

    def follow(self, key: int) -> bool:
        """Move the cursor to the row of this job, or of its group. Return False if the filter
        hides the row.
        """
        return super().follow(self.folding.shown_for(key))

    def chosen(self) -> list[JobView]:
        """Return the marked jobs; without marks, the job under the cursor. A row with a folded group stands
        for all jobs of the group that pass the filter.
        """
        found = {
            number: self.rows[number]
            for job in super().chosen()
            for number in self.folding.jobs_of(job.id, self.filter)
        }
        return [found[number] for number in sorted(found)]

    def fold_one(self) -> bool:
        """Open the group of the job under the cursor, or fold it if it is open. Return False if the job has
        no group to open or fold.
        """
        job = self.cursor
        if job is None or not self.folding.toggle(job, self.filter):
            return False
        self.rearrange()
        self.follow(job)
        return True

    def fold_all(self) -> None:
        """Open all groups, or fold all groups if the last call has opened them."""
        job = self.cursor
        self.folding.turn(self.filter)
        self.rearrange()
        if job is not None:
            self.follow(job)
