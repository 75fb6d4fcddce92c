"""Dependencies between jobs. Finds out which dependencies are met, and which jobs wait for other jobs. The
target of a dependency is a job, an array or a path, together with a condition such as `ok`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from controller.core.model.job import NEVER, Job
from controller.core.state.state import State
from wire.job.spec import JobSpec
from wire.job.start_conditions import Dependency, Until
from wire.names import JobState, Reason
from wire.text import duration, printable

MAX_SHOWN = 3
"""One sentence names at most this many dependencies."""
_VERBS = {
    Until.STARTED: "start",
    Until.OK: "succeed",
    Until.NOT_OK: "fail",
    Until.ENDED: "end",
    Until.CHECKPOINT: "save a checkpoint",
}


Edge = tuple[int, int]
"""(id of the waiting job, index of the dependency in its `spec.after`)."""
Target = tuple[str, Until]
"""The target of a dependency: (display id of a job or array, or a path; the condition that must become
true).
"""


class DependencyIndex:
    """The open dependencies of queued jobs, by target. A dependency is open as long as it may still be met. A
    target is a pair (display id of a job, or a path, condition).

    A dependency on an array is met when all elements meet the condition; for NOT_OK, one element is enough.
    The dependency can never be met when one element (for NOT_OK, every element) can no longer meet the
    condition. The first call of `outcome` for an array reads all elements.
    After that, `_pending` contains the elements that may still meet the condition.

    Cost: O(dependencies on the job) for each event about a job.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self.by_target: dict[Target, dict[Edge, None]] = {}
        self._pending: dict[Target, set[int]] = {}
        """For each target that is an array, the elements for which it is not decided yet whether they meet
        the condition. An entry is made at the first event about an element of the array.
        """
        self._waiting: dict[int, tuple[Dependency, ...]] = {}

    @property
    def edges(self) -> list[tuple[Target, Edge]]:
        """All dependencies for which jobs wait, as sorted pairs (target, edge). A target is (display id or
        path, condition). An edge is (id of the waiting job, index of the dependency in the job's spec).
        """
        return sorted((target, edge) for target, edges in self.by_target.items() for edge in edges)

    @property
    def data_paths(self) -> list[str]:
        """The file paths for which jobs wait. A job waits until its path exists."""
        return [path for path, until in self.by_target if until is Until.DATA]

    def update(self, job: Job) -> None:
        """Put the open dependencies of a job into the index. If the job does not wait for dependencies,
        remove its dependencies from the index.
        """
        waits = job.spec.after if Reason.DEPENDENCY in job.wait.gates and not job.state.terminal else ()
        known = self._waiting.get(job.id, ())
        if waits is known:
            return
        for index in range(len(known)):
            self.remove(job.id, index)
        self._waiting.pop(job.id, None)
        if waits:
            self._waiting[job.id] = waits
            decided = {*job.wait.met, *job.wait.lost}
            for index, each in enumerate(waits):
                if index not in decided:
                    self.by_target.setdefault(target_of(each), {})[job.id, index] = None

    def remove(self, job: int, index: int) -> None:
        """Remove a dependency of a job from the index, because it is met or can never be met."""
        target = target_of(self._waiting[job][index])
        edges = self.by_target.get(target, {})
        edges.pop((job, index), None)
        if not edges:
            self.by_target.pop(target, None)
            self._pending.pop(target, None)

    def targets(self, job: Job) -> list[Target]:
        """Return the targets of open dependencies that name this job or its array.

        A target is a pair (display id, condition), such as ("7", Until.OK).
        """
        return [target for target in targets_of_job(job) if target in self.by_target]

    def waiting(self, target: Target) -> list[Edge]:
        """Return the waiting jobs with an open dependency on the target, as sorted pairs (job id, index of
        the dependency in the job's spec).
        """
        return sorted(self.by_target.get(target, ()))

    def outcome(self, target: Target, changed: Job) -> bool | None:
        """Return True if the target (display id, condition) is met, False if the target can never be met, and
        None if this is not decided yet.

        `changed` is the job of the last event: the job of the target, or an element of its array.
        """
        label, until = target
        if label == changed.label:
            return job_outcome(changed, until)
        array = self._state.arrays[int(label)]
        pending = self._pending.get(target)
        elements = [changed]
        if pending is None:
            pending = self._pending[target] = set(array.values())
            elements = [self._state.jobs[each] for each in array.values()]
        return _array_outcome(elements, until, pending)


