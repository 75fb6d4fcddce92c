"""Who has to leave a node because of a NoExecute taint, and where the job goes then."""

from __future__ import annotations

from collections.abc import Iterator

from controller.core.events import JobEnded, JobRequeued
from controller.core.jobs import Job
from controller.core.nodes import Node
from controller.core.state import State
from wire.affinity import Effect, unborne
from wire.words import JobState, Reason


def evicted(state: State, node: Node) -> Iterator[tuple[Job, str]]:
    """The jobs on a node that do not bear its taints, by number, each with what drives it out."""
    taints = node.taints
    for job in [state.jobs[job] for job in sorted(node.held)]:
        taint = unborne(taints, job.ask.part.tolerations, Effect.NO_EXECUTE)
        if taint is not None and job.stopping is None:
            yield job, f"taint {taint} of {node.name}"


def requeued(job: Job, ended: JobEnded) -> JobRequeued | None:
    """What takes the place of this outcome if the job had to leave: it is back where it was in the queue."""
    if job.stopping is not Reason.EVICTED or ended.state is not JobState.FAILED:
        return None
    if ended.reason is Reason.NODE_LOST:
        return None  # nobody can tell whether it succeeded before: what it says about lost nodes holds
    return JobRequeued(job.id, ended.at, job.attempt, Reason.EVICTED, f"evicted: {job.stopped_by}")
