"""Keeps the steps (srun commands) of running attempts in memory. The agent of an attempt's first node reports
the steps.

When an attempt ends, the agent's report of the end contains its steps, and both are written to the journal
together. After a restart of the controller, the steps of running attempts are missing until the agents have
connected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from controller.core.model.job import Job
from wire.agent.steps import StepsReport
from wire.job.steps import MAX_STEPS, Step


class RunningSteps:
    """The steps (srun commands) of each running attempt, by step number."""

    def __init__(self, job_of: Callable[[int], Job | None]) -> None:
        self._job_of = job_of
        self._steps: dict[int, tuple[int, dict[int, Step]]] = {}
        self._prune_at = 64

    def report(self, node: str, frame: StepsReport) -> None:
        """Add steps that the agent of a node reports. Ignore reports about attempts that do not run on this
        node."""
        job = self._job_of(frame.job)
        if job is None or job.attempt != frame.attempt or node not in job.members or not job.unended:
            return
        if len(self._steps) >= self._prune_at:
            self._prune()
        attempt, steps = self._steps.get(frame.job, (0, {}))
        if attempt != frame.attempt:
            attempt, steps = self._steps[frame.job] = (frame.attempt, {})
        for step in frame.steps:
            if step.number in steps or len(steps) < MAX_STEPS:
                steps[step.number] = step

    def of(self, job: Job) -> Iterator[Step]:
        """Yield the steps of the job's last attempt in the order of their numbers."""
        recorded = [step for member in job.members.values() for step in member.steps]
        if not recorded:
            attempt, steps = self._steps.get(job.id, (0, {}))
            recorded = list(steps.values()) if attempt == job.attempt and job.members else []
        yield from sorted(recorded, key=lambda step: step.number)

    def _prune(self) -> None:
        """Delete the steps of jobs that have ended."""
        for number in list(self._steps):
            job = self._job_of(number)
            if job is None or not job.unended:
                del self._steps[number]
        self._prune_at = max(64, 2 * len(self._steps))
