"""Workloads: tasks that are submitted together. A task is one job, or an array of jobs with different
commands.

A task can depend on other tasks of its workload. `cli/workloads` reads a WorkloadSpec from a file.
"""

from __future__ import annotations

import enum
import re
from dataclasses import fields
from typing import Any, Iterable, Iterator, Mapping, Optional

from wire.codec import Malformed, decode
from wire.dataclass import dataclass
from wire.job.spec import JobSpec, is_storable, with_values
from wire.job.start_conditions import MAX_AFTER, Until

MAX_JOBS = 10_000
MAX_TASKS = 1_000
MAX_PARALLEL = 100_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")
_JOB_FIELDS = frozenset(each.name for each in fields(JobSpec))
_FIXED = frozenset(("array", "after", "after_count", "by_default", "hold", "lease_s"))
"""The fields of JobSpec that an entry of `elements` must not set. They are set for the whole task, or by the
controller.
"""


class OnFailure(str, enum.Enum):
    """What Corral does with the waiting jobs of a workload when one of its jobs has failed."""

    CONTINUE = "continue"
    """The other jobs run, except dependents of the failed job."""
    STOP = "stop"
    """The waiting jobs are cancelled. Running jobs continue."""


@dataclass(frozen=True)
class TaskDependency:
    """A dependency of task B on task A: the name of A, and the state that the jobs of A must have reached.

    Without `elements`, each job of B waits for all jobs of A. With `elements`, job i of B waits only for the
    jobs of A whose indices are in `elements[i]`.
    """

    task: str
    until: Until = Until.OK
    elements: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class WorkloadTask:
    """One task: a job, or an array with one job for each entry of `elements`.

    An entry of `elements` has the fields of JobSpec that differ from `spec` for this job. At most
    `max_parallel` jobs of the task run at a time; None means no limit.
    """

    name: str
    spec: JobSpec
    elements: tuple[Mapping[str, Any], ...] = ()
    after: tuple[TaskDependency, ...] = ()
    max_parallel: Optional[int] = None

    @property
    def size(self) -> int:
        """Return the number of jobs of the task."""
        return len(self.elements) or 1


@dataclass(frozen=True)
class WorkloadSpec:
    """The request of a workload. At most `max_parallel` of its jobs run at a time; None means no limit."""

    tasks: tuple[WorkloadTask, ...]
    name: str = ""
    max_parallel: Optional[int] = None
    on_failure: OnFailure = OnFailure.CONTINUE


def array_text(indices: Iterable[int], max_parallel: Optional[int]) -> str:
    """Return the text of `--array` for these indices: `0-3,7%2` for the indices 0, 1, 2, 3 and 7, of which
    two may run at a time.
    """
    spans: list[list[int]] = []
    for index in indices:
        if spans and spans[-1][1] == index - 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    text = ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
    return text if max_parallel is None else f"{text}%{max_parallel}"


def job_specs(task: WorkloadTask) -> list[JobSpec]:
    """Return the specs of all jobs of a task, without the dependencies on other tasks. Raise Malformed if an
    entry of `elements` is wrong.
    """
    if not task.elements:
        return [task.spec]
    base = with_values(task.spec, {"array": array_text(range(task.size), task.max_parallel)})
    return [
        with_values(base, _values(changes, f"elements[{index}]"))
        for index, changes in enumerate(task.elements)
    ]


def _values(changes: Mapping[str, Any], where: str) -> dict[str, Any]:
    wrong = [name for name in changes if name in _FIXED or name not in _JOB_FIELDS]
    if wrong:
        raise Malformed(
            f"{where}.{wrong[0]}", "is no field that jobs of one task can have different values of"
        )
    part = decode(JobSpec, {"command": ["-"], **changes}, where)
    return {name: getattr(part, name) for name in changes}


def in_order(tasks: tuple[WorkloadTask, ...]) -> list[WorkloadTask]:
    """Return the tasks in an order in which each task comes after its dependencies: first the tasks without
    dependencies, then the tasks that depend only on these, and so on. Tasks in a cycle of dependencies, and
    tasks that depend on them, are left out.
    """
    placed: dict[str, WorkloadTask] = {}
    left = list(tasks)
    while left:
        ready = [task for task in left if all(each.task in placed for each in task.after)]
        if not ready:
            break
        placed.update((task.name, task) for task in ready)
        left = [task for task in left if task.name not in placed]
    return list(placed.values())


def workload_problems(spec: WorkloadSpec) -> Iterator[tuple[str, str]]:
    """Validate a WorkloadSpec, but not the specs of its jobs. Yield each mistake as (field name,
    sentence).
    """
    if len(spec.name) > 200 or not is_storable(spec.name):
        yield "name", "must be Unicode text of at most 200 characters"
    if not 1 <= len(spec.tasks) <= MAX_TASKS:
        yield "tasks", f"must be between 1 and {MAX_TASKS} tasks"
    jobs = sum(task.size for task in spec.tasks)
    if jobs > MAX_JOBS:
        yield "tasks", f"are {jobs:,} jobs together; a workload has at most {MAX_JOBS:,}"
    if spec.max_parallel is not None and not 1 <= spec.max_parallel <= MAX_PARALLEL:
        yield "max_parallel", f"must lie between 1 and {MAX_PARALLEL}"
    by_name = {task.name: task for task in spec.tasks}
    if len(by_name) < len(spec.tasks):
        yield "tasks", "must have different names"
    found = [each for task in spec.tasks for each in _task_problems(task, by_name)]
    yield from found
    if not found and len(in_order(spec.tasks)) < len(by_name):
        ordered = {task.name for task in in_order(spec.tasks)}
        cycle = [task.name for task in spec.tasks if task.name not in ordered]
        yield f"tasks.{cycle[0]}.after", f"depend on each other in a cycle: {', '.join(cycle)}"


def _task_problems(task: WorkloadTask, others: Mapping[str, WorkloadTask]) -> Iterator[tuple[str, str]]:
    where = f"tasks.{task.name}"
    if not _NAME.fullmatch(task.name):
        yield where, "must begin with a letter and have only letters, digits, '_', '.' and '-', at most 100"
    if task.spec.array is not None:
        yield f"{where}.array", "cannot be set for a task; use elements"
    if task.spec.after_count is not None and task.after:
        yield f"{where}.after_count", "cannot be combined with dependencies on tasks"
    if task.max_parallel is not None and not 1 <= task.max_parallel <= MAX_PARALLEL:
        yield f"{where}.max_parallel", f"must lie between 1 and {MAX_PARALLEL}"
    edges = [0] * task.size
    for each in task.after:
        other = others.get(each.task)
        if other is None:
            yield f"{where}.after", f"there is no task {each.task!r} in this workload"
        elif other is task:
            yield f"{where}.after", "cannot name the task itself"
        elif each.until is Until.DATA:
            yield f"{where}.after", "must be a condition that a job can meet"
        elif each.elements:
            numbers = {number for some in each.elements for number in some}
            if len(each.elements) != task.size or not numbers <= set(range(other.size)):
                yield f"{where}.after", f"does not match the {task.size} jobs of the task"
            for place, some in enumerate(each.elements[: task.size]):
                edges[place] += len(some)
        else:
            edges = [have + 1 for have in edges]
    if max(edges) + len(task.spec.after) > MAX_AFTER:
        yield f"{where}.after", f"a job would have more than {MAX_AFTER} dependencies"
