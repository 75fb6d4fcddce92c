"""Queues and ends jobs, so that each service has its wanted number of replicas with its present settings."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.core.input_handlers.context import Context
from controller.core.input_handlers.job_commands import JobCommands
from controller.core.lifecycle.replica_room import keep_for_successor
from controller.core.model.decision.decision import Accepted, Refusal, Reply
from controller.core.model.events.attempts import JobEnded
from controller.core.model.events.event import Event, JobEvent
from controller.core.model.events.nodes import (
    NodeDrained,
    NodeJoined,
    NodeResumed,
    NodeWentAway,
    NodeWentDown,
)
from controller.core.model.events.reservations import ReservationCancelled, ReservationEnded, ReservationMade
from controller.core.model.events.services import ServiceRestarted, ServiceScaled
from controller.core.model.inputs import job_inputs, policy_inputs
from controller.core.model.job import NEVER, Job
from controller.core.model.services import Replica, Service
from controller.core.services.readiness import is_ready, is_silent, leaves_at, must_leave, ready_at
from wire.names import JobState, Reason
from wire.text import printable

MOST_REPLICAS = 1_000
_LEAVING = (Reason.SERVICE, Reason.USER)
"""Reasons for a stop after which a replica does not run again."""
_OF_NODES = (
    NodeDrained,
    NodeResumed,
    NodeJoined,
    NodeWentAway,
    NodeWentDown,
)
"""Events of a node after which its replicas may be ready or not ready, or may have to leave the node."""
_OF_RESERVATIONS = (ReservationMade, ReservationEnded, ReservationCancelled)


@dataclass(slots=True)
class _Round:
    """One round for one service: the comparison of its replicas with its settings."""

    service: Service
    revision: str
    now: float
    holders: dict[int, list[Job]] = field(default_factory=dict)
    """The jobs of each replica number, the lowest job id first. Jobs that the service or a user is ending are
    left out.
    """
    ready: int = 0
    """How many replica numbers have a ready job."""


class ServiceReconciler:
    """Keeps the wanted number of replicas of each service running, with the settings of scheduler.toml.

    A replica is an ordinary job. After a failure, the restart policy in its spec restarts the replica, and
    its resources are kept for the restart (lifecycle/replica_room.py). So the algorithm below only queues and
    ends whole jobs.

    Algorithm of a round, for one service
    1. End the replicas whose number is not wanted. If a service was removed from scheduler.toml, none of its
       replicas is wanted.
    2. If two jobs have the same replica number, the later job replaces the earlier job. End the earlier job
       when the later job is ready. End the later job if it still waits and is no longer needed, for example
       because the drained node of the earlier job is open again.
    3. If a replica runs on a drained node, or on a node that will soon be reserved for other users, queue a
       second job with the same number. Step 2 of a later round ends the first job when the second job is
       ready.
    4. A service has a revision, which changes with its settings and with each ordered restart. End a replica
       of an older revision, and queue a job that gets its resources. Restart only so many replicas at a time
       that at most `max_unavailable` replicas are not ready. If `max_unavailable` is 0, queue a second job as
       in step 3. Leave replicas on disconnected nodes unchanged.
    5. Queue a job for each wanted number without a job.

    Invariant: a replica number has at most two jobs that are not being ended. A round is a function of the
    state. So a crash between two steps neither loses a replica nor queues a replica twice. Cost: O(replicas
    of the service) for a round. A round runs only after an event about the service's replicas, their nodes or
    its settings, when a replica becomes ready, or when a replica must leave a node.

    Example: a service has 3 replicas and max_unavailable = 1, and its command changes. Replica 0 is ended and
    its successor starts on the same GPUs. When the successor is ready, the same happens to replicas 1 and 2.
    """

    def __init__(self, context: Context, users: JobCommands) -> None:
        self._state = context.state
        self._record = context.record
        self._stopper = context.stopper
        self._cycles = context.cycles
        self._users = users
        self._services = {each.name: each for each in context.pipeline.services}
        self.active = bool(self._services or self._state.replicas)
        """True if scheduler.toml has a service, or if a replica of a removed service still exists."""
        self._due: dict[str, float] = {}
        """The time of the next round of each service if no event comes before, for example because a replica
        then becomes ready. NEVER if no such round is needed.
        """
        self.refusals: dict[str, Refusal] = {}
        """The refusal of each service for which a job could not be queued in its last round. The next `run`
        tries again.
        """
        self._changed = dict.fromkeys((*self._services, *self._state.replicas), NEVER)
        """The services with an event since their last round, each with the time of its last event. At first
        it contains all services with the time NEVER, which makes no timer due. The scheduling cycle that
        follows each new configuration runs their first rounds.
        """

    @property
    def next_at(self) -> float:
        """The time at which `run` must be called next, at once if a service is marked; NEVER if no round is
        needed before the next event.
        """
        return min(min(self._due.values(), default=NEVER), min(self._changed.values(), default=NEVER))

    def on_event(self, event: Event) -> None:
        """Mark the services whose replicas, nodes or settings the event has changed. The next `run` runs a
        round for these services.
        """
        if isinstance(event, JobEvent):
            self._plan(self._state.jobs[event.job], event.at)
        elif isinstance(event, _OF_NODES):
            for number in self._state.nodes.by_name[event.node].held:
                self._plan(self._state.jobs[number], event.at)
        elif isinstance(event, _OF_RESERVATIONS):
            self._changed.update(dict.fromkeys(self._state.replicas, event.at))
        elif isinstance(event, ServiceRestarted | ServiceScaled):
            self._changed[event.service] = event.at

    def _plan(self, job: Job, at: float) -> None:
        if job.replica is not None:
            self._changed[job.replica.service] = at

    def run(self, now: float) -> None:
        """Run a round (see the class docstring) for each service that needs one: after an event about the
        service, when its next round is due, or if its last round could not queue a job.
        """
        due = {name for name, at in self._due.items() if at <= now}
        for name in sorted({*self._changed, *due, *self.refusals}):
            self._due.pop(name, None)
            self.refusals.pop(name, None)
            self._run_round(name, now)
        self._changed.clear()

    def restart(self, given: policy_inputs.RestartService, now: float) -> Reply | None:
        """Order a restart of all replicas of a service, a few at a time. Return a refusal if the service does
        not exist, None otherwise.
        """
        if given.service not in self._services:
            return _unknown(given.service)
        self._record(ServiceRestarted(now, given.service, given.by))
        return None

    def scale(self, given: policy_inputs.ScaleService, now: float) -> Reply | None:
        """Set the number of replicas of a service. If `given.replicas` is None, the number in scheduler.toml
        applies again. Return a refusal if the service does not exist or the number is invalid, None
        otherwise.
        """
        service = self._services.get(given.service)
        if service is None:
            return _unknown(given.service)
        if given.replicas is not None and not 0 <= given.replicas <= MOST_REPLICAS:
            return Refusal("invalid", f"must lie between 0 and {MOST_REPLICAS}", "replicas")
        self._record(ServiceScaled(now, given.service, given.replicas, service.replicas, given.by))
        return None

    def _run_round(self, name: str, now: float) -> None:
        orders, service = self._state.orders_of(name), self._services.get(name)
        jobs = [self._state.jobs[job] for job in sorted(self._state.replicas.get(name, ()))]
        if service is None:
            for job in jobs:
                self._end(job, f"service {name} is no longer in scheduler.toml", now)
            return
        current = _Round(service, service.revision(orders.restarts), now)
        wanted = orders.wanted(service)
        self._end_surplus(current, jobs, wanted)
        outdated: list[Job] = []
        for number, holders in sorted(current.holders.items()):
            outdated += self._replace(current, number, holders)
        self._restart_outdated(current, outdated, wanted)
        for number in range(wanted):
            if not current.holders.get(number):
                before = [job for job in jobs if job.replica is not None and job.replica.number == number]
                self._queue(current, number, before[-1] if before else None)
        waits = [ready_at(service, each[-1]) for each in current.holders.values() if each]
        waits += [leaves_at(self._state, each[0], now) for each in current.holders.values() if each]
        self._due[name] = min((at for at in waits if at > now), default=NEVER)

    def _end_surplus(self, current: _Round, jobs: list[Job], wanted: int) -> None:
        """End the replicas whose number is not below `wanted`. Put the jobs of the wanted numbers into
        `current.holders`, and count the ready replicas.
        """
        for job in jobs:
            assert job.replica is not None
            if job.replica.number >= wanted:
                self._end(job, f"service {current.service.name} has {wanted} replicas now", current.now)
            elif job.stopping not in _LEAVING:
                current.holders.setdefault(job.replica.number, []).append(job)
        current.ready = sum(
            any(is_ready(self._state, current.service, job, current.now) for job in each)
            for each in current.holders.values()
        )

    def _replace(self, current: _Round, number: int, holders: list[Job]) -> list[Job]:
        """Carry out steps 2 and 3 of the algorithm for one replica number. `holders` are the jobs with this
        number, the lowest job id first.

        Return a list with the remaining job if it has outdated settings and need not leave its nodes. Return
        an empty list in all other cases.
        """
        state, now = self._state, current.now
        if len(holders) > 1:
            old, new = holders[0], holders[-1]
            if is_ready(state, current.service, new, now) or not old.unended:
                for job in holders[:-1]:
                    self._end(job, f"job {new.label} has replaced it", now)
                current.holders[number] = holders = [new]
            elif new.state is JobState.QUEUED and self._may_cancel(current, old, new):
                self._end(new, f"job {old.label} stays where it is", now)
                current.holders[number] = holders = [old]
            else:
                return []
        job = holders[0]
        assert job.replica is not None
        if must_leave(state, job, now) and job.stopping is None:
            self._queue(current, number, replaces=job)
            return []
        return [job] if job.replica.revision != current.revision else []

    def _may_cancel(self, current: _Round, old: Job, new: Job) -> bool:
        """Return whether the waiting job `new`, which is to replace the job `old`, is no longer needed. True
        in two cases: the settings of the service have changed since `new` was queued, or `old` has the
        present settings and may stay on its nodes.
        """
        assert old.replica is not None
        assert new.replica is not None
        if new.replica.revision != current.revision:
            return True
        leaves = must_leave(self._state, old, current.now)
        return not leaves and old.replica.revision == current.revision

    def _restart_outdated(self, current: _Round, outdated: list[Job], wanted: int) -> None:
        """Restart replicas with outdated settings, as far as `max_unavailable` of the service allows."""
        service = current.service
        spare = current.ready - (wanted - service.max_unavailable)
        replacing = any(len(each) > 1 for each in current.holders.values())
        for job in outdated:
            assert job.replica is not None
            if is_silent(self._state, job):
                # The replica may still be ready: right after a restart of the controller no node is
                # connected. Wait until its node connects or the node is lost.
                continue
            if is_ready(self._state, service, job, current.now):
                if not service.max_unavailable and not replacing:
                    self._queue(current, job.replica.number, replaces=job)
                    replacing = True
                if spare <= 0 or not service.max_unavailable:
                    continue
                spare -= 1
            current.holders[job.replica.number] = []
            self._queue(current, job.replica.number, job)

    def _queue(
        self, current: _Round, number: int, before: Job | None = None, replaces: Job | None = None
    ) -> None:
        """Queue a job for a replica number.

        The job `before` is ended, if it has not ended yet, and its resources are kept for the new job. The
        job `replaces` runs until the new job is ready.
        """
        service, now = current.service, current.now
        replica = Replica(service.name, number, current.revision, None if replaces is None else replaces.id)
        reply = self._users.submit(
            job_inputs.Submit(service.replica_spec(number), service.user), now, replica
        )
        if isinstance(reply, Refusal):
            self.refusals[service.name] = reply
            if before is not None and before.stopping not in _LEAVING:
                current.holders[number] = [before]
            return
        assert isinstance(reply, Accepted)
        job = self._state.jobs[reply.jobs[0]]
        current.holders.setdefault(number, []).append(job)
        if before is None:
            return
        until = now + self._cycles.of(before).preemption.grace(before)
        kept = list(keep_for_successor(self._state, job, before, until, now))
        if before.stopping not in _LEAVING:
            self._end(before, f"restarted as job {job.label}", now)
        for event in kept:
            self._record(event)

    def _end(self, job: Job, why: str, now: float) -> None:
        """Cancel a waiting replica, or stop a running replica, unless it is being ended already."""
        if job.state.terminal:
            return
        if job.state is JobState.QUEUED:
            self._stopper.unclaim(job, why, now)
            self._record(JobEnded(job.id, now, JobState.CANCELLED, Reason.SERVICE, why))
        elif job.stopping not in _LEAVING:
            self._stopper.unclaim(job, why, now)
            self._stopper.stop(job, Reason.SERVICE, why, now)


def _unknown(service: str) -> Refusal:
    hint = "'corral service list' shows all services."
    return Refusal("not_found", f"there is no service {printable(service)!r}", "service", hint)
