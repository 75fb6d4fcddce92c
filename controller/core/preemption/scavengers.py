"""Scavengers: jobs of the lowest priority. Scavengers may use GPUs that are reserved for a waiting job, and
GPUs that a queue keeps free for its own jobs, because every other waiting job may preempt scavengers.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol, runtime_checkable

from controller.core.framework.interfaces import Reserves, SchedulingPolicy
from controller.core.framework.profiles import Profile
from controller.core.model.job import NEVER, Job
from controller.core.preemption.guards import GuardsOf, is_preemptible, preemptible_from
from controller.core.state.state import State
from wire.names import PRIORITIES, WHOLE_GPU


@runtime_checkable
class StopsForAll(Protocol):
    """A preemption strategy that protects no running job whose priority is at most P (`stops_for_all`). Every
    waiting job with a higher priority than such a running job may stop it.
    """

    @property
    def stops_for_all(self) -> int:
        """Return the priority P: a running job with at most this priority is not protected from waiting jobs
        with a higher priority.
        """
        ...


def scavengers_yield(policy: SchedulingPolicy, profiles: tuple[Profile, ...]) -> bool:
    """Return whether all other waiting jobs may preempt scavengers.

    Two conditions must hold. Each scheduler profile has a strategy such as `pressure`, which stops scavengers
    for all other jobs. No profile uses conservative backfill, because conservative backfill starts jobs on
    their reserved GPUs without searching free GPUs again.
    """
    policies = [each.policy for each in profiles] or [policy]
    return all(
        each.backfill.reserves is not Reserves.ALL_JOBS
        and any(
            isinstance(strategy, StopsForAll) and strategy.stops_for_all >= PRIORITIES["SCAVENGER"]
            for strategy in each.strategies
        )
        for each in policies
    )


class Scavengers:
    """Finds the jobs that yield, and the time from which each of them yields. A running job yields if it has
    the priority SCAVENGER and other jobs may preempt it.

    In the plans of other jobs, a scavenger that yields holds its GPUs only until other jobs may preempt it.
    Other jobs may preempt it after its minimum run time, or after the cooldown of an earlier preemption.
    1. A scavenger may start on reserved GPUs if other jobs may preempt it before the reserved start. The
       waiting job preempts the scavenger at the reserved start, or earlier if no other job is in the way.
    2. A scavenger may start on GPUs that a queue keeps free. While other jobs may preempt the scavenger, its
       GPUs count as free for that queue.
    3. In the queue, scavengers come after all other jobs (`State.scavengers_last`), and scavengers get no
       reservations. A scavenger with licences, job labels or job affinity does not yield, because preemption
       does not take these into account. If any queue has the key `may_preempt`, scavengers in queues that
       this key does not name do not yield either.

    Example: a gang has reserved two nodes from 18:00. At 12:00, 3 GPUs of these nodes are free. An ordinary
    job of 8 hours may not start on them. A scavenger of 8 hours may start on them, and the gang preempts the
    scavenger at 18:00.
    """

    def __init__(self, state: State, guards_of: GuardsOf) -> None:
        self._state = state
        self._guards_of = guards_of
        rules = state.quotas.rules.queues.values()
        self._may_preempt = [rule.may_preempt for rule in rules if rule.may_preempt is not None]
        self._seen = -1
        """The value of `Nodes.change_count` when `_running` was computed."""
        self._running: list[Job] = []

    def yields(self, job: Job) -> bool:
        """Return whether the job yields (every other job may preempt it). For a waiting job, return whether
        it would yield if it ran.
        """
        return (
            job.granted_priority <= PRIORITIES["SCAVENGER"]
            and not job.ask.licences
            and not job.ask.part.social
            and all(job.spec.queue in queues for queues in self._may_preempt)
            and is_preemptible(job, self._guards_of(job))
        )

    def yields_from(self, job: Job) -> float:
        """Return the time from which every other job may preempt the running job; NEVER if the job does not
        yield.
        """
        if not self.yields(job):
            return NEVER
        return preemptible_from(job, self._guards_of(job))

    def hold_s(self, job: Job, now: float, runtime_s: float) -> float:
        """Return for how many seconds other jobs could not get the GPUs of this waiting job if it started
        now. For a job that does not yield, the result is its assumed run time `runtime_s`.
        """
        if not self.yields(job):
            return runtime_s
        guards = self._guards_of(job)
        hold_s = max(guards.min_runtime_s, job.spec.min_runtime_s)
        if job.preemptions:
            hold_s = max(hold_s, job.preemptions[-1].at + guards.cooldown_s - now)
        return min(runtime_s, hold_s)

    def running(self) -> list[Job]:
        """Return the running jobs that yield, which means that every other job may preempt them."""
        if self._seen != self._state.nodes.change_count:
            jobs = (self._state.jobs[number] for _, number in self._state.releases)
            self._running = [job for job in jobs if job.unended and self.yields(job)]
            self._seen = self._state.nodes.change_count
        return self._running

    def gpus_by_row(self, now: float) -> Counter[int]:
        """Return how many whole GPUs are held by scavengers that may be preempted now, by row number of the
        node. GPUs that are free now are not counted.
        """
        found: Counter[int] = Counter()
        nodes = self._state.nodes.by_name
        for job in self.running():
            if job.stopping is None and self.yields_from(job) <= now:
                for member in job.running:
                    gpus = sum(hold.milli == WHOLE_GPU for hold in member.allocation.gpus)
                    found[nodes[member.allocation.node].row] += gpus
        return found
