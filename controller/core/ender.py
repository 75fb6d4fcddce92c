"""How jobs are ended, and their claims: one order to stop, whoever wants it."""

from __future__ import annotations

from collections.abc import Callable

from controller.core import events, moving
from controller.core.effects import Effect, SendToNode
from controller.core.events import Event
from controller.core.jobs import Job
from controller.core.outcome import PREEMPTED, SHRUNK
from controller.core.schedulers import Schedulers
from controller.core.state import State
from wire.frames import Stop
from wire.words import Reason


class Ender:
    """Orders jobs to stop, each as its reason wants."""

    def __init__(
        self,
        state: State,
        schedulers: Schedulers,
        record: Callable[[Event], None],
        order: Callable[[Effect], None],
    ) -> None:
        self._state = state
        self._schedulers = schedulers
        self._record = record
        self._order = order

    def stop(self, job: Job, reason: Reason, by: str, now: float, until: float | None = None) -> None:
        """Order all of a job to end."""
        self._record(events.StopRequested(job.id, now, reason, by, until))
        for member in job.running:
            self.send_stop(job, member.allocation.node)

    def send_stop(self, job: Job, node: str) -> None:
        """Order a job's processes on one node to end, as its reason wants."""
        grace, saving, why = job.spec.grace_s, 0.0, "cancelled"
        if job.stopping is Reason.MEMBER_FAILED:
            why = "member_failed"
        elif job.stopping is Reason.PREEMPTED:
            why = PREEMPTED
            grace = max(grace, self._schedulers.guards_of(job).grace_s)
            saving = job.spec.checkpoint_s if job.spec.saves else 0.0
        elif job.stopping in (Reason.EVICTED, Reason.IDLE):
            why, saving = job.stopping.value, job.spec.checkpoint_s if job.spec.saves else 0.0
        self._order(SendToNode(node, Stop(job.id, job.attempt, grace, why, saving)))

    def send_leave(self, job: Job, node: str) -> None:
        """What an elastic job runs on the node ends; the rest goes on."""
        grace = max(job.spec.grace_s, self._schedulers.guards_of(job).grace_s)
        saving = job.spec.checkpoint_s if job.spec.saves else 0.0
        self._order(SendToNode(node, Stop(job.id, job.attempt, grace, SHRUNK, saving)))

    def unclaim(self, job: Job, why: str, now: float, lost: str = "") -> None:
        """Keep nothing for the job there any more; who was moved to a node that is lost may go back."""
        if job.move is not None:
            back = lost != "" and all(each.node != lost for each in job.move.origin)
            for event in moving.undone(
                self._state, self._schedulers.of(job).placer, job, why, now, back=back
            ):
                self._record(event)
        elif job.claim:
            self._record(events.PreemptionDropped(job.id, now, why))
