"""Finds the jobs that a retry of a workload replaces, and makes the specs of the new jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from controller.core.lifecycle.waiting.dependencies import array_elements, job_outcome
from controller.core.model.decision.decision import Refusal
from controller.core.model.job import Job
from controller.core.state.state import State
from controller.core.state.workloads import Workload
from wire.job.arrays import array_concurrency_limit
from wire.job.spec import JobSpec, with_values
from wire.job.start_conditions import Dependency
from wire.names import JobState, Reason
from wire.workload.spec import array_text

ELEMENTS = 500
"""A new array has at most this many elements, because each job of an array stores `JobSpec.array`, the text
with the indices of all elements.
"""


@dataclass(frozen=True, slots=True)
class RenewedJob:
    """A new job that replaces an old job. `among` contains its dependencies on other new jobs of the retry,
    `outside` all its other dependencies.
    """

    spec: JobSpec
    index: int | None
    outside: tuple[Dependency, ...]
    among: tuple[Dependency, ...]
    from_queue: tuple[str, ...]


def jobs_to_retry(
    state: State, workload: Workload, present: Sequence[Job], *, cancelled: bool
) -> list[Job] | Refusal:
    """Return the jobs that a retry replaces, lowest id first. Return a refusal if there are none, or if some
    ended jobs of the workload are no longer in memory.

    A retry replaces these jobs:
    1. Failed jobs, and jobs that were cancelled because another job of the workload has failed.
    2. With `cancelled`, also jobs that users or operators have cancelled.
    3. Jobs that were cancelled because of an impossible dependency, if the new jobs can meet this dependency.
    """
    in_memory = sum(job.state.terminal for job in present)
    if in_memory < workload.ended:
        message = f"jobs of workload {workload.id} have ended too long ago to be retried"
        return Refusal("conflict", message, "workload", "Submit the file again.")
    again: dict[int, Job] = {}
    for job in sorted(present, key=lambda job: job.id):
        ended = job.state is JobState.CANCELLED
        if ended and job.reason is Reason.DEPENDENCY:
            wanted = all(each in again for each in _obstacles(state, job))
        else:
            wanted = job.state is JobState.FAILED or (ended and (cancelled or job.reason is Reason.WORKLOAD))
        if wanted:
            again[job.id] = job
    if not again:
        hint = "" if cancelled else "With --cancelled, jobs that were cancelled run again, too."
        return Refusal("conflict", f"no job of workload {workload.id} has failed", "workload", hint)
    return list(again.values())


def _obstacles(state: State, job: Job) -> Iterator[int]:
    """Yield the ids of the ended jobs that make a dependency of this job impossible."""
    for index in job.wait.lost:
        dependency = job.spec.after[index]
        for target in _targets(state, dependency):
            if job_outcome(target, dependency.until) is False:
                yield target.id


def _targets(state: State, dependency: Dependency) -> list[Job]:
    """Return the jobs in memory that a dependency names: one job, or all elements of an array."""
    if not dependency.job:
        return []
    array = array_elements(state, dependency.job)
    if array is not None:
        return [state.jobs[number] for number in array.values()]
    found = state.find(dependency.job)
    return [] if found is None else [found]


def renewed(state: State, old: Sequence[Job]) -> list[tuple[str, list[RenewedJob]]]:
    """Return pairs (name of a task, new jobs). Each list of new jobs becomes one array, or one single job.

    1. Group the old jobs by task. The elements of an array become elements of new arrays with at most
       ELEMENTS elements, and keep their indices.
    2. Note for each old job the display id that its new job will get.
    3. Rewrite the dependencies of each new job. A dependency on a replaced job becomes a dependency on the
       new job. If only some elements of an array are replaced, name the elements one by one, and leave out
       elements that have ended and are not replaced.
    """
    groups = _groups(old)
    labels: dict[int, str] = {}
    first = state.next_job
    for group in groups:
        for place, job in enumerate(group):
            labels[job.id] = str(first + place) if job.array is None else f"{first}_{job.index}"
        first += len(group)
    found = []
    for group in groups:
        most = array_concurrency_limit(group[0].spec.array or "")
        indices = [job.index for job in group if job.index is not None]
        array = array_text(indices, most) if indices else None
        found.append((group[0].task, [_renewed_job(state, job, array, labels) for job in group]))
    return found


def _groups(old: Sequence[Job]) -> list[list[Job]]:
    tasks: dict[str, list[Job]] = {}
    for job in old:
        tasks.setdefault(job.task, []).append(job)
    ordered = [sorted(jobs, key=lambda job: job.index or 0) for jobs in tasks.values()]
    return [jobs[at : at + ELEMENTS] for jobs in ordered for at in range(0, len(jobs), ELEMENTS)]


def _renewed_job(state: State, job: Job, array: str | None, labels: Mapping[int, str]) -> RenewedJob:
    outside: list[Dependency] = []
    among: list[Dependency] = []
    for index, each in enumerate(job.spec.after):
        targets = _targets(state, each)
        new = [Dependency(each.until, labels[target.id]) for target in targets if target.id in labels]
        if new:
            among += _shortened(new, labels)
            open_ones = [
                target for target in targets if target.id not in labels and not target.state.terminal
            ]
            outside += [Dependency(each.until, target.label) for target in open_ones]
        elif targets or index not in job.wait.met:
            outside.append(each)
    spec = job.spec
    computed = dict.fromkeys(spec.by_default, 0)
    # Reset the values that the controller has computed for the old job. They are computed again for the new
    # job.
    spec = with_values(spec, {**computed, "by_default": {}, "lease_s": None, "array": array})
    return RenewedJob(spec, job.index, tuple(outside), tuple(among), job.from_queue)


def _shortened(new: Sequence[Dependency], labels: Mapping[int, str]) -> list[Dependency]:
    """Return the dependencies `new`, but with one dependency on a new array in place of dependencies on all
    its elements. `labels` contains the display id of the new job for each old job.
    """
    sizes: dict[str, int] = {}
    for label in labels.values():
        array = label.partition("_")[0]
        sizes[array] = sizes.get(array, 0) + 1
    found: dict[Dependency, None] = {}
    named = [each.job.partition("_")[0] for each in new]
    for each, array in zip(new, named, strict=True):
        whole = named.count(array) == sizes[array]
        found[Dependency(each.until, array) if whole else each] = None
    return list(found)
