"""A gang starts when all its members are ready, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

from controller.core.effects import SendToNode
from controller.core.events import MemberReady
from controller.core.jobs import Job
from wire.frames import AttemptStatus, Go


def news(job: Job, node: str, status: AttemptStatus, now: float) -> MemberReady | None:
    """That a member has come to the barrier, if that is not known."""
    member = job.members[node]
    if status.ready and not member.ready and member.started_at is None:
        return MemberReady(job.id, now, job.attempt, node)
    return None


def releases(job: Job, status: AttemptStatus) -> Iterator[SendToNode]:
    """Once all are ready all may go; who says again that it waits has missed it, and is told again."""
    if not status.ready or status.started_at is not None or status.ended_at is not None or job.stopping:
        return
    yield from all_go(job)


def all_go(job: Job) -> Iterator[SendToNode]:
    """The word to all who wait, if nobody has to be waited for who may still come."""
    members = {name: member for name, member in job.members.items() if member.ended_at is None}
    if all(member.ready or member.started_at is not None for member in members.values()):
        waiting = [name for name, member in members.items() if member.started_at is None]
        yield from (SendToNode(name, Go(job.id, job.attempt)) for name in waiting)


def ripe_from(job: Job) -> float:
    """When a gang that may start on fewer nodes has waited long enough to do so."""
    return job.ready_at + job.spec.gang.assembly_s
