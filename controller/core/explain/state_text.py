"""Describes the state of a job in a sentence: held, starting, running, being moved, being stopped."""

from __future__ import annotations

from controller.core.lifecycle.idle_gpus import idle_text, kept_text
from controller.core.lifecycle.limit_warnings import limit_warning_text
from controller.core.lifecycle.node_loss import NodeLossPolicy, silent_node_text
from controller.core.model.events.nominations import move_cause
from controller.core.model.job import Job
from controller.core.state.state import State
from wire.names import JobState, Reason
from wire.text import duration, printable


def held_text(job: Job) -> str:
    """Return a sentence that says that the job is held, and how the job can be released."""
    if job.operator_hold:
        return f"held by operator {printable(job.operator_hold)}: only an operator can release it"
    return f"held until a release: corral job release {job.label}"


def making_room_text(state: State, job: Job, now: float) -> str:
    """Return a sentence about a nominated job: the nodes that are kept for it, and the preempted jobs that
    must end before it starts.
    """
    victims = sorted(
        {
            victim
            for allocation in job.claim
            for victim, claimant in state.nodes.by_name[allocation.node].leaving.items()
            if claimant == job.id
        }
    )
    nodes = ", ".join(allocation.node for allocation in job.claim)
    if not victims:
        return f"starts on {nodes} in the next cycle"
    names = ", ".join(state.jobs[victim].label for victim in victims)
    left = duration(max(0.0, (job.stop_by or now) - now))
    return f"starts on {nodes} as soon as job {names} has left, in {left} at the latest"


def moving_text(state: State, job: Job) -> str:
    """Return a sentence that names the nodes to which a job is being moved. After a failed move, name the
    nodes to which the job returns.
    """
    last = job.moves[-1]
    if last.undone:
        nodes, why = ", ".join(each.node for each in last.origin), last.undone
        return f"goes back to its former nodes, {nodes}: it could not be moved to {', '.join(last.to)}: {why}"
    other = state.jobs.get(last.for_job or 0)
    why = f" so that job {other.label} can start" if other is not None else ""
    then = "it starts there in the next cycle" if job.state is JobState.QUEUED else "it saves its state first"
    return f"is moved to {', '.join(last.to)}{why} ({move_cause(last.kind, last.proposal)}): {then}"


def _running_remarks(state: State, job: Job, now: float) -> tuple[str, ...]:
    return (
        *(short_limit_text(job), limit_warning_text(job, now)),
        *(_drain_text(state, job, now), kept_text(job, now)),
    )


def short_limit_text(job: Job) -> str:
    """Return a sentence about the time limit of the attempt if this limit is shorter than the limit of the
    job; otherwise an empty text.
    """
    if job.short is None:
        return ""
    asked = job.spec.time_limit_s
    instead = "" if asked is None else f" instead of {duration(asked)}"
    why = f": {job.short.why}" if job.short.why else ""
    return f"its time limit is {duration(job.short.limit_s)}{instead} (--time-min), to start earlier{why}"


def _drain_text(state: State, job: Job, now: float) -> str:
    """Return a sentence about the timed drain of a node that the running job must leave before its own end;
    otherwise an empty text.
    """
    for member in job.running if state.reservations.drains else ():
        node = state.nodes.by_name[member.allocation.node]
        drain = node.timed_drain
        if drain is not None and job.latest_end > drain.empty_by and job.stopping is None:
            why = f" ({printable(drain.why)})" if drain.why else ""
            left = duration(max(0.0, drain.empty_by - now))
            return f"node {node.name} is to be empty in {left}{why}, so the job is told to stop before"
    return ""


_STOPPED_BY = {
    Reason.USER: "cancelled by ",
    Reason.REQUEUED: "it is then queued again, as ordered by ",
    Reason.MEMBER_FAILED: "it has failed on ",
}
"""The words before `Job.stopped_by` (a user or a node), by the reason for the stop. For any other reason,
`stopped_by` is a whole phrase.
"""


def state_text(state: State, job: Job, losses: NodeLossPolicy, now: float) -> str:
    if job.reason is Reason.MOVING:
        return moving_text(state, job)
    if job.detail:
        return job.detail
    if job.reason is Reason.GRACE:
        return f"is being stopped: preempted by {job.stopped_by}"
    if job.stopping is not None and not job.state.terminal:
        verb = _STOPPED_BY.get(job.stopping, "")
        return f"is being stopped: {verb}{job.stopped_by}"
    nodes = ", ".join(member.allocation.node for member in job.staying)
    if job.idle_since is not None:
        return f"running on {nodes}; {idle_text(job, now)}"
    remarks = [text for text in _running_remarks(state, job, now) if text]
    if remarks and job.state in (JobState.RUNNING, JobState.SCHEDULED):
        return f"{'starting' if job.started_at is None else 'running'} on {nodes}; {'; '.join(remarks)}"
    silent = [state.nodes.by_name[member.allocation.node] for member in job.running]
    silent = [node for node in silent if not node.up]
    if silent:
        return f"was on {silent[0].name}, which is silent: it {silent_node_text(job, silent[0], losses)}"
    sentences = {
        JobState.SCHEDULED: f"starting on {nodes}",
        JobState.RUNNING: f"running on {nodes}",
        JobState.COMPLETED: "completed with exit code 0",
    }
    return sentences.get(job.state, job.state.value.lower())
