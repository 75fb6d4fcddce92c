"""Orders jobs to stop, withdraws their nominations (nodes kept for waiting jobs), and finds the jobs that a
taint evicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from controller.core.cluster.node import Node
from controller.core.framework.interfaces import PreemptionGuards
from controller.core.lifecycle import move_rollback
from controller.core.model.decision.effects import Effect, SendToNode
from controller.core.model.events.attempts import StopRequested
from controller.core.model.events.event import Event
from controller.core.model.events.nominations import PreemptionDropped
from controller.core.model.exit_outcome import SHRUNK
from controller.core.model.job import Job
from controller.core.placement.placer import Placer
from controller.core.state.state import State
from wire.agent.orders import Stop, TimeLimit
from wire.job.placement import affinity
from wire.names import Reason


class ProfileLookup(Protocol):
    """An object that knows the preemption settings and the placer of each job's scheduler profile."""

    def guards_of(self, job: Job) -> PreemptionGuards:
        """Return the limits that protect the job from preemption."""
        ...

    def placer_of(self, job: Job) -> Placer:
        """Return the placer of the job's scheduler profile. A placer chooses nodes for jobs."""
        ...


class Stopper:
    """Orders jobs to stop. The reason for the stop decides the grace time, and whether the job may save a
    checkpoint.
    """

    def __init__(
        self,
        state: State,
        schedulers: ProfileLookup,
        record: Callable[[Event], None],
        order: Callable[[Effect], None],
    ) -> None:
        self._state = state
        self._schedulers = schedulers
        self._record = record
        self._order = order

    def stop(self, job: Job, reason: Reason, by: str, now: float, until: float | None = None) -> None:
        """Order all processes of a job to end. `by` names the user or the job that ordered the stop, or
        another cause. `until` is the latest time at which the job ends; None if this time is not known yet.
        """
        self._record(StopRequested(job.id, now, reason, by, until))
        for member in job.running:
            self.send_stop(job, member.allocation.node)

    def send_stop(self, job: Job, node: str) -> None:
        """Order the job's processes on one node to end. The reason is in `job.stopping`."""
        grace, saving, why = job.spec.grace_s, 0.0, "cancelled"
        if job.stopping is Reason.MEMBER_FAILED:
            why = "member_failed"
        elif job.stopping in (Reason.PREEMPTED, Reason.DRAINED):
            why = job.stopping.value
            grace = max(grace, self._schedulers.guards_of(job).grace_s)
            saving = job.spec.checkpoint_s if job.spec.saves else 0.0
        elif job.stopping in (Reason.EVICTED, Reason.IDLE, Reason.REQUEUED):
            why, saving = job.stopping.value, job.spec.checkpoint_s if job.spec.saves else 0.0
        self._order(SendToNode(node, Stop(job.id, job.attempt, grace, why, saving)))

    def send_limit(self, job: Job) -> None:
        """Send the extended time limit of a running job to the agents of its nodes."""
        for member in job.running:
            frame = TimeLimit(job.id, job.attempt, job.limit)
            self._order(SendToNode(member.allocation.node, frame))

    def send_leave(self, job: Job, node: str) -> None:
        """Order the processes of an elastic job on one node to end, because the job gives up this node. The
        processes of the job on other nodes continue.
        """
        grace = max(job.spec.grace_s, self._schedulers.guards_of(job).grace_s)
        saving = job.spec.checkpoint_s if job.spec.saves else 0.0
        self._order(SendToNode(node, Stop(job.id, job.attempt, grace, SHRUNK, saving)))

    def unclaim(self, job: Job, why: str, now: float, lost: str = "") -> None:
        """Withdraw the nomination of a job. The nodes that a preemption or a move kept for the job are
        released.

        `lost` is the name of the node that can no longer be used, for example because it was removed; empty
        if there is another cause. A job that is being moved returns to its old nodes only if `lost` names a
        node that is not one of them.
        """
        if job.move is not None:
            back = lost != "" and all(each.node != lost for each in job.move.origin)
            for event in move_rollback.undo_move(
                self._state, self._schedulers.placer_of(job), job, why, now, back=back
            ):
                self._record(event)
        elif job.claim:
            self._record(PreemptionDropped(job.id, now, why))


def jobs_to_evict(state: State, node: Node) -> Iterator[tuple[Job, str]]:
    """Yield (job, reason) for each job to evict from the node, ordered by job id.

    A job is evicted if it does not tolerate a NoExecute taint of the node, unless the job is being stopped
    already.
    """
    for job in [state.jobs[job] for job in sorted(node.held)]:
        taint = affinity.untolerated_taint(node.taints, job.ask.part.tolerations, affinity.Effect.NO_EXECUTE)
        if taint is not None and job.stopping is None:
            yield job, f"taint {taint} of {node.name}"
