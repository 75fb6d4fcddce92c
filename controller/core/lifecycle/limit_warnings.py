"""Warns the owner of a running job before the time limit ends the job. Advises the owner after the time limit
has ended a job.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

from controller.core.model.decision.effects import Effect, SendToNode
from controller.core.model.events.attempts import AttemptStarted, EndWarned, MembersStarted
from controller.core.model.events.event import Event
from controller.core.model.events.queued import JobEdited
from controller.core.model.inputs import controller_inputs
from controller.core.model.job import NEVER, Job
from controller.core.model.time_limits import TimeLimitRules
from controller.core.state.state import State
from wire.agent.orders import Note
from wire.names import JobState, Reason
from wire.text import duration

MOST_OUTDATED = 10_000
"""About this many entries of ended jobs may stay on the heap of planned warnings. When there are more, these
entries are removed.
"""
LEAST_LEAD_S = 1.0
"""The least time, in seconds, between a warning and the end of the job. A warning that would come later is
not given.
"""

NO_LIMIT_WARNINGS = TimeLimitRules(warning_s=0.0)
LONGER = 1.2
"""A suggested time limit is the run time of similar jobs times this factor."""
LONGEST_S = 10 * 365 * 86_400.0
"""The longest time limit that a job can have, in seconds."""
NEAR = 0.95
"""A fraction of the time limit. If similar jobs ran at least this long, the advice assumes that the job
needed more time.
"""

PLANS_WARNING = (AttemptStarted, MembersStarted, JobEdited)
"""The events after which a warning is planned for the job."""


class LimitWarnings:
    """Records a warning before the time limit ends a running job. The warning is written to the job's stderr
    and terminals.

    1. When a job starts to run, or when its time limit is extended, push the time of its warning on a heap.
       The warning comes `warning_s` seconds before the limit ends the job, or the time limit times
       WARNING_PART before it, if that is shorter.
    2. When this time has come, record EndWarned with the time at which the limit ends the job. Skip an entry
       of a job that has ended or has another limit now.
    3. With `ends_backfilled`, the preemption strategy `window` may preempt a running job after its predicted
       end, but only for a job that already waited when the running job was placed. If there is such a waiting
       job, also warn the owner before the predicted end.

    Invariant: there is at most one warning for each end at a time limit (`Job.warned_end`), even after a
    restart of the controller. Cost: O(log jobs) for each start of a job and for each warning.

    Example: with `warning_s` = 600, a job with a limit of 1 h is warned 6 minutes before its end, and a job
    with a limit of 8 h is warned 10 minutes before its end.
    """

    def __init__(
        self,
        state: State,
        rules: TimeLimitRules,
        record: Callable[[Event], None],
        order: Callable[[Effect], None],
    ) -> None:
        self._state = state
        self._rules = rules
        self._record = record
        self._order = order
        self.planned: list[tuple[float, int]] = []
        """A heap of (time of the warning, job id)."""
        for job in state.live():
            self._plan(job)

    def clear(self) -> None:
        """Remove all planned warnings, and plan no further warnings."""
        self._rules = NO_LIMIT_WARNINGS
        self.planned.clear()

    @property
    def next_at(self) -> float:
        """The time of the next warning; NEVER if none is planned."""
        heap = self.planned
        while heap and not self._is_due(*heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else NEVER

    def on_event(self, event: Event) -> None:
        """Plan the warnings of a job after its start or after a change of its time limit."""
        if isinstance(event, PLANS_WARNING) and self._rules.warning_s:
            self._plan(self._state.jobs[event.job])

    def _plan(self, job: Job) -> None:
        for at in self._times(job):
            if at < NEVER:
                heapq.heappush(self.planned, (at, job.id))
        if len(self.planned) > MOST_OUTDATED + 2 * len(self._state.releases):
            # Drop the entries of ended jobs, because most jobs end long before their limits.
            self.planned = [each for each in self.planned if self._is_due(*each)]
            heapq.heapify(self.planned)

    def _times(self, job: Job) -> tuple[float, ...]:
        """Return the times of the warnings of a job: before its time limit and, with `ends_backfilled`,
        before its predicted end. A time is NEVER if there is no such warning.
        """
        limit = warns_at(job, self._rules)
        return (limit, window_warns_at(job, self._rules)) if self._rules.ends_backfilled else (limit,)

    def _is_due(self, at: float, number: int) -> bool:
        job = self._state.jobs.get(number)
        return job is not None and at in self._times(job)

    def run(self, now: float) -> None:
        """Give all warnings that are planned for the time `now` or earlier."""
        while self.next_at <= now:
            at, number = heapq.heappop(self.planned)
            job = self._state.jobs[number]
            if at == warns_at(job, self._rules):
                self._warn(job, now)
            elif now < window_end(job) and self._is_waited_for(job):
                self._warn_of_window(job, now)

    def on_recorded(self, given: controller_inputs.WarnOfLimit, now: float) -> None:
        """Repeat a warning from a journal that is replayed. Do nothing unless the same attempt still runs."""
        job = self._state.jobs.get(given.job)
        if job is None or job.attempt != given.attempt:
            return
        if given.window and window_end(job) < NEVER:
            self._warn_of_window(job, now)
        elif not given.window and limit_end(job) < NEVER:
            self._warn(job, now)

    def _warn(self, job: Job, now: float) -> None:
        end = limit_end(job)
        self._record(EndWarned(job.id, now, job.attempt, end, Reason.TIME_LIMIT, "its time limit"))
        text = f"{limit_warning_text(job, now)}; {self._advice(job)}"
        for member in job.running:
            self._order(SendToNode(member.allocation.node, Note(job.id, job.attempt, text)))

    def _warn_of_window(self, job: Job, now: float) -> None:
        end = window_end(job)
        detail = "its predicted run time is over then, and a job that waited before it may take its place"
        self._record(EndWarned(job.id, now, job.attempt, end, Reason.PREEMPTED, detail))
        text = f"it may be preempted in {duration(end - now)}: {detail}"
        for member in job.running:
            self._order(SendToNode(member.allocation.node, Note(job.id, job.attempt, text)))

    def _is_waited_for(self, job: Job) -> bool:
        """Return whether a job in the queue already waited when this job was placed."""
        jobs, placed_at = self._state.jobs, job.placed_at or 0.0
        firsts = (next(iter(lane), None) for lane in self._state.queue)
        return any(first is not None and jobs[first[1]].ready_at < placed_at for first in firsts)

    def _advice(self, job: Job) -> str:
        if self._rules.owners_may_extend:
            return f"'corral job set {job.label} --time +1h' extends it if that delays no other job"
        return "operators may extend it"


def limit_end(job: Job) -> float:
    """Return the time at which the time limit ends the job. Return NEVER if it will not end the job, because
    the job is not running, is being stopped already, or has no limit.
    """
    if job.state is not JobState.RUNNING or job.started_at is None or job.stopping is not None:
        return NEVER
    return job.started_at + job.limit


def warns_at(job: Job, rules: TimeLimitRules) -> float:
    """Return the time at which the owner is warned of the job's end at its time limit. Return NEVER if the
    owner was already warned of this end, or gets no warning.
    """
    end = limit_end(job)
    lead = rules.lead_s(job.limit)
    return NEVER if end == NEVER or job.warned_end == end or lead < LEAST_LEAD_S else end - lead


def window_end(job: Job) -> float:
    """Return the predicted end of a running job. After this time the strategy `window` may preempt the job.
    Return NEVER if there is no prediction, if the owner was already warned of the end at the time limit, or
    if the job has run longer than predicted.
    """
    if job.state is not JobState.RUNNING or job.started_at is None or job.placed_at is None:
        return NEVER
    if job.planned_s is None or job.outlived or job.warned_end is not None or job.stopping is not None:
        return NEVER
    return job.placed_at + job.planned_s


def window_warns_at(job: Job, rules: TimeLimitRules) -> float:
    """Return the time at which the owner is warned that the job may be preempted after its predicted end.
    Return NEVER if there is no such warning.
    """
    end = window_end(job)
    lead = rules.lead_s(job.planned_s or 0.0)
    return NEVER if end == NEVER or lead < LEAST_LEAD_S else end - lead


def limit_warning_text(job: Job, now: float) -> str:
    """Return a sentence about the coming end of the job at its time limit. Return an empty text if the owner
    was not warned of this end.
    """
    end = limit_end(job)
    if job.warned_end is None or job.warned_end != end or end <= now:
        return ""
    return f"its time limit of {duration(job.limit)} ends it in {duration(end - now)}"


def advice_after_limit(job: Job, usual_s: float | None) -> str:
    """Return advice for the owner of a job that was ended by its time limit: a longer limit, checkpoints or
    `--time-min`. `usual_s` is the run time in seconds of similar jobs. None means that it is unknown.

    Example: "it ran its whole limit of 1h00m; similar jobs ran up to 1h50m: submit it again with --time 130m;
    with checkpoints (--checkpoint-signal, --checkpoint-dir) the next run could continue from the last one".
    """
    spec, limit = job.spec, min(job.limit, LONGEST_S)
    texts = [f"it ran its whole limit of {duration(limit)}"]
    if job.short is not None:
        texts = [f"the scheduler had given it {duration(limit)} (--time-min), to start it earlier"]
    minutes = math.ceil(max(limit * 2 if usual_s is None else usual_s * LONGER, 60.0) / 600.0) * 10
    again = f"submit it again with a longer limit, such as --time {minutes}m"
    if usual_s is None:
        texts.append(again)
    elif usual_s > limit * NEAR:
        texts.append(f"similar jobs ran up to {duration(usual_s)}: {again}")
    else:
        texts.append(f"similar jobs ended within {duration(usual_s)}: look at its output before another run")
    if job.checkpoint is not None:
        texts.append(f"its last checkpoint is {job.checkpoint.path}")
    elif not spec.saves and not spec.checkpoint_dir:
        texts.append(
            "with checkpoints (--checkpoint-signal, --checkpoint-dir) the next run could continue from the "
            "last one" + ("" if spec.time_min_s else ", and start earlier with --time-min")
        )
    return "; ".join(texts)
