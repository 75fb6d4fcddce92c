"""Decides if a replica of a service is ready, and if the replica must leave its nodes."""

from __future__ import annotations

from collections.abc import Iterator

from controller.core.model.job import NEVER, Job
from controller.core.model.services import MOVE_BEFORE_S, Service
from controller.core.state.state import State
from wire.names import JobState


def is_ready(state: State, service: Service, job: Job, now: float) -> bool:
    """Return whether the replica is ready: the replica runs on connected nodes, is not being stopped, and
    passes its health checks. A replica without health checks must have run for `ready_after_s` seconds.
    """
    if job.state is not JobState.RUNNING or job.stopping is not None:
        return False
    if is_silent(state, job):
        return False
    return job.healthy is True if job.spec.health is not None else now >= ready_at(service, job)


def is_silent(state: State, job: Job) -> bool:
    """Return whether at least one node of the running replica has no connection to the controller. It is then
    unknown whether the replica still works.
    """
    return not all(state.nodes.by_name[member.allocation.node].up for member in job.running)


def ready_at(service: Service, job: Job) -> float:
    """Return the time at which a running replica without health checks becomes ready; NEVER for any other
    replica.
    """
    if job.state is not JobState.RUNNING or job.started_at is None or job.spec.health is not None:
        return NEVER
    return job.started_at + service.ready_after_s


def must_leave(state: State, job: Job, now: float) -> bool:
    """Return whether the running replica must leave its nodes: at least one of them is drained, or is
    reserved for other users (also by a timed drain) now or within MOVE_BEFORE_S seconds.
    """
    drained = any(state.nodes.by_name[member.allocation.node].drained for member in job.running)
    return drained or any(at <= now for at in _leave_times(state, job))


def leaves_at(state: State, job: Job, now: float) -> float:
    """Return the next time at which the replica must leave a node because of a reservation for other users or
    a timed drain; NEVER if there is no such time.
    """
    return min((at for at in _leave_times(state, job) if at > now), default=NEVER)


def _leave_times(state: State, job: Job) -> Iterator[float]:
    """Yield the times at which the replica must leave its nodes because of reservations for other users and
    timed drains. Each time is MOVE_BEFORE_S seconds before the start of a reservation or drain.
    """
    nodes = {member.allocation.node for member in job.running} if state.reservations else set()
    for each in state.reservations:
        if not nodes.isdisjoint(each.nodes) and not each.admits(job.user, job.spec.project):
            yield each.starts_at - MOVE_BEFORE_S
