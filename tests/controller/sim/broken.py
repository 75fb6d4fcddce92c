"""Engines and controllers that break a promise each: trials with faults must catch every one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from controller.core import events, inputs
from controller.core.apply import apply
from controller.core.effects import SendToNode
from controller.core.ender import Ender
from controller.core.engine import Engine
from controller.core.inputs import Decision, Input
from controller.core.jobs import NEVER, Job
from controller.core.launch import addresses, starts_of
from controller.core.listener import Listener
from controller.core.outcome import outcome_of
from controller.core.plugin import Pipeline
from controller.core.state import State
from controller.sim.faults.controller import Batch, Controller
from wire.frames import AttemptStatus, Settle, Start, Stop
from wire.words import JobState, Reason


class RunsTwice(Engine):
    """A link is down, so the job is queued again: whatever still runs over there."""

    def handle(self, given: Input, now: float) -> Decision:
        if isinstance(given, inputs.LinkWentDown):
            node = self.state.nodes.get(given.node)
            for job in [self.state.jobs[job] for job in (node.held if node is not None else ())]:
                if not job.stopping:
                    self._requeue(job, now)
        return super().handle(given, now)

    def _requeue(self, job: Job, now: float) -> None:
        for member in job.running:
            node = member.allocation.node
            self._record(events.AttemptExited(job.id, now, job.attempt, node, why="node_lost"))
        self._record(events.JobRequeued(job.id, now, job.attempt, Reason.NODE_LOST))


class _RunsAgain(Listener):
    def _attempt_untold(self, node: str, job: Job, now: float, rebooted: bool) -> None:
        self._order(SendToNode(node, starts_of(job, addresses(self._state, job))[node]))


class RunsAgain(Engine):
    """What the agent does not know is sent once more, also to a host that has rebooted since."""

    listener = _RunsAgain


class _RepeatsSuccess(Listener):
    def _exited(self, job: Job, status: AttemptStatus, node: str, now: float) -> None:
        if job.id % 5 == 0 and status.code == 0 and len(job.members) == 1 and not job.stopping:
            self._record(events.AttemptExited(job.id, now, job.attempt, node, why="node_lost"))
            self._record(events.JobRequeued(job.id, now, job.attempt, Reason.NODE_LOST))
        else:
            super()._exited(job, status, node, now)


class RepeatsSuccess(Engine):
    """Some jobs are queued again although they succeeded."""

    listener = _RepeatsSuccess


class _NeverSendsAgain(Listener):
    def _attempt_untold(self, node: str, job: Job, now: float, rebooted: bool) -> None:
        if job.members[node].started_at is not None:
            super()._attempt_untold(node, job, now, rebooted)


class NeverSendsAgain(Engine):
    """An order that was lost stays lost."""

    listener = _NeverSendsAgain


class _FreesTooEarly(Ender):
    def stop(self, job: Job, reason: Reason, by: str, now: float, until: float | None = None) -> None:
        super().stop(job, reason, by, now, until)
        for member in job.running:
            node = member.allocation.node
            self._record(events.AttemptExited(job.id, now, job.attempt, node, why="cancelled"))
        self._record(outcome_of(job, now))


class FreesTooEarly(Engine):
    """Who is told to stop holds nothing any more, though it still runs."""

    ender = _FreesTooEarly


class TakesMoreThanThereIs(Engine):
    """A GPU that two jobs get, the second one without an event."""

    def handle(self, given: Input, now: float) -> Decision:
        decision = super().handle(given, now)
        return replace(decision, effects=tuple(self._crowd(order) for order in decision.orders))

    def _crowd(self, order: SendToNode) -> SendToNode:
        gpus = self.state.nodes.by_name[order.node].facts.gpus
        frame = order.frame
        if not isinstance(frame, Start) or not frame.gpus:
            return order
        first = replace(frame.gpus[0], uuid=gpus[0].uuid)
        return SendToNode(order.node, replace(frame, gpus=(first, *frame.gpus[1:])))


class _CancelWins(Listener):
    def _exited(self, job: Job, status: AttemptStatus, node: str, now: float) -> None:
        overruled = replace(status, code=None, why="cancelled") if job.stopping else status
        super()._exited(job, overruled, node, now)


class CancelWins(Engine):
    """Whoever is to be cancelled was cancelled, whatever it returned."""

    listener = _CancelWins


class ForgetsKeys(Engine):
    """A retry is a new job."""

    def handle(self, given: Input, now: float) -> Decision:
        self.state.keys.clear()
        return super().handle(given, now)


class _LosesOrders(Engine):
    """Some orders never leave."""

    lost: Callable[[Input, SendToNode], bool]

    def handle(self, given: Input, now: float) -> Decision:
        decision = super().handle(given, now)
        kept = tuple(order for order in decision.orders if not type(self).lost(given, order))
        return replace(decision, effects=kept)


class NeverSettles(_LosesOrders):
    """Agents report their ends for ever."""

    lost = staticmethod(lambda _given, order: isinstance(order.frame, Settle))


class ForgetsStops(_LosesOrders):
    """An order to stop that was lost is not sent again."""

    lost = staticmethod(
        lambda given, order: isinstance(given, inputs.AgentSaidHello) and isinstance(order.frame, Stop)
    )


class _LetsGangsRun(Ender):
    def stop(self, job: Job, reason: Reason, by: str, now: float, until: float | None = None) -> None:
        if reason is not Reason.MEMBER_FAILED:
            super().stop(job, reason, by, now, until)


class LetsGangsRun(Engine):
    """A member fails, and the others run on."""

    ender = _LetsGangsRun


class _NeverLeaves(Ender):
    def send_leave(self, job: Job, node: str) -> None:
        pass


class NeverLeaves(Engine):
    """What an elastic job is to give up runs on."""

    ender = _NeverLeaves


class IgnoresLeases(Engine):
    """Who is silent is lost, however long supervisors may still wait."""

    def handle(self, given: Input, now: float) -> Decision:
        return super().handle(
            replace(given, for_s=1e6) if isinstance(given, inputs.NodeSilent) else given, now
        )


class LendsTooMuch(Engine):
    """Licences are counted, and given out all the same."""

    def __init__(self, pipeline: Pipeline, state: State) -> None:
        super().__init__(pipeline, state)
        self.state.licences.total = dict.fromkeys(self.state.licences.total, 1_000)


class OversleepsItsMoments(Engine):
    """Nothing is due as long as nothing happens."""

    next_at = NEVER


class StartsHeldJobs(Engine):
    """A held job stays in the queue."""

    def handle(self, given: Input, now: float) -> Decision:
        decision = super().handle(given, now)
        if isinstance(given, inputs.Hold) and decision.events:
            job = self.state.jobs[given.job]
            self.state.queue.add(job.id, job.ask, (*self.state.order.rank(job), job.id))
        return decision


class SaysLessThanItDoes(Engine):
    """A state that changes without an event."""

    def handle(self, given: Input, now: float) -> Decision:
        job = self.state.jobs.get(given.job) if isinstance(given, inputs.Cancel) else None
        if job is not None and job.state is JobState.QUEUED and not job.held:
            apply(self.state, events.JobHeld(job.id, now, "nobody"))
        return super().handle(given, now)


class AnswersFirst(Controller):
    """Users have their answer before anything is kept."""

    def _decide(self, now: float) -> Batch:
        batch = super()._decide(now)
        for answer, reply in batch.answers:
            answer(reply)
        return batch


class OrdersFirst(Controller):
    """Agents have their orders before anything is kept."""

    def _decide(self, now: float) -> Batch:
        batch = super()._decide(now)
        for effect in batch.effects:
            self._order(effect)
        return batch


class ForgetsItsNumbers(Controller):
    """After a start it gives numbers that were given before."""

    def recover(self) -> None:
        super().recover()
        live = [job.id for job in self.engine.state.jobs.values() if not job.state.terminal]
        self.engine.state.next_job = max(live, default=0) + 1
