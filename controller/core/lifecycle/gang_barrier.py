"""The start barrier of gangs: the members of a gang wait until all members are ready, and then start
together.
"""

from __future__ import annotations

from collections.abc import Iterator

from controller.core.model.decision.effects import SendToNode
from controller.core.model.events.attempts import MemberReady
from controller.core.model.job import Job
from controller.core.state.state import State
from wire.agent.orders import Go
from wire.agent.reports import AttemptStatus


def member_ready(job: Job, node: str, status: AttemptStatus, now: float) -> MemberReady | None:
    """Return the event MemberReady if the gang member on `node` has just reached the start barrier. `status`
    is the agent's report. Return None if the member is not ready, or if the event was recorded before.
    """
    member = job.members[node]
    if status.ready and not member.ready and member.started_at is None:
        return MemberReady(job.id, now, job.attempt, node)
    return None


def go_orders_after(job: Job, status: AttemptStatus) -> Iterator[SendToNode]:
    """Yield the order to go on (`Go`) for each gang member at the start barrier. Yield nothing unless
    `status` reports that a member waits at the barrier, and all other members are ready too.

    A member that did not get its order sends its report again. Then all members at the barrier get the order
    again.
    """
    if not status.ready or status.started_at is not None or status.ended_at is not None or job.stopping:
        return
    yield from go_orders(job)


def go_orders(job: Job) -> Iterator[SendToNode]:
    """Yield the order to go on (`Go`) for each gang member that waits at the start barrier. Yield nothing
    while any member is not ready. Members that have ended are ignored.
    """
    members = {name: member for name, member in job.members.items() if member.ended_at is None}
    if all(member.ready or member.started_at is not None for member in members.values()):
        waiting = [name for name, member in members.items() if member.started_at is None]
        yield from (SendToNode(name, Go(job.id, job.attempt)) for name in waiting)


def accepts_fewer_from(job: Job) -> float:
    """Return the time from which a gang with `min_nodes` may start on fewer nodes than `--nodes`."""
    return job.ready_at + job.spec.gang.assembly_s


def start_facts(state: State, job: Job) -> tuple[dict[str, str], str]:
    """Return what the start orders of a job contain in addition to the job: the addresses of its nodes, and
    the QOS that Slurm's commands show for the job.
    """
    return node_addresses(state, job), state.quotas.rules.qos(job.spec.queue)


def node_addresses(state: State, job: Job) -> dict[str, str]:
    """Return the network address of each node of the job's present attempt, by node name."""
    return {name: state.nodes.by_name[name].facts.address for name in job.members}
