"""Folds the jobs of each workload and of each array into one row of the job list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from wire.api.jobs import JobGroup, JobView
from wire.names import JobState
from wire.workload.bodies import progress_text

GroupKey = tuple[str, int]
"""Identifies a group: ("workload", id of the workload), or ("array", id of the array) for an array outside of
workloads.
"""
RUNNING, WAITING, ENDED, FILTERED = range(4)
Passes = Callable[[JobView], bool]
"""A function that returns whether a job passes the filter of the list."""


@dataclass(frozen=True)
class FoldedRow:
    """The row of a folded group: its label (w7 for workload 7, 12_* for array 12), its progress, and the GPUs
    of its running jobs.
    """

    label: str
    progress: str
    gpus: float


@dataclass
class _Group:
    """The jobs of a workload or array that the terminal UI has received. A job that a retry has replaced by a
    newer job is a member, but is not counted in `ended`, `failed` and `gpus`.
    """

    members: dict[int, JobView] = field(default_factory=dict)
    latest: dict[tuple[str, int | None], int] = field(default_factory=dict)
    """For each pair (task, index in the array): the id of the newest job."""
    ended: int = 0
    failed: int = 0
    gpus: float = 0.0
    shown: int = 0
    """The id of the job in whose row the group is shown; 0 while the group is not folded."""
    rank: int = FILTERED
    """The rank of the job `shown`: RUNNING, WAITING, ENDED, or FILTERED (does not pass the filter). The group
    is shown in the row of a job with the lowest rank.
    """

    def put(self, job: JobView) -> None:
        """Add a job, or replace its earlier version."""
        place = job.task, job.index
        counted = self.latest.get(place)
        if counted is None or counted <= job.id:
            if counted is not None:
                self._count(self.members[counted], -1)
            self._count(job, 1)
            self.latest[place] = job.id
        self.members[job.id] = job

    def _count(self, job: JobView, by: int) -> None:
        self.ended += by * job.state.terminal
        self.failed += by * (job.state is JobState.FAILED)
        self.gpus += by * job.gpus * (not job.state.terminal and job.state is not JobState.QUEUED)


class JobFolding:
    """Decides which rows of the job list are hidden while workloads and arrays are folded.

    1. Group the jobs of each workload, and the other jobs of each array. A group of one job is not folded.
    2. Show each group in the row of one of its jobs: the running job with the lowest id; if none runs, the
       waiting job with the lowest id; if none waits either, the ended job with the lowest id. A job that does
       not pass the filter is chosen only if no job of the group passes the filter. The group moves to another
       row when another job gets a better rank than the job of the row (running before waiting before ended),
       or when the job of the row gets a worse rank. All other rows of the group are hidden.
    3. Groups that the user has opened are not folded.

    Jobs that the terminal UI has not received are neither shown nor chosen.

    Cost: O(1) for each changed job, and O(jobs of the group) when the group gets another row.
    """

    def __init__(self) -> None:
        self.on = True
        self.hidden: set[int] = set()
        self.ends: Mapping[str, float] = {}
        """The expected ends of groups in seconds since 1970, by the label of the group in the API
        (`_api_label`). Groups without an expected end are missing.
        """
        self._groups: dict[GroupKey, _Group] = {}
        self._opened: set[GroupKey] = set()
        self._group_of: dict[int, GroupKey] = {}

    def put(self, jobs: Iterable[JobView], passes: Passes) -> set[int]:
        """Add jobs, or replace their earlier versions. Return the jobs whose rows are newly hidden or
        shown.
        """
        touched: dict[GroupKey, list[JobView]] = {}
        for job in jobs:
            key = _key(job)
            if key is not None:
                self._groups.setdefault(key, _Group()).put(job)
                self._group_of[job.id] = key
                touched.setdefault(key, []).append(job)
        moved: set[int] = set()
        for key, members in touched.items():
            moved |= self._fold(key, members, passes)
        return moved

    def drop(self, jobs: Iterable[int], passes: Passes) -> set[int]:
        """Remove the rows of old jobs. Their groups still count these jobs in their progress. Return the jobs
        whose rows are newly hidden or shown.
        """
        touched = set()
        for job in jobs:
            self.hidden.discard(job)
            key = self._group_of.pop(job, None)
            if key is not None:
                touched.add(key)
        moved: set[int] = set()
        for key in touched:
            group = self._groups[key]
            if not any(job in self._group_of for job in group.members):
                del self._groups[key]
            elif group.shown not in self._group_of:
                moved |= self._fold_anew(key, passes)
        return moved

    def clear(self) -> None:
        """Forget all jobs."""
        self._groups.clear()
        self._group_of.clear()
        self.hidden.clear()

    def fold_all(self, passes: Passes) -> None:
        """Choose the shown rows of all groups again, after the filter has changed or after turn()."""
        for key in self._groups:
            self._fold_anew(key, passes)

    def toggle(self, job: int, passes: Passes) -> bool:
        """Open the group of a job, or fold it if it is open. Return False if the job is in no group of
        several jobs, or if turn() has opened all groups.
        """
        key = self._group_of.get(job)
        if not self.on or key is None or len(self._groups[key].members) < 2:
            return False
        self._opened ^= {key}
        self._fold_anew(key, passes)
        return True

    def turn(self, passes: Passes) -> None:
        """Open all groups (workloads and arrays), so that each job has a row. Fold all groups if the last
        call has opened them.
        """
        self.on = not self.on
        self._opened.clear()
        self.fold_all(passes)

    def row(self, job: int) -> FoldedRow | None:
        """Return the row of the folded group of this job; None if the job has a row of its own."""
        key = self._group_of.get(job)
        if key is None or not self._is_folded(key):
            return None
        group, (kind, number) = self._groups[key], key
        ends_at = self.ends.get(_api_label(key))
        return FoldedRow(
            f"w{number}" if kind == "workload" else f"{number}_*",
            progress_text(len(group.latest), group.ended, group.failed, ends_at),
            group.gpus,
        )

    def jobs_of(self, job: int, passes: Passes) -> list[int]:
        """Return the jobs that the row of this job stands for. If the row shows a folded group, these are the
        jobs of the group that pass the filter. If not, it is the job itself.
        """
        key = self._group_of.get(job)
        if key is None or not self._is_folded(key) or self._groups[key].shown != job:
            return [job]
        members = self._groups[key].members
        return [number for number in sorted(members) if number in self._group_of and passes(members[number])]

    def shown_for(self, job: int) -> int:
        """Return the job in whose row this job is shown: the job itself, or another job of its folded
        group.
        """
        key = self._group_of.get(job)
        return job if key is None or job not in self.hidden else self._groups[key].shown

    def told(self, groups: Iterable[JobGroup]) -> None:
        """Store the expected ends of `groups`, which are from an answer of the controller."""
        self.ends = {each.label: each.ends_at for each in groups if each.ends_at is not None}

    def is_waiting_for_ends(self) -> bool:
        """Return whether the caller should request the expected ends of groups: folding is on, and a group
        has jobs that have not ended.
        """
        return self.on and any(group.ended < len(group.latest) for group in self._groups.values())

    def _is_folded(self, key: GroupKey) -> bool:
        return self.on and key not in self._opened and len(self._groups[key].members) > 1

    def _fold(self, key: GroupKey, changed: Iterable[JobView], passes: Passes) -> set[int]:
        """Choose the shown row of a group again after the jobs `changed` of this group have changed. Return
        the jobs whose rows are newly hidden or shown.
        """
        group = self._groups[key]
        if not group.shown or not self._is_folded(key):
            return self._fold_anew(key, passes)
        best = group.rank, group.shown
        for job in changed:
            rank = _rank(job, passes)
            if job.id == group.shown and rank > group.rank:
                return self._fold_anew(key, passes)
            if rank < best[0]:
                best = rank, job.id
        self.hidden.update(job.id for job in changed)
        before = group.shown
        group.rank, group.shown = best
        self.hidden.add(before)
        self.hidden.discard(group.shown)
        return {before, group.shown} if before != group.shown else set()

    def _fold_anew(self, key: GroupKey, passes: Passes) -> set[int]:
        """Choose the shown row of a group among all of its jobs. Return the jobs whose rows are newly hidden
        or shown.
        """
        group = self._groups[key]
        present = group.members.keys() & self._group_of.keys()
        before = self.hidden & present
        group.rank, group.shown = FILTERED, 0
        if self._is_folded(key):
            group.rank, group.shown = min((_rank(group.members[job], passes), job) for job in present)
            present.discard(group.shown)
            self.hidden |= present
            self.hidden.discard(group.shown)
            return before ^ present
        self.hidden -= before
        return before


def _key(job: JobView) -> GroupKey | None:
    if job.workload is not None:
        return "workload", job.workload
    return ("array", job.array) if job.array is not None else None


def _api_label(key: GroupKey) -> str:
    return f"workload {key[1]}" if key[0] == "workload" else str(key[1])


def _rank(job: JobView, passes: Passes) -> int:
    if not passes(job):
        return FILTERED
    if job.state.terminal:
        return ENDED
    return WAITING if job.state is JobState.QUEUED else RUNNING
