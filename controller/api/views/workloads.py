"""Converts workloads of the engine's state to the objects of wire.api that clients get."""

from __future__ import annotations

from collections.abc import Iterable

from controller.core.model.job import Job
from controller.core.state.state import State
from controller.core.state.workloads import Task, Workload
from wire.names import JobState
from wire.workload.bodies import TaskView, WorkloadView
from wire.workload.spec import array_text


def workload_view(state: State, workload: Workload, ends_at: float | None, *, labels: bool) -> WorkloadView:
    """Return the API's view of a workload. `ends_at` is its expected end. With `labels`, each task has the
    display ids of its jobs.
    """
    replaced = set(workload.replaced)
    tasks = tuple(
        _task_view(
            name,
            task,
            [] if task.ended == task.total and not labels else _jobs(state, task, replaced),
            labels,
        )
        for name, task in workload.tasks.items()
    )
    total, ended = workload.total, workload.ended
    return WorkloadView(
        id=workload.id,
        name=workload.name,
        user=workload.user,
        state=_state_of(workload, tasks),
        submitted_at=workload.submitted_at,
        total=total,
        waiting=sum(task.waiting for task in tasks),
        running=sum(task.running for task in tasks),
        completed=sum(task.completed for task in tasks),
        failed=sum(task.failed for task in tasks),
        cancelled=sum(task.cancelled for task in tasks),
        tasks=tasks,
        max_parallel=workload.max_parallel,
        on_failure=workload.on_failure,
        retries=workload.retries,
        ended_at=workload.last_end if ended == total else None,
        ends_at=None if ended == total else ends_at,
    )


def _jobs(state: State, task: Task, replaced: set[int]) -> list[Job]:
    return [state.jobs[number] for number in task.ids() if number in state.jobs and number not in replaced]


def _task_view(name: str, task: Task, jobs: list[Job], labels: bool) -> TaskView:
    waiting = sum(job.state in (JobState.QUEUED, JobState.PREEMPTED) for job in jobs)
    return TaskView(
        name,
        task.total,
        waiting,
        task.total - task.ended - waiting,
        task.completed,
        task.failed,
        task.cancelled,
        task.after,
        tuple(_labels(jobs)) if labels else (),
    )


def _labels(jobs: Iterable[Job]) -> list[str]:
    """Return the display ids of jobs. The elements of one array share one text, such as 12_[0-9]."""
    arrays: dict[int, list[int]] = {}
    found: dict[str, None] = {}
    for job in jobs:
        if job.array is None or job.index is None:
            found[job.label] = None
        else:
            arrays.setdefault(job.array, []).append(job.index)
    found.update(
        (f"{array}_[{array_text(sorted(indices), None)}]", None) for array, indices in arrays.items()
    )
    return list(found)


def _state_of(workload: Workload, tasks: tuple[TaskView, ...]) -> JobState:
    if workload.ended < workload.total:
        begun = workload.ended or any(task.running for task in tasks)
        return JobState.RUNNING if begun else JobState.QUEUED
    if any(task.failed for task in tasks):
        return JobState.FAILED
    return JobState.CANCELLED if any(task.cancelled for task in tasks) else JobState.COMPLETED