def targets_of_job(job: Job) -> list[Target]:
    """Return all pairs (display id, condition) with which another job can depend on this job. The display id
    is that of the job or of its array. Each display id is combined with every condition.
    """
    labels = (job.label,) if job.array is None else (job.label, str(job.array))
    return [(label, until) for label in labels for until in _VERBS]


def target_of(dependency: Dependency) -> Target:
    """Return the target of a dependency: (display id of a job, or a path, condition)."""
    return dependency.path or dependency.job, dependency.until


def outcome_for(state: State, dependency: Dependency, known: Mapping[str, JobState]) -> bool | None:
    """Return True if the dependency is met, False if it can never be met, None if this is not decided yet.

    `known` contains the final states of old jobs that are only in the store and not in memory.
    """
    if dependency.until is Until.DATA:
        return None
    old_end = known.get(dependency.job)
    array = array_elements(state, dependency.job)
    if array is None:
        job = state.find(dependency.job)
        if job is not None:
            return job_outcome(job, dependency.until)
        return None if old_end is None else outcome_from_end(dependency.until, old_end)
    decisive = dependency.until is Until.NOT_OK
    if old_end is not None and outcome_from_end(dependency.until, old_end) is decisive:
        return decisive
    return _array_outcome(
        [state.jobs[each] for each in array.values()], dependency.until, set(array.values())
    )


def array_elements(state: State, label: str) -> Mapping[int, int] | None:
    """Return the job id of each element of the array with this display id, by index. Return None if no array
    in memory has this display id.
    """
    return None if "_" in label else state.arrays.get(int(label))


def canonical(state: State, dependency: Dependency) -> Dependency:
    """Return the dependency with the display id of the other job in place of its internal id, because
    dependencies are found by display id. For example, element 2 of array 5 has the display id 5_2, and may
    have the internal id 7.
    """
    if not dependency.job or array_elements(state, dependency.job) is not None:
        return dependency
    job = state.find(dependency.job)
    return dependency if job is None else replace(dependency, job=job.label)


def _array_outcome(elements: Iterable[Job], until: Until, pending: set[int]) -> bool | None:
    """Return True if the array meets the condition `until`, False if it can never meet the condition,
    otherwise None. All elements must meet the condition. For NOT_OK (a failure), one element is enough.

    `pending` contains the elements that may still meet the condition. The function removes elements that are
    decided from `pending`.
    """
    decisive = until is Until.NOT_OK
    for element in elements:
        found = job_outcome(element, until)
        if found is decisive:
            return found
        if found is not None:
            pending.discard(element.id)
    return None if pending else not decisive


def job_outcome(job: Job, until: Until) -> bool | None:
    """Return True if the job meets the condition `until`, False if it can never meet the condition, and None
    if this is not decided yet.
    """
    over, completed = job.state.terminal, job.state is JobState.COMPLETED
    if until is Until.OK:
        return completed if over else None
    if until is Until.NOT_OK:
        return not completed if over else None
    if until is Until.ENDED:
        return True if over else None
    happened = has_started(job) if until is Until.STARTED else job.checkpoint is not None
    return True if happened else False if over else None


def has_started(job: Job) -> bool:
    """Return whether any attempt of the job has started to run."""
    return job.started_at is not None or job.attempt > (job.state is not JobState.QUEUED)


def outcome_from_end(until: Until, ended: JobState) -> bool:
    """Return whether a job with the final state `ended` counts as meeting the condition `until`. This is for
    old jobs that are only in the store. A completed old job counts as having saved a checkpoint, and each old
    job as having started.
    """
    if until in (Until.OK, Until.CHECKPOINT):
        return ended is JobState.COMPLETED
    if until is Until.NOT_OK:
        return ended is not JobState.COMPLETED
    return True


