"""Timed drains (`corral nodes drain --by`): a node must be empty at a given time. Jobs that would still run
at that time are moved or ended, and their owners are warned before.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from controller.core.backfill.profiles.profile_cycles import ProfileCycles
from controller.core.cluster.node import Node, TimedDrain
from controller.core.lifecycle.stop import Stopper
from controller.core.model.decision.effects import Effect, SendToNode
from controller.core.model.events.attempts import EndWarned, JobShrunk
from controller.core.model.events.event import Event
from controller.core.model.events.nodes import DrainBegan
from controller.core.model.events.nominations import MovePlanned
from controller.core.model.job import NEVER, Job
from controller.core.preemption.guards import may_move
from controller.core.preemption.preemptor import grace_of
from controller.core.rebalance.move_search import MoveSearch
from controller.core.rebalance.proposals import DRAIN, RebalanceRules
from controller.core.state.state import State
from wire.agent.orders import Note
from wire.api.nodes import LeavingJob
from wire.names import Reason
from wire.text import duration


class Departure(enum.Enum):
    """What happens to a job on a node that must be empty at a given time."""

    ENDS = "ends"
    """The job ends before the node must be empty, because of its time limit."""
    MOVED = "moved"
    """The job saves its state if possible, and continues on other nodes. The job continues at once, or after
    a wait in the queue.
    """
    ENDED = "ended"
    """The job saves its state if possible and ends, because it may not be queued again."""


WARN_AGAIN_S = 60.0
"""A job is warned again only if the time of its stop has changed by at least this many seconds."""

Stops = dict[tuple[int, str], float]
"""The times at which jobs get a stop order, by (job id, node). The node is the one that an elastic job must
give up, or an empty text if the job must stop on all its nodes.
"""


@dataclass(frozen=True, slots=True)
class DepartingJob:
    """A job on a node that must be empty at a given time. `at` is the time at which the job gets a stop
    order. If the job ends before (ENDS), `at` is the latest time at which it ends.
    """

    job: Job
    how: Departure
    at: float

    @property
    def view(self) -> LeavingJob:
        """Return the job in the form of the API."""
        job = self.job
        return LeavingJob(job.id, job.label, job.name, job.user, self.how.value, self.at)


class TimedDrains:
    """Carries out timed drains. The node must be empty at the time `Node.timed_drain.empty_by`. A TimedDrains
    object stores no data.

    1. From the drain command on, `Reservations` bars the node for each job that could still run at
       `empty_by`. Jobs that end before `empty_by` still start on the node. Replicas of services are moved to
       other nodes early, as before a reservation.
    2. At the drain command, `warn` records a warning for each job that will be stopped, and writes the
       warning to the job's log and terminals. A job is warned again only if the time of its stop changes, for
       example because another of its nodes is drained.
    3. A job that would still run at `empty_by` gets a stop order so early that its checkpoint and its grace
       time are over at `empty_by`. An elastic job gives up only this node. A replica, or a job that may be
       preempted, continues on other nodes. If other nodes are free for the job, they are kept for it; if not,
       the job waits in the queue. Any other job ends with the reason DRAINED.
    4. From `empty_by` on, the node has a drain without a time, so no job starts on the node.

    Invariant: a job is stopped only if it could still run at `empty_by` because of its time limit, or because
    it has none. Cost: O(jobs on nodes with a timed drain) for each step, and one placement for each moved
    job.

    Example: gpu01 is to be empty by 18:00. Job 7 ends at 17:30 at the latest. Job 8 has no time limit and
    needs 60 s for a checkpoint and has a grace time of 60 s. Its owner is warned at once, and the job gets a
    stop order at 17:58. A job of 2 hours may start on gpu01 at 15:00, but not at 16:30.
    """

    def __init__(
        self,
        state: State,
        cycles: ProfileCycles,
        rules: RebalanceRules,
        stopper: Stopper,
        record: Callable[[Event], None],
        order: Callable[[Effect], None],
    ) -> None:
        self._state = state
        self._cycles = cycles
        self._rules = rules
        self._stopper = stopper
        self._record = record
        self._order = order

    @property
    def next_at(self) -> float:
        """The next time at which a job gets a stop order or a node must be empty. NEVER if there are no timed
        drains.
        """
        if not self._state.reservations.drains:
            return NEVER
        return min((at for node, drain in self._drains() for at in self._moments(node, drain)), default=NEVER)

    def _drains(self) -> list[tuple[Node, TimedDrain]]:
        nodes = [self._state.nodes.by_name[name] for name in sorted(self._state.reservations.drains)]
        return [(node, node.timed_drain) for node in nodes if node.timed_drain is not None]

    def _moments(self, node: Node, drain: TimedDrain) -> Iterator[float]:
        yield drain.empty_by
        yield from (each.at for each in self.to_stop(node, drain.empty_by))

    def leaving(self, node: Node, empty_by: float) -> Iterator[DepartingJob]:
        """Yield for each job on the node how the job leaves if the node must be empty at `empty_by`, the
        lowest job id first. Jobs that are already being stopped are left out.
        """
        for job in [self._state.jobs[number] for number in sorted(node.held)]:
            if job.stopping is not None or job.members[node.name].leaving:
                continue
            if job.latest_end <= empty_by:
                yield DepartingJob(job, Departure.ENDS, job.latest_end)
                continue
            guards = self._cycles.guards_of(job)
            requeues = job.replica is not None or (job.spec.preemptible and guards.preemptible)
            how = Departure.MOVED if requeues or job.spare(node.name) else Departure.ENDED
            yield DepartingJob(job, how, empty_by - grace_of(job, guards))

    def to_stop(self, node: Node, empty_by: float) -> list[DepartingJob]:
        """Return the jobs on the node that may still run at `empty_by`, and therefore must be stopped."""
        return [each for each in self.leaving(node, empty_by) if each.how is not Departure.ENDS]

    def stops(self) -> Stops:
        """Return the times at which jobs get a stop order because of the present timed drains."""
        found: Stops = {}
        for node, drain in self._drains():
            for each in self.to_stop(node, drain.empty_by):
                key = _stop_key(each, node.name)
                found[key] = min(each.at, found.get(key, NEVER))
        return found

    def warn(self, node: Node, before: Stops, now: float) -> None:
        """Warn the owners of the jobs on the node that will be stopped for its drain.

        `before` is the result of `stops` before the drain was recorded. A job gets no warning in two cases:
        without this drain it would get a stop order at about the same time, or its stop order is due already.
        """
        drain, planned = node.timed_drain, self.stops()
        if drain is None:
            return
        for each in self.to_stop(node, drain.empty_by):
            key = _stop_key(each, node.name)
            known, at = before.get(key), max(planned[key], now)
            if known is not None and (known <= now or abs(at - known) < WARN_AGAIN_S):
                continue
            job, cause = each.job, _cause(node.name, drain)
            self._record(
                EndWarned(
                    job.id, now, job.attempt, at, Reason.DRAINED, f"{cause}; it is then {each.how.value}"
                )
            )
            text = f"{cause}: the job is told to stop in {duration(at - now)}, and is then "
            for member in job.running:
                self._order(
                    SendToNode(member.allocation.node, Note(job.id, job.attempt, text + each.how.value))
                )

    def run(self, now: float) -> None:
        """Stop or move the jobs that must leave a node now for its timed drain. Drain the nodes whose time
        `empty_by` has come.
        """
        for node, drain in self._drains():
            for each in self.to_stop(node, drain.empty_by):
                if each.at <= now:
                    self._stop(each, node.name, drain, now)
            if drain.empty_by <= now:
                self._record(DrainBegan(node.name, now))

    def _stop(self, leaving: DepartingJob, node: str, drain: TimedDrain, now: float) -> None:
        job, cause = leaving.job, _cause(node, drain)
        until = now + grace_of(job, self._cycles.guards_of(job))
        if job.spare(node):
            self._record(JobShrunk(job.id, now, job.attempt, (node,), cause, job.unsaved(now, (node,))))
            self._stopper.send_leave(job, node)
            return
        self._stopper.unclaim(job, cause, now)
        if leaving.how is Departure.ENDED:
            self._stopper.stop(job, Reason.DRAINED, cause, now, until)
        elif job.replica is None and self._move(job, node, now):
            self._stopper.stop(job, Reason.PREEMPTED, cause, now, until)
        else:
            self._stopper.stop(job, Reason.EVICTED, cause, now, until)

    def _move(self, job: Job, node: str, now: float) -> bool:
        """Plan a move of the job, and keep other nodes for the job until it has ended on `node`. Return False
        if the job may not be moved, or fits on no other nodes now.
        """
        if not may_move(job):
            return False
        search = MoveSearch(self._state, self._cycles.placer_of(job), self._rules, now, 1, [])
        found = search.move(job)
        if found is None:
            return False
        self._record(
            MovePlanned(
                job.id,
                now,
                job.attempt,
                found.target,
                found.quality,
                proposal="",
                kind=DRAIN,
                gpu_hours=found.gpu_hours,
                until=found.until,
                node=node,
            )
        )
        return True


def _stop_key(leaving: DepartingJob, node: str) -> tuple[int, str]:
    return leaving.job.id, node if leaving.job.spare(node) else ""


def _cause(node: str, drain: TimedDrain) -> str:
    return f"the drain of node {node}" + (f" ({drain.why})" if drain.why else "")
