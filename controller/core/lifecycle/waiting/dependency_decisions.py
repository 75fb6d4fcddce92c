"""Records which dependencies are met or can never be met, and acts on the jobs that wait for them."""

from __future__ import annotations

from collections.abc import Callable

from controller.core.lifecycle.waiting.dependencies import (
    DependencyIndex,
    Target,
    dependencies_needed,
    why_impossible,
)
from controller.core.model.events.event import Event
from controller.core.model.events.queued import DependencyDecided, GateOpened
from controller.core.state.state import State
from wire.job.start_conditions import Until
from wire.names import JobState, Reason


class DependencyDecisions:
    """Decides dependencies after events about the jobs that the dependencies name.

    1. `changed` collects the jobs with a new event. `settle` asks the index for the outcome of each open
       dependency on these jobs.
    2. For each job that waits for a decided dependency, record the outcome.
    3. If enough dependencies of the waiting job are met, open its gate. If too few can still be met, cancel
       the job, unless `cancel_hopeless` is off.

    Cost: O(jobs that wait for the dependency) for each decision.

    Example: job 8 depends on the success of job 7, and job 7 fails. The dependency can never be met, so job 8
    is cancelled with the reason DEPENDENCY.
    """

    def __init__(
        self,
        state: State,
        index: DependencyIndex,
        cancel_hopeless: bool,
        record: Callable[[Event], None],
        end: Callable[..., None],
    ) -> None:
        self._state = state
        self._index = index
        self._cancel_hopeless = cancel_hopeless
        self._record = record
        self._end = end
        self.changed: list[int] = []
        """Ids of jobs with a new event that may decide a dependency of another job."""

    def settle(self, now: float) -> None:
        """Decide the dependencies on the jobs in `changed`."""
        for number in self.changed:
            # The list `changed` grows during the loop, because each decision causes events about other
            # jobs.
            job = self._state.jobs[number]
            for target in self._index.targets(job):
                outcome = self._index.outcome(target, job)
                if outcome is not None:
                    self.decide(target, outcome, now)
        self.changed.clear()

    def decide(self, target: Target, met: bool, now: float) -> None:
        """Record for all waiting jobs that this dependency is met, or that it can never be met."""
        detail = "" if met else why_impossible(self._state, target, {})
        for number, index in self._index.waiting(target):
            job = self._state.jobs[number]
            if job.state.terminal or Reason.DEPENDENCY not in job.wait.gates:
                continue
            path = target[0] if target[1] is Until.DATA else ""
            self._record(DependencyDecided(number, now, index, met, detail, path))
            wait, need = job.wait, dependencies_needed(job.spec)
            if len(wait.met) >= need:
                self._record(GateOpened(number, now, Reason.DEPENDENCY))
            elif len(job.spec.after) - len(wait.lost) < need and self._cancel_hopeless:
                self._end(job, Reason.DEPENDENCY, detail, now, JobState.CANCELLED)
