"""Tests on copies of the engine whether a change starts a waiting job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import TypeVar

from controller.core.engine import Engine
from controller.core.forecast.forecast import OnCopy, on_fork
from controller.core.model.decision.decision import Refusal
from controller.core.model.exit_outcome import PREEMPTED
from controller.core.model.inputs.agent_inputs import MembersReported
from controller.core.model.inputs.controller_inputs import Tick
from controller.core.model.inputs.input import Input
from controller.core.model.inputs.job_inputs import Preempt
from controller.core.model.job import Job
from wire.agent.reports import AttemptStatus
from wire.names import JobState

MAX_COPIES = 48
"""One StartTrial makes at most this many copies of the engine."""
T = TypeVar("T")

ALL_ORDERS = 3
"""If there are at most this many pairs (preempted job, node), a trial is made for each order in which the
jobs can end on these nodes.
"""

Leaving = tuple[int, str]
"""(id of a preempted job, name of one of its nodes)."""


class StartTrial:
    """Finds out whether a waiting job would start at once after certain inputs.

    An input is a command of a user or a report of an agent; the engine handles them.

    1. Copy the engine, and let the copy handle the inputs. If an input is refused, the result is False.
    2. Run a scheduling cycle.
    3. If the inputs preempt running jobs, let these jobs end node by node, with a cycle after each end. If
       there are at most ALL_ORDERS ends, try every order of them. If there are more, try only one order and
       its reverse.
    4. The result is True if the job has started in all orders.

    Invariant: the engine `ahead` is never changed. Cost: one copy for each order, at most MAX_COPIES copies
    in all. After MAX_COPIES copies, every result is False, because a change that was not tried must not be
    suggested.
    """

    def __init__(self, ahead: Engine, job: int, now: float, on_copy: OnCopy = on_fork) -> None:
        self.ahead = ahead
        self.job: Job = ahead.state.jobs[job]
        self.now = now
        self.left = MAX_COPIES
        self._on_copy = on_copy

    def after_pass(self, work: Callable[[Engine, Job, float], T]) -> T | None:
        """Run a scheduling cycle on a copy of the engine, and return the result of `work` on this copy.
        Return None if the cycle starts the job.
        """

        def after(copy: Engine) -> T | None:
            copy.handle(Tick(), self.now)
            return None if self._started(copy) else work(copy, copy.state.jobs[self.job.id], self.now)

        return self._on_copy(self.ahead, after)

    def starts(self, *added: Input) -> bool:
        """Return whether the job starts after the inputs `added`. If these inputs preempt running jobs, a
        start after the end of the preempted jobs counts too.
        """
        leaving = _leaving(self.ahead, added)
        return all(self._starts_in(added, order) for order in _orders(leaving))

    def _starts_in(self, added: Sequence[Input], order: Sequence[Leaving]) -> bool:
        if not self.left:
            return False
        self.left -= 1

        def started(copy: Engine) -> bool:
            if any(isinstance(copy.handle(each, self.now).reply, Refusal) for each in added):
                return False
            copy.handle(Tick(), self.now)
            for number, node in order:
                self._end(copy, number, node)
            return self._started(copy)

        return bool(self._on_copy(self.ahead, started))

    def _started(self, copy: Engine) -> bool:
        return copy.state.jobs[self.job.id].state is not JobState.QUEUED

    def _end(self, copy: Engine, number: int, node: str) -> None:
        """Report to the engine `copy` the end of a preempted job on a node, and run a scheduling cycle."""
        job = copy.state.jobs[number]
        if node in job.members and job.members[node].ended_at is None:
            over = AttemptStatus(number, job.attempt, 0, self.now, self.now, signal=15, why=PREEMPTED)
            copy.handle(MembersReported(number, job.attempt, {node: over}), self.now)
            copy.handle(Tick(), self.now)


def _leaving(engine: Engine, added: Sequence[Input]) -> list[Leaving]:
    """Return (job, node) for each node of the jobs that the inputs preempt."""
    jobs = [engine.state.jobs[each.job] for each in added if isinstance(each, Preempt)]
    return [(job.id, member.allocation.node) for job in jobs for member in job.running]


def _orders(leaving: list[Leaving]) -> list[tuple[Leaving, ...]]:
    if len(leaving) <= ALL_ORDERS:
        return [*permutations(leaving)]
    return [tuple(leaving), tuple(reversed(leaving))]
