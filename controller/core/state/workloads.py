"""The workloads of the cluster: which jobs belong to which task, and how many jobs of each task have ended in
each state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from controller.core.model.events.workloads import WorkloadSubmitted
from controller.core.model.job import Job
from wire.names import JobState
from wire.workload.spec import OnFailure

KEEP_WORKLOADS = 1_000
"""If there are more workloads than this, the oldest ended workloads are dropped."""


@dataclass(slots=True)
class Task:
    """One task of a workload. `completed`, `failed` and `cancelled` count the ended jobs by state, and
    `total` counts all jobs. Jobs that a retry has replaced are counted in none of them.
    """

    after: tuple[str, ...] = ()
    """The names of the tasks on which this task depends."""
    spans: list[list[int]] = field(default_factory=list)
    """The ids of all jobs of the task, including jobs that a retry has replaced, as pairs [first id, number
    of consecutive ids].
    """
    total: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def ended(self) -> int:
        return self.completed + self.failed + self.cancelled

    def add(self, job: int) -> None:
        self.total += 1
        if self.spans and sum(self.spans[-1]) == job:
            self.spans[-1][1] += 1
        else:
            self.spans.append([job, 1])

    def count_end(self, state: JobState, by: int = 1) -> None:
        """Count one more ended job in this state. With `by` -1, count one less."""
        if state is JobState.COMPLETED:
            self.completed += by
        elif state is JobState.FAILED:
            self.failed += by
        else:
            self.cancelled += by

    def ids(self) -> Iterator[int]:
        """Yield the ids of all jobs of the task, including jobs that a retry has replaced."""
        for first, count in self.spans:
            yield from range(first, first + count)


@dataclass(slots=True)
class Workload:
    """A workload: its settings, its tasks by name in the order of its file, and its retries."""

    id: int
    name: str
    user: str
    submitted_at: float
    key: str = ""
    max_parallel: int | None = None
    on_failure: OnFailure = OnFailure.CONTINUE
    tasks: dict[str, Task] = field(default_factory=dict)
    replaced: list[int] = field(default_factory=list)
    """The ids of jobs that a retry has replaced."""
    retries: int = 0
    last_end: float | None = None
    """The latest time at which a job of the workload has ended."""

    @property
    def total(self) -> int:
        return sum(task.total for task in self.tasks.values())

    @property
    def ended(self) -> int:
        return sum(task.ended for task in self.tasks.values())


class Workloads:
    """All workloads by id. A repeated submit with the same idempotency key finds the workload of the first
    submit.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, Workload] = {}
        self.next_id = 1
        self.dropped: set[int] = set()
        """The workloads that were dropped since the last commit."""

    def add(self, workload: Workload) -> None:
        """Add a workload. If there are too many, drop the oldest workloads whose jobs have all ended."""
        self.by_id[workload.id] = workload
        self.next_id = max(self.next_id, workload.id + 1)
        surplus = len(self.by_id) - KEEP_WORKLOADS
        if surplus > 0:
            over = [each.id for each in self.by_id.values() if each.total and each.ended == each.total]
            for number in over[:surplus]:
                del self.by_id[number]
                self.dropped.add(number)

    def submitted(self, event: WorkloadSubmitted) -> None:
        """Add the workload of an event. A separate event for each of its jobs follows."""
        asked = event.asked
        tasks = {
            task.name: Task(tuple(dict.fromkeys(each.task for each in task.after))) for task in asked.tasks
        }
        self.add(
            Workload(
                *(event.workload, asked.name, event.user, event.at, event.key),
                *(asked.max_parallel, asked.on_failure, tasks),
            )
        )

    def with_key(self, user: str, key: str) -> Workload | None:
        """Return the workload that the user has submitted with this idempotency key."""
        if not key:
            return None
        return next((each for each in self.by_id.values() if (each.user, each.key) == (user, key)), None)

    def count_end(self, job: Job, at: float) -> None:
        """Count the end of a job of a workload."""
        workload = self.by_id.get(job.workload or 0)
        if workload is not None:
            workload.tasks[job.task].count_end(job.state)
            workload.last_end = at
