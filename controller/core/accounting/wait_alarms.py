"""Finds jobs that wait much longer than similar jobs usually do.

Jobs are similar if they are in one queue and have one width class: part of a GPU, 1 GPU, 2, 3 to 4, 5 to 8
GPUs, and so on. The wait of a job is the time from the moment at which the job may start until its first
start. The usual wait of a group is the median wait of its started jobs.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from operator import attrgetter

from controller.core.accounting.wait_histogram import Waits, bin_of, quantile
from controller.core.model.events.attempts import JobPlaced
from controller.core.model.events.event import Event
from controller.core.model.inputs.controller_inputs import NoteLongWait
from controller.core.model.job import Job
from controller.core.model.rows import NoteRow
from controller.core.state.state import State
from wire.codec import dumps

NOTE = "waits"
LEAST_S = 3_600.0
"""No alarm is raised for a job that has waited less than this. Unit: seconds."""
RECENT = 400
"""The most waits that the histogram of one group contains. When there are more, all its counts are halved, so
that recent waits count more.
"""
MOST_GROUPS = 1_000
"""The most groups (jobs of one queue and similar width) that are kept. A further group replaces the group
that was added first.
"""

WaitGroup = tuple[str, int]
"""A group of similar jobs: the queue and the width class."""


def wait_group_of(job: Job) -> WaitGroup:
    """Return (queue, width class) of a job. The class is -1 without GPUs, and 0 for a part of one GPU. It is
    1 for 1 GPU, 2 for 2 GPUs, 3 for 3 to 4, 4 for 5 to 8, and so on.
    """
    gpus = float(job.spec.gpus)
    if gpus < 1:
        return job.spec.queue, 0 if job.ask.part.wants_gpus else -1
    return job.spec.queue, 1 + math.ceil(math.log2(gpus))


class WaitAlarms:
    """Finds jobs that have waited `factor` times as long as jobs of their group (similar jobs) usually wait.

    1. When a job starts for the first time, its wait is added to the histogram of its group.
    2. `due` compares each waiting job without an alarm with the median of its group. An alarm is raised for a
       job that has waited longer than `factor` times the median, and at least LEAST_S. There is no alarm for
       a group of which no job has started.

    Cost: O(1) for a start, O(waiting jobs) for `due`. Memory: at most MOST_GROUPS histograms of about 50
    bins.

    Example: half of the 1-GPU jobs of queue short start within 10 min. With factor 10, an alarm is raised for
    a job of this group after 100 min.
    """

    def __init__(self) -> None:
        self._waits: dict[WaitGroup, Waits] = {}
        self._changed: dict[WaitGroup, None] = {}

    def observe(self, state: State, happened: Iterable[Event]) -> None:
        """Add the waits of jobs that have started for the first time to the histograms of their groups."""
        for event in happened:
            if isinstance(event, JobPlaced) and event.attempt == 1:
                job = state.jobs.get(event.job)
                if job is not None:
                    self._add(wait_group_of(job), event.at - job.ready_at)

    def usual_s(self, group: WaitGroup) -> float | None:
        """Return the median wait of a group in seconds; None if no job of the group has started."""
        return quantile(self._waits.get(group, {}), 0.5)

    def due(self, state: State, factor: float, now: float) -> Iterator[NoteLongWait]:
        """Yield an input for each waiting job that needs an alarm now, the longest wait first. A job needs an
        alarm when it has waited at least LEAST_S, and longer than `factor` times the usual wait of its group.
        A `factor` of 0 disables the alarms.
        """
        if not factor:
            return
        waiting = (state.jobs[number] for lane in state.queue for _, number in lane)
        long = [job for job in waiting if now - job.ready_at >= LEAST_S and not job.wait.alarmed]
        usual: dict[WaitGroup, float | None] = {}
        for job in sorted(long, key=attrgetter("ready_at", "id")):
            group = wait_group_of(job)
            if group not in usual:
                usual[group] = self.usual_s(group)
            median_s = usual[group]
            if median_s is not None and now - job.ready_at > factor * median_s:
                yield NoteLongWait(job.id, median_s)

    def take_changed(self) -> list[NoteRow]:
        """Return the database rows of the groups whose histogram changed since the last call."""
        rows = [
            NoteRow(NOTE, json.dumps(group), dumps({str(each): count for each, count in found.items()}))
            if (found := self._waits.get(group)) is not None
            else NoteRow(NOTE, json.dumps(group), None)
            for group in self._changed
        ]
        self._changed.clear()
        return rows

    def load(self, notes: Iterable[NoteRow]) -> None:
        """Load the stored histograms. A group that is already in memory is skipped."""
        for note in notes:
            if note.kind == NOTE and note.body is not None:
                queue, width = json.loads(note.name)
                waits = Counter({int(each): count for each, count in json.loads(note.body).items()})
                self._waits.setdefault((queue, width), waits)

    def _add(self, group: WaitGroup, wait_s: float) -> None:
        waits = self._waits.get(group)
        if waits is None:
            if len(self._waits) >= MOST_GROUPS:
                oldest = next(iter(self._waits))
                del self._waits[oldest]
                self._changed[oldest] = None
            waits = self._waits[group] = Counter()
        waits[bin_of(wait_s)] += 1
        if waits.total() > RECENT:
            halved = Counter({each: count // 2 for each, count in waits.items() if count > 1})
            self._waits[group] = halved
        self._changed[group] = None
