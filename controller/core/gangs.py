"""A gang starts when all its members are ready, or not at all; and what its members say is heard together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from controller.core.effects import SendToNode
from controller.core.events import Exit, MemberReady
from controller.core.inputs import AgentReported, Input, MembersReported
from controller.core.jobs import Job
from wire.frames import AttemptStatus, Go

A = TypeVar("A")


def news(job: Job, node: str, status: AttemptStatus, now: float) -> MemberReady | None:
    """That a member has come to the barrier, if that is not known."""
    member = job.members[node]
    if status.ready and not member.ready and member.started_at is None:
        return MemberReady(job.id, now, job.attempt, node)
    return None


def plain(status: AttemptStatus) -> bool:
    """Does a member tell of nothing but its process? Not that it waits for others, nor what it has saved."""
    waits = status.ready and status.started_at is None
    return not waits and (status.checkpoint is None or status.ended_at is not None)


def exits_of(over: Mapping[str, AttemptStatus]) -> dict[str, Exit]:
    """How members ended, by node; those of whom the same words are told have one exit."""
    exits: dict[str, Exit] = {}
    told = how = None
    for node, status in over.items():
        if how is None or status is not told:
            told, how = status, exit_of(status)
        exits[node] = how
    return exits


def exit_of(status: AttemptStatus) -> Exit:
    """How one member ended."""
    usage, checkpoint = status.usage, status.checkpoint
    if usage is None:
        return Exit(status.code, status.signal, status.why, checkpoint=checkpoint)
    return Exit(status.code, status.signal, status.why, usage.cpu_s, usage.max_rss_mib, checkpoint, usage.gpu)


def together(taken: Iterable[tuple[Input, A | None]]) -> Iterator[tuple[Input, A | None]]:
    """What members of one attempt report in a row, as one input; all else as it came.

    The order of reports of different attempts is of no importance to anybody. The second word of the same
    agent is: it waits until the first has been heard.
    """
    heard: dict[tuple[int, int], dict[str, AgentReported]] = {}
    for given, answer in taken:
        if isinstance(given, AgentReported) and answer is None:
            key = given.status.job, given.status.attempt
            if given.node in heard.get(key, ()):
                yield from _heard(heard)
            heard.setdefault(key, {})[given.node] = given
        else:
            yield from _heard(heard)
            yield given, answer
    yield from _heard(heard)


def _heard(heard: dict[tuple[int, int], dict[str, AgentReported]]) -> Iterator[tuple[Input, None]]:
    for key, reports in heard.items():
        if len(reports) == 1:
            yield next(iter(reports.values())), None
        else:
            yield MembersReported(*key, {node: report.status for node, report in reports.items()}), None
    heard.clear()


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
