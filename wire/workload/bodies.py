"""API bodies of workloads, and of the queue in which each workload or array is one row."""

from __future__ import annotations

import time
from typing import Optional

from wire.dataclass import dataclass
from wire.job.spec import JobSpec
from wire.names import JobState
from wire.workload.spec import OnFailure, WorkloadSpec


@dataclass(frozen=True)
class WorkloadRequest:
    """A workload to submit. If the same user repeats a request with the same `key`, no second workload is
    submitted, and the answer has the workload of the first request.
    """

    spec: WorkloadSpec
    key: str = ""
    as_user: str = ""


@dataclass(frozen=True)
class TaskView:
    """A task of a workload, and the number of its jobs in each state. Jobs that a retry has replaced are not
    counted. `total` is the number of all other jobs of the task. `after` names the tasks on which the task
    depends.
    """

    name: str
    total: int
    waiting: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    after: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    """The labels of the jobs of the task, such as 12, or 12_[0-9] for elements of array 12. Labels of old
    jobs may be missing.
    """


@dataclass(frozen=True)
class WorkloadView:
    """A workload, with the number of its jobs in each state, summed over its tasks.

    `state` is QUEUED until the first job starts, then RUNNING until the last job has ended. After that,
    `state` is FAILED if a job has failed, otherwise CANCELLED if a job was cancelled, otherwise COMPLETED.
    """

    id: int
    name: str
    user: str
    state: JobState
    submitted_at: float
    total: int
    waiting: int
    running: int
    completed: int
    failed: int
    cancelled: int
    tasks: tuple[TaskView, ...] = ()
    max_parallel: Optional[int] = None
    on_failure: OnFailure = OnFailure.CONTINUE
    retries: int = 0
    ended_at: Optional[float] = None
    ends_at: Optional[float] = None
    """The expected end of the last job of the workload, from a forecast with predicted run times. None if
    this end is not known.
    """


@dataclass(frozen=True)
class WorkloadList:
    """Workloads, ordered by id. `seq` is the number of the newest journal entry that the list includes."""

    workloads: tuple[WorkloadView, ...]
    seq: int


@dataclass(frozen=True)
class WorkloadAnswer:
    """A workload after a submit, cancel or retry, and the ids of the jobs that were queued or cancelled."""

    workload: WorkloadView
    jobs: tuple[int, ...] = ()


@dataclass(frozen=True)
class WorkloadRetry:
    """The body of a request to run jobs of a workload again: failed jobs, and jobs that were cancelled
    because other jobs of the workload failed. With `cancelled`, jobs that users have cancelled also run
    again.
    """

    cancelled: bool = False


@dataclass(frozen=True)
class PlannedJob:
    """A job that a submit of a workload would queue, with default values filled in. `index` is the index of
    the job in its task.
    """

    task: str
    index: Optional[int]
    after: tuple[str, ...]
    """The names of the tasks for whose jobs this job waits."""
    spec: JobSpec


@dataclass(frozen=True)
class WorkloadPreview:
    """The jobs that a submit of a workload would queue. Nothing was queued."""

    jobs: tuple[PlannedJob, ...]


def progress_text(total: int, ended: int, failed: int, ends_at: Optional[float] = None) -> str:
    """Return the progress of a workload or array, such as `17 of 40, 2 failed, ends ≈ 14:20`."""
    parts = [f"{ended:,} of {total:,}"]
    if failed:
        parts.append(f"{failed:,} failed")
    if ends_at is not None and ended < total:
        parts.append(f"ends ≈ {_moment(ends_at)}")
    return ", ".join(parts)


def _moment(at: float) -> str:
    """Return the local time of day, such as 14:20. If the day is not today, the result also has the date."""
    then = time.localtime(at)
    today = time.strftime("%F", then) == time.strftime("%F")
    return time.strftime("%H:%M" if today else "%d %b %H:%M", then)
