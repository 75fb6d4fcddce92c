"""What jobs wait for in others: whether it has happened, and who has to be told when something did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from controller.core.jobs import NEVER, Job
from controller.core.state import State
from wire.conditions import Dependency, Until
from wire.text import duration, plain
from wire.words import JobState, Reason

SHOWN = 3
"""Dependencies told in a sentence."""
_VERBS = {
    Until.STARTED: "start",
    Until.OK: "succeed",
    Until.NOT_OK: "fail",
    Until.ENDED: "end",
    Until.CHECKPOINT: "save a checkpoint",
}


Edge = tuple[int, int]
"""A job that waits, and the place of what it waits for in its spec."""
Goal = tuple[str, Until]
"""A label or a path, and what is to happen there."""


class Followers:
    """Who waits for what. An event costs as much as there are edges to its job."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._edges: dict[Goal, dict[Edge, None]] = {}
        self._pending: dict[Goal, set[int]] = {}
        """The elements of an array that a goal is not yet decided for, once one of them has moved."""
        self._waiting: dict[int, tuple[Dependency, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._edges)

    @property
    def edges(self) -> list[tuple[Goal, Edge]]:
        """Everything that is waited for, with who does, in order."""
        return sorted((goal, edge) for goal, edges in self._edges.items() for edge in edges)

    @property
    def paths(self) -> list[str]:
        """The paths somebody waits for."""
        return [path for path, until in self._edges if until is Until.DATA]

    def update(self, job: Job) -> None:
        """Make the job follow what it waits for, as long as it does."""
        waits = job.spec.after if Reason.DEPENDENCY in job.wait.gates and not job.state.terminal else ()
        known = self._waiting.get(job.id, ())
        if waits is known:
            return
        for index in range(len(known)):
            self.leave(job.id, index)
        self._waiting.pop(job.id, None)
        if waits:
            self._waiting[job.id] = waits
            decided = {*job.wait.met, *job.wait.lost}
            for index, each in enumerate(waits):
                if index not in decided:
                    self._edges.setdefault(goal_of(each), {})[job.id, index] = None

    def leave(self, job: int, index: int) -> None:
        """The job need not wait for this any more."""
        goal = goal_of(self._waiting[job][index])
        edges = self._edges.get(goal, {})
        edges.pop((job, index), None)
        if not edges:
            self._edges.pop(goal, None)
            self._pending.pop(goal, None)

    def goals(self, job: Job) -> list[Goal]:
        """What others wait for in this job, or in its array."""
        if not self._edges:
            return []
        return [goal for goal in goals_in(job) if goal in self._edges]

    def waiting(self, goal: Goal) -> list[Edge]:
        """Who waits for it."""
        return sorted(self._edges.get(goal, ()))

    def reached(self, goal: Goal, moved: Job) -> bool | None:
        """Is it decided, now that something has happened to this job?"""
        label, until = goal
        if label == moved.label:
            return _verdict(moved, until)
        array = self._state.arrays[int(label)]
        pending = self._pending.get(goal)
        elements = [moved]
        if pending is None:
            pending = self._pending[goal] = set(array.values())
            elements = [self._state.jobs[each] for each in array.values()]
        return _crowd_verdict(elements, until, pending)


def goals_in(job: Job) -> list[Goal]:
    """All that could be waited for in this job, or in its array."""
    labels = (job.label,) if job.array is None else (job.label, str(job.array))
    return [(label, until) for label in labels for until in _VERBS]


def goal_of(dependency: Dependency) -> Goal:
    """What is waited for, whoever does."""
    return dependency.path or dependency.job, dependency.until


def verdict(state: State, dependency: Dependency, known: Mapping[str, JobState]) -> bool | None:
    """Has it happened? None: not yet, and it still may. `known` is how what is forgotten has ended."""
    if dependency.until is Until.DATA:
        return None
    long_ago = known.get(dependency.job)
    array = array_of(state, dependency.job)
    if array is None:
        job = state.find(dependency.job)
        if job is not None:
            return _verdict(job, dependency.until)
        return None if long_ago is None else known_verdict(dependency.until, long_ago)
    decisive = dependency.until is Until.NOT_OK
    if long_ago is not None and known_verdict(dependency.until, long_ago) is decisive:
        return decisive
    return _crowd_verdict(
        [state.jobs[each] for each in array.values()], dependency.until, set(array.values())
    )


def array_of(state: State, label: str) -> Mapping[int, int] | None:
    """The elements of the array that this label means; None if it means a single job."""
    return None if "_" in label else state.arrays.get(int(label))


def canonical(state: State, dependency: Dependency) -> Dependency:
    """The same, with the job by the label that is its own: 7 may be an element of array 5."""
    if not dependency.job or array_of(state, dependency.job) is not None:
        return dependency
    job = state.find(dependency.job)
    return dependency if job is None else replace(dependency, job=job.label)


def _crowd_verdict(elements: Iterable[Job], until: Until, pending: set[int]) -> bool | None:
    """All of an array have to have done it; to fail, one is enough."""
    decisive = until is Until.NOT_OK
    for element in elements:
        found = _verdict(element, until)
        if found is decisive:
            return found
        if found is not None:
            pending.discard(element.id)
    return None if pending else not decisive


def _verdict(job: Job, until: Until) -> bool | None:
    """Whether one job has done it; False if it never will."""
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
    """Has any attempt of the job been running?"""
    return job.started_at is not None or job.attempt > (job.state is not JobState.QUEUED)


def known_verdict(until: Until, ended: JobState) -> bool:
    """The verdict on a job that ended long ago: of its life only its outcome is at hand."""
    if until in (Until.OK, Until.CHECKPOINT):
        return ended is JobState.COMPLETED
    if until is Until.NOT_OK:
        return ended is not JobState.COMPLETED
    return True


def told(dependency: Dependency) -> str:
    """job 12 to succeed."""
    if dependency.until is Until.DATA:
        return f"{plain(dependency.path)} to be there"
    return f"job {dependency.job} to {_VERBS[dependency.until]}"


def lost(state: State, goal: Goal, known: Mapping[str, JobState]) -> str:
    """Why it never will happen."""
    label, until = goal
    array = array_of(state, label)
    jobs = [state.find(label)] if array is None else [state.jobs[each] for each in array.values()]
    culprit = next((job for job in jobs if job is not None and _verdict(job, until) is False), None)
    hopeless = f"job {label} can no longer {_VERBS[until]}"
    if culprit is None:
        return f"{hopeless}: it is {known[label].value}" if label in known else hopeless
    how = f" ({plain(culprit.detail)})" if culprit.detail else ""
    return f"{hopeless}: job {culprit.label} is {culprit.state.value}{how}"


def waits_for(state: State, job: Job, now: float) -> str:
    """What the job still waits for, and how that does."""
    spec, decided = job.spec, {*job.wait.met, *job.wait.lost}
    left = [each for index, each in enumerate(spec.after) if index not in decided]
    parts = [told(each) + _progress(state, each, now) for each in left[:SHOWN]]
    if len(left) > SHOWN:
        parts.append(f"{len(left) - SHOWN} more")
    need = len(spec.after) if spec.after_count is None else spec.after_count
    if need > len(spec.after) - len(job.wait.lost):
        gone = "; ".join(lost(state, goal_of(spec.after[index]), {}) for index in job.wait.lost[:SHOWN])
        return f"never starts: {gone}; change what it waits for, or cancel it"
    some = "" if need == len(spec.after) else f"{need - len(job.wait.met)} of "
    return f"waits for {some}{', '.join(parts)}"


def _progress(state: State, dependency: Dependency, now: float) -> str:
    job = state.find(dependency.job) if dependency.job else None
    if job is None or (job.array is not None and "_" not in dependency.job):
        return ""
    if job.placed_at is None or job.expected_end == NEVER:
        return f" ({job.state.value.lower()})"
    return f" ({job.state.value.lower()}, ends in {duration(job.expected_end - now)} at the latest)"


def find_cycle(state: State, job: Job, after: tuple[Dependency, ...]) -> list[str]:
    """The way from the job back to itself that these dependencies would close, as labels; or nothing."""
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
    """What the job or the elements of the array still wait for."""
    array = array_of(state, label)
    jobs = [state.find(label)] if array is None else [state.jobs[each] for each in array.values()]
    for job in jobs:
        if job is not None and Reason.DEPENDENCY in job.wait.gates:
            yield from job.spec.after
