"""Flags jobs whose GPUs are idle, and writes a warning to their logs. Ends these jobs if the configuration
requires this.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from controller.core.cluster.node import Node
from controller.core.model.decision.decision import Accepted, Refusal, Reply
from controller.core.model.decision.effects import Effect, SendToNode
from controller.core.model.events.attempts import IdleEnded, IdleKept, IdleNoted
from controller.core.model.events.event import Event
from controller.core.model.inputs import agent_inputs, job_inputs
from controller.core.model.job import Job
from controller.core.state.state import State
from wire.agent.orders import Note
from wire.names import JobState, Reason
from wire.text import duration


class IdleAction(enum.Enum):
    """The action for a job whose GPUs are still idle when the grace time after its idle flag is over."""

    FLAG = "flag"
    """An idle job is only flagged, and continues."""
    REQUEUE = "requeue"
    """An idle job saves a checkpoint if possible, and is queued again with its old priority and age."""
    CANCEL = "cancel"
    """An idle job saves a checkpoint if possible, and is cancelled."""


@dataclass(frozen=True, slots=True)
class IdlePolicy:
    """The settings for jobs with idle GPUs, from `[gpus]` and from the queues that have their own settings.
    These settings determine when GPUs count as idle, and what happens to the job.
    """

    after_s: float = 1_800.0
    reclaim: IdleAction = IdleAction.FLAG
    grace_s: float = 600.0
    """Seconds between the flag and the end of the job."""
    keep_most_s: float = 43_200.0
    """The most seconds for which the owner of a job may order that its idle GPUs are kept (`corral job
    keep`). Operators may order a longer time.
    """
    of_queues: Mapping[str, IdlePolicy] = field(default_factory=dict)
    """By queue name, the settings of the queues that have their own settings."""

    def of(self, queue: str) -> IdlePolicy:
        """Return the settings for the jobs in a queue."""
        return self.of_queues.get(queue, self)

    @property
    def longest_s(self) -> float:
        """The largest `after_s` (seconds without GPU load after which a job is flagged) of all queues. 0 if
        jobs are never flagged.
        """
        return max(self.after_s, *(each.after_s for each in self.of_queues.values()), 0.0)


DEFAULT_IDLE_POLICY: IdlePolicy = IdlePolicy()


class IdleGpuHandler:
    """Flags and ends jobs with idle GPUs. The idle time is measured outside of the engine and arrives as
    inputs.
    """

    def __init__(
        self,
        state: State,
        idling: IdlePolicy,
        record: Callable[[Event], None],
        order: Callable[[Effect], None],
        stop: Callable[[Job, Reason, str, float], None],
    ) -> None:
        self._state = state
        self._idling = idling
        self._record = record
        self._order = order
        self._stop = stop

    def on_idle(self, given: agent_inputs.GpusIdle, now: float) -> None:
        """Flag the job as idle. If it is flagged already and its grace time is over, stop the job. Do nothing
        while an order to keep the job is in force (`keep`). This input is repeated while the GPUs stay idle.
        """
        job = self._running(given.job, given.attempt)
        if job is None or now < (job.kept_until or now):
            return
        if job.idle_since is None:
            idling = self._idling.of(job.spec.queue)
            # Never end a replica of a service, because the GPUs of a replica are idle whenever the service
            # gets no requests.
            ends = idling.reclaim is not IdleAction.FLAG and job.replica is None
            until = now + idling.grace_s if ends else None
            self._record(IdleNoted(job.id, now, job.attempt, given.since, until))
            for member in job.running:
                # Write the warning to the job's log, because the owner of the job reads this log.
                self._order(
                    SendToNode(member.allocation.node, Note(job.id, job.attempt, idle_text(job, now)))
                )
        elif job.idle_until is not None and now >= job.idle_until and job.stopping is None:
            why = f"its GPUs were idle for {duration(now - job.idle_since)}"
            self._stop(job, Reason.IDLE, why, now)

    def on_busy(self, given: agent_inputs.GpusBusy, now: float) -> None:
        """Remove the idle flag of the job, because one of its GPUs is busy again."""
        job = self._running(given.job, given.attempt)
        if job is not None and job.idle_since is not None:
            self._record(IdleEnded(job.id, now, job.attempt))

    def keep(self, given: job_inputs.KeepIdle, now: float) -> Reply:
        """Do not flag or end a running job because of idle GPUs until the requested time. A later command
        replaces an earlier one.
        """
        job = self._state.jobs[given.job]
        if job.state is not JobState.RUNNING or job.stopping is not None:
            message = f"job {job.label} is {'being stopped' if job.stopping else job.state.value}"
            return Refusal("conflict", f"{message}; only running jobs can be kept", "job")
        most_s = self._idling.keep_most_s
        if given.asker is not None and not given.asker.operator and given.for_s > most_s:
            text = f"owners may keep idle GPUs for at most {duration(most_s)}"
            return Refusal(
                "not_allowed", text, "for_s", "Keep the job for a shorter time, or ask an operator."
            )
        self._record(IdleKept(job.id, now, job.attempt, given.by, now + given.for_s, given.why))
        return Accepted((job.id,))

    def on_node_away(self, node: Node, now: float) -> None:
        """Remove the idle flags of the jobs on a disconnected node, because GPU readings of the node are now
        missing.

        When the node connects again, the idle time of its jobs starts at 0.
        """
        for number in sorted(node.held):
            job = self._state.jobs[number]
            if job.idle_since is not None and job.stopping is None:
                self._record(IdleEnded(job.id, now, job.attempt))

    def _running(self, number: int, attempt: int) -> Job | None:
        job = self._state.jobs.get(number)
        return job if job is not None and job.state is JobState.RUNNING and job.attempt == attempt else None


def idle_text(job: Job, now: float) -> str:
    """Return a sentence that says for how long the job's GPUs have been idle, and when the job will be ended
    for this reason. Return an empty text if the GPUs are not idle.
    """
    if job.idle_since is None:
        return ""
    sentence = f"its GPUs have been idle for {duration(now - job.idle_since)}"
    if job.idle_until is None:
        return sentence
    left = duration(max(0.0, job.idle_until - now))
    return (
        f"{sentence}; it will be ended in {left} if that does not change; "
        f"'corral job keep {job.label}' prevents this"
    )


def kept_text(job: Job, now: float) -> str:
    """Return a sentence about the order to keep the job although its GPUs are idle; "" if there is no such
    order.
    """
    if job.kept_until is None or job.kept_until <= now:
        return ""
    why = f": {job.kept_why}" if job.kept_why else ""
    return f"its GPUs may be idle for {duration(job.kept_until - now)}{why}"
