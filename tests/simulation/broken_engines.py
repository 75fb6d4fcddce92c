"""Engines and controllers that each break one guarantee; the fault simulation must detect every one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from controller.core.engine import Engine
from controller.core.input_handlers.agent_reports import AgentReports
from controller.core.lifecycle.gang_barrier import node_addresses
from controller.core.lifecycle.stop import Stopper
from controller.core.model.decision.decision import Decision
from controller.core.model.decision.effects import SendToNode
from controller.core.model.decision.start_orders import start_frames
from controller.core.model.events.attempts import AttemptExited, JobRequeued
from controller.core.model.events.queued import JobHeld
from controller.core.model.exit_outcome import outcome_of
from controller.core.model.inputs import agent_inputs, job_inputs
from controller.core.model.inputs.input import Input
from controller.core.model.job import NEVER, Job
from controller.core.pipeline.pipeline import Pipeline
from controller.core.state.apply import apply
from controller.core.state.state import State
from tests.simulation.controller import LandingBatch, SimulatedController
from wire.agent.orders import Settle, Start, Stop
from wire.agent.reports import AttemptStatus
from wire.names import JobState, Reason


class RunsTwice(Engine):
    """Queues a job again as soon as the link to its node is down, although the job may still run."""

    def handle(self, given: Input, now: float) -> Decision:
        if isinstance(given, agent_inputs.LinkWentDown):
            node = self.state.nodes.get(given.node)
            for job in [self.state.jobs[job] for job in (node.held if node is not None else ())]:
                if not job.stopping:
                    self._requeue(job, now)
        return super().handle(given, now)

    def _requeue(self, job: Job, now: float) -> None:
        for member in job.running:
            node = member.allocation.node
            self._record(AttemptExited(job.id, now, job.attempt, node, why="node_lost"))
        self._record(JobRequeued(job.id, now, job.attempt, Reason.NODE_LOST))


class _RunsAgain(AgentReports):
    def _handle_missing_attempt(self, node: str, job: Job, now: float, rebooted: bool) -> None:
        self._order(SendToNode(node, start_frames(job, node_addresses(self._state, job))[node]))


class RunsAgain(Engine):
    """Sends a start order again to a host that has rebooted since."""

    agent_reports_type = _RunsAgain


class _RepeatsSuccess(AgentReports):
    def _record_exit(
        self, job: Job, status: AttemptStatus, node: str, now: float, *, in_hello: bool = False
    ) -> None:
        if job.id % 5 == 0 and status.code == 0 and len(job.members) == 1 and not job.stopping:
            self._record(AttemptExited(job.id, now, job.attempt, node, why="node_lost"))
            self._record(JobRequeued(job.id, now, job.attempt, Reason.NODE_LOST))
        else:
            super()._record_exit(job, status, node, now, in_hello=in_hello)


class RepeatsSuccess(Engine):
    """Requeues some jobs that succeeded."""

    agent_reports_type = _RepeatsSuccess


class _NeverSendsAgain(AgentReports):
    def _handle_missing_attempt(self, node: str, job: Job, now: float, rebooted: bool) -> None:
        if job.members[node].started_at is not None:
            super()._handle_missing_attempt(node, job, now, rebooted)


class NeverSendsAgain(Engine):
    """Never sends a lost order again."""

    agent_reports_type = _NeverSendsAgain


class _FreesTooEarly(Stopper):
    def stop(self, job: Job, reason: Reason, by: str, now: float, until: float | None = None) -> None:
        super().stop(job, reason, by, now, until)
        for member in job.running:
            node = member.allocation.node
            self._record(AttemptExited(job.id, now, job.attempt, node, why="cancelled"))
        self._record(outcome_of(job, now))


class FreesTooEarly(Engine):
    """Frees the GPUs of a job at the stop order, although it still runs."""

    stopper_type = _FreesTooEarly


class TakesMoreThanThereIs(Engine):
    """Gives a GPU to two jobs."""

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


class _CancelWins(AgentReports):
    def _record_exit(
        self, job: Job, status: AttemptStatus, node: str, now: float, *, in_hello: bool = False
    ) -> None:
        overruled = replace(status, code=None, why="cancelled") if job.stopping else status
        super()._record_exit(job, overruled, node, now, in_hello=in_hello)


class CancelWins(Engine):
    """Records CANCELLED whatever the process returned."""

    agent_reports_type = _CancelWins


class ForgetsKeys(Engine):
    """Forgets idempotency keys, so that a retry is a new job."""

    def handle(self, given: Input, now: float) -> Decision:
        self.state.keys.clear()
        return super().handle(given, now)


class _LosesOrders(Engine):
    """Loses some orders to agents."""

    lost: Callable[[Input, SendToNode], bool]

    def handle(self, given: Input, now: float) -> Decision:
        decision = super().handle(given, now)
        kept = tuple(order for order in decision.orders if not type(self).lost(given, order))
        return replace(decision, effects=kept)


class NeverSettles(_LosesOrders):
    """Never settles attempts, so that agents report ends for ever."""

    lost = staticmethod(lambda _given, order: isinstance(order.frame, Settle))


class ForgetsStops(_LosesOrders):
    """Never sends a lost stop order again."""

    lost = staticmethod(
        lambda given, order: isinstance(given, agent_inputs.AgentSaidHello) and isinstance(order.frame, Stop)
    )


class _LetsGangsRun(Stopper):
    def stop(self, job: Job, reason: Reason, by: str, now: float, until: float | None = None) -> None:
        if reason is not Reason.MEMBER_FAILED:
            super().stop(job, reason, by, now, until)


class LetsGangsRun(Engine):
    """Lets a gang run after a member failed."""

    stopper_type = _LetsGangsRun


class _NeverLeaves(Stopper):
    def send_leave(self, job: Job, node: str) -> None:
        pass


class NeverLeaves(Engine):
    """Does not end the processes on nodes that an elastic job gave up."""

    stopper_type = _NeverLeaves


class IgnoresLeases(Engine):
    """Declares jobs of silent nodes lost before their lease is over."""

    def handle(self, given: Input, now: float) -> Decision:
        return super().handle(
            replace(given, for_s=1e6) if isinstance(given, agent_inputs.NodeSilent) else given, now
        )


class LendsTooMuch(Engine):
    """Allocates more licences than there are."""

    def __init__(self, pipeline: Pipeline, state: State) -> None:
        super().__init__(pipeline, state)
        self.state.licences.total = dict.fromkeys(self.state.licences.total, 1_000)


class OversleepsItsMoments(Engine):
    """Never acts at the time of a timer."""

    next_at = NEVER


class StartsHeldJobs(Engine):
    """Leaves a held job in the queue."""

    def handle(self, given: Input, now: float) -> Decision:
        decision = super().handle(given, now)
        if isinstance(given, job_inputs.Hold) and decision.events:
            job = self.state.jobs[given.job]
            self.state.queue_of(job).add(job.id, job.ask, (*self.state.order.rank(job), job.id))
        return decision


class SaysLessThanItDoes(Engine):
    """Changes the state without an event."""

    def handle(self, given: Input, now: float) -> Decision:
        job = self.state.jobs.get(given.job) if isinstance(given, job_inputs.Cancel) else None
        if job is not None and job.state is JobState.QUEUED and not job.held:
            apply(self.state, JobHeld(job.id, now, "nobody"))
        return super().handle(given, now)


class AnswersFirst(SimulatedController):
    """Answers users before the commit."""

    def _decide(self, now: float) -> LandingBatch:
        batch = super()._decide(now)
        for answer, reply in batch.answers:
            answer(reply)
        return batch


class OrdersFirst(SimulatedController):
    """Sends orders before the commit."""

    def _decide(self, now: float) -> LandingBatch:
        batch = super()._decide(now)
        for effect in batch.effects:
            self._order(effect)
        return batch


class ForgetsItsNumbers(SimulatedController):
    """Assigns job ids again after a restart."""

    def recover(self) -> None:
        super().recover()
        live = [job.id for job in self.engine.state.jobs.values() if not job.state.terminal]
        self.engine.state.next_job = max(live, default=0) + 1
