"""Combines the jobs of each workload and of each array in one row of the queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.core.model.job import Job
from controller.core.state.state import State
from controller.questions.expected_times import Group
from wire.api.jobs import JobGroup, QueuePlace
from wire.job.arrays import array_indices
from wire.names import WHOLE_GPU, JobState


def folded(
    state: State, found: Iterable[Job], ends: Mapping[Group, float], places: Mapping[int, QueuePlace]
) -> tuple[list[JobGroup], list[Job]]:
    """Return one row for each workload and array to which a job of `found` belongs, and the jobs of `found`
    outside of workloads and arrays. `ends` has the expected ends of workloads and arrays, and `places` the
    places of waiting jobs in the queue.
    """
    groups: dict[Group, Job] = {}
    single = []
    for job in sorted(found, key=lambda job: job.id):
        if job.workload in state.workloads.by_id:
            groups.setdefault(("workload", job.workload or 0), job)
        elif job.array is not None:
            groups.setdefault(("array", job.array), job)
        else:
            single.append(job)
    return [
        (_of_workload if group[0] == "workload" else _of_array)(state, job, ends.get(group), places)
        for group, job in groups.items()
    ], single


def _of_array(state: State, first: Job, ends_at: float | None, places: Mapping[int, QueuePlace]) -> JobGroup:
    """Return the row of an array. Elements that are no longer in memory count as completed."""
    elements = [state.jobs[number] for number in state.arrays.get(first.array or 0, {}).values()]
    total = len(array_indices(first.spec.array or ""))
    ended = {each: sum(job.state is each for job in elements) for each in JobState if each.terminal}
    return _group(
        *("array", str(first.array), first.name, first, elements, total),
        ended[JobState.COMPLETED] + total - len(elements),
        ended[JobState.FAILED],
        ended[JobState.CANCELLED],
        ends_at,
        places,
    )


def _of_workload(
    state: State, first: Job, ends_at: float | None, places: Mapping[int, QueuePlace]
) -> JobGroup:
    workload = state.workloads.by_id[first.workload or 0]
    tasks = workload.tasks.values()
    jobs = [state.jobs[number] for task in tasks for number in task.ids() if number in state.jobs]
    return _group(
        *("workload", f"workload {workload.id}", workload.name, first, jobs, workload.total),
        sum(task.completed for task in tasks),
        sum(task.failed for task in tasks),
        sum(task.cancelled for task in tasks),
        ends_at,
        places,
    )


def _group(
    kind: str,
    label: str,
    name: str,
    first: Job,
    jobs: list[Job],
    total: int,
    completed: int,
    failed: int,
    cancelled: int,
    ends_at: float | None,
    places: Mapping[int, QueuePlace],
) -> JobGroup:
    found = [places[job.id] for job in jobs if job.id in places]
    next_up = min(found, key=lambda each: each.place, default=None)
    waiting = sum(job.state in (JobState.QUEUED, JobState.PREEMPTED) for job in jobs)
    return JobGroup(
        id=first.id,
        kind=kind,
        label=label,
        name=name,
        user=first.user,
        project=first.spec.project,
        queue=first.spec.queue,
        priority=first.priority,
        submitted_at=first.submitted_at,
        total=total,
        waiting=waiting,
        running=total - waiting - completed - failed - cancelled,
        completed=completed,
        failed=failed,
        cancelled=cancelled,
        gpus=sum(job.gpu_milli for job in jobs if job.running) / WHOLE_GPU,
        ends_at=ends_at,
        place=None if next_up is None else next_up.place,
        starts_at=None if next_up is None else next_up.starts_at,
    )