def dependency_text(dependency: Dependency) -> str:
    """Return the dependency as the end of a sentence, for example `job 12 to succeed`."""
    if dependency.until is Until.DATA:
        return f"{printable(dependency.path)} to exist"
    return f"job {dependency.job} to {_VERBS[dependency.until]}"


def why_impossible(state: State, target: Target, known: Mapping[str, JobState]) -> str:
    """Return a sentence that says why a dependency can never be met. `target` is a pair: a job, array or
    path, and a condition.
    """
    label, until = target
    array = array_elements(state, label)
    jobs = [state.find(label)] if array is None else [state.jobs[each] for each in array.values()]
    cause = next((job for job in jobs if job is not None and job_outcome(job, until) is False), None)
    hopeless = f"job {label} can no longer {_VERBS[until]}"
    if cause is None:
        return f"{hopeless}: it is {known[label].value}" if label in known else hopeless
    how = f" ({printable(cause.detail)})" if cause.detail else ""
    return f"{hopeless}: job {cause.label} is {cause.state.value}{how}"


def waiting_text(state: State, job: Job, now: float) -> str:
    """Return a sentence about the dependencies for which a job still waits. The sentence also gives the state
    of each of these other jobs.
    """
    spec, decided = job.spec, {*job.wait.met, *job.wait.lost}
    left = [each for index, each in enumerate(spec.after) if index not in decided]
    parts = [dependency_text(each) + _progress(state, each, now) for each in left[:MAX_SHOWN]]
    if len(left) > MAX_SHOWN:
        parts.append(f"{len(left) - MAX_SHOWN} more")
    need = dependencies_needed(spec)
    if need > len(spec.after) - len(job.wait.lost):
        gone = "; ".join(
            why_impossible(state, target_of(spec.after[index]), {}) for index in job.wait.lost[:MAX_SHOWN]
        )
        return f"never starts: {gone}; change its dependencies, or cancel it"
    some = "" if need == len(spec.after) else f"{need - len(job.wait.met)} of "
    return f"waits for {some}{', '.join(parts)}"


def dependencies_needed(spec: JobSpec) -> int:
    """Return the number of dependencies that must be met before the job may start: `after_count`, or all of
    them if it is not set.
    """
    return len(spec.after) if spec.after_count is None else spec.after_count


def _progress(state: State, dependency: Dependency, now: float) -> str:
    job = state.find(dependency.job) if dependency.job else None
    if job is None or (job.array is not None and "_" not in dependency.job):
        return ""
    if job.placed_at is None or job.latest_end == NEVER:
        return f" ({job.state.value.lower()})"
    return f" ({job.state.value.lower()}, ends in {duration(job.latest_end - now)} at the latest)"


def find_cycle(state: State, job: Job, after: tuple[Dependency, ...]) -> list[str]:
    """Return the display ids of jobs that would wait for each other in a cycle if this job got the
    dependencies `after`. Return an empty list if there would be no cycle.
    """
    targets = {job.label, str(job.array)}
    seen: set[str] = set()
    paths: list[tuple[str, ...]] = [(each.job,) for each in after if each.job]
    while paths:
        path = paths.pop()
        label = path[-1]
        if label in targets:
            return [job.label, *path]
        if label not in seen:
            seen.add(label)
            paths += [(*path, each.job) for each in _next(state, label) if each.job]
    return []


def _next(state: State, label: str) -> Iterator[Dependency]:
    """Yield the dependencies of the job with this display id. For an array, yield the dependencies of all its
    elements.

    Jobs that no longer wait for dependencies are left out.
    """
    array = array_elements(state, label)
    jobs = [state.find(label)] if array is None else [state.jobs[each] for each in array.values()]
    for job in jobs:
        if job is not None and Reason.DEPENDENCY in job.wait.gates:
            yield from job.spec.after
