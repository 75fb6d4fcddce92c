"""One function: state, input and time in; facts, orders and an answer out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from controller.core import events, inputs, reserving
from controller.core.apply import apply
from controller.core.clerk import Clerk
from controller.core.doctor import Doctor
from controller.core.effects import Effect, SendToNode, StartAttempt
from controller.core.ender import Ender
from controller.core.events import Event, PreemptionPlanned
from controller.core.explain import explain
from controller.core.idling import Overseer
from controller.core.inputs import DONE, Decision, Input, Reply
from controller.core.jobs import Job
from controller.core.keeper import Keeper
from controller.core.launch import Launch, addresses, starts_of
from controller.core.listener import Listener
from controller.core.plugin import Pipeline
from controller.core.preemption import UNGUARDED, NotAbove, Preemption
from controller.core.rebalancing import Rebalancing
from controller.core.schedulers import Schedulers
from controller.core.state import State
from controller.core.warden import Warden
from wire.api.reasons import Why
from wire.words import JobState, Reason

_STIRRING = (
    events.AttemptStarted,
    events.CheckpointSaved,
    events.MembersStarted,
    events.JobShrunk,
    events.JobGrew,
    events.JobEdited,
)
"""What changes how much a job would lose without changing what it holds."""


class Engine:
    """Decides. Holds the state it decides on and nothing that could not be worked out again from it."""

    ender: type[Ender] = Ender
    listener: type[Listener] = Listener
    """Who does this work; trials put others in their places, to see that they would notice."""

    def __init__(self, pipeline: Pipeline, state: State) -> None:
        self.pipeline = pipeline
        self.state = state
        state.divide(pipeline.profiles)
        state.adopt(pipeline.rules)
        self.schedulers = Schedulers(state, pipeline)
        self.cycle = self.schedulers.last
        self.placer = self.cycle.placer
        self._events: list[Event] = []
        self._effects: list[Effect] = []
        self._ender = self.ender(state, self.schedulers, self._record, self._order)
        self.doctor = Doctor(state, pipeline.care, self._record, self._order)
        self.overseer = Overseer(state, pipeline.idling, self._record, self._order, self._ender.stop)
        self.keeper = Keeper(state, pipeline.waiting, self._record, self._ender.stop)
        self.rebalancing = Rebalancing(state, self.placer, self.cycle, self._record, self._ender.stop)
        clerk = Clerk(state, pipeline, self.schedulers, self.keeper, self._ender, self._record)
        warden = Warden(state, pipeline, self._ender, self._record)
        listener = self.listener(
            state,
            pipeline,
            self.schedulers,
            self.keeper,
            self.doctor,
            self.overseer,
            self._ender,
            self._record,
            self._order,
        )
        self._handlers: dict[type[Any], Callable[[Any, float], Reply]] = {
            inputs.Submit: clerk.submit,
            inputs.Cancel: clerk.cancel,
            inputs.Edit: clerk.edit,
            inputs.Hold: clerk.hold,
            inputs.Release: clerk.release,
            inputs.Preempt: clerk.preempt,
            inputs.AddNode: warden.add_node,
            inputs.PinKey: warden.pin_key,
            inputs.RemoveNode: warden.remove_node,
            inputs.MarkNode: warden.mark_node,
            inputs.Drain: warden.drain,
            inputs.Resume: warden.resume,
            inputs.SetQuota: warden.set_quota,
            inputs.UnsetQuota: warden.unset_quota,
            inputs.Reserve: warden.reserve,
            inputs.CancelReservation: warden.cancel_reservation,
            inputs.Rebalance: self.rebalancing.run,
            inputs.AgentSaidHello: listener.said_hello,
            inputs.AgentReported: listener.reported,
            inputs.MembersReported: listener.members_reported,
            inputs.GpuReported: self.doctor.reported,
            inputs.DataFound: listener.data_found,
            inputs.GpusIdle: listener.gpus_idle,
            inputs.GpusBusy: listener.gpus_busy,
            inputs.GpuTroubled: self.doctor.troubled,
            inputs.GpuLooked: self.doctor.looked,
            inputs.GpuWasReset: self.doctor.was_reset,
            inputs.StrangerSeen: listener.stranger_seen,
            inputs.StrangerGone: listener.stranger_gone,
            inputs.CordonGpu: self.doctor.cordon,
            inputs.ResumeGpu: self.doctor.resume,
            inputs.LinkWentDown: listener.link_went_down,
            inputs.NoteStart: clerk.note_start,
            inputs.NodeSilent: listener.node_silent,
            inputs.DeclareLost: listener.declare_lost,
            inputs.ControllerStarted: listener.controller_started,
            inputs.SetShare: warden.set_share,
            inputs.Tick: self._tick,
        }

    def handle(self, given: Input, now: float) -> Decision:
        """Decide one input. The state already holds the events that come back."""
        reply = self._handlers[type(given)](given, now)
        for fault in self.pipeline.watch.told():
            self._record(events.PluginFailed(now, fault.kind, fault.name, fault.why, fault.given_up))
        if self.keeper.restless:
            self.keeper.settle(now)
        decision = Decision(tuple(self._events), tuple(self._effects), reply)
        self._events.clear()
        self._effects.clear()
        return decision

    def explain(self, job: Job, now: float) -> Why:
        """Why the job is where it is."""
        cycle = self.schedulers.of(job)
        return explain(self.state, cycle.placer, cycle, job, now)

    def predicted(self, job: Job) -> float | None:
        """How long the job is likely to run, as was thought when it got its place, or as is thought now."""
        if job.state is JobState.QUEUED:
            return self.state.estimates.predict(job, self.pipeline.estimating)
        return job.predicted_s

    def _record(self, event: Event) -> None:
        apply(self.state, event)
        if isinstance(event, _STIRRING):
            self.schedulers.stir(event.job)
        if isinstance(event, events.JobRelaxed):
            self.schedulers.forget(event.job)
        self._events.append(event)
        self.keeper.notice(event)

    def _order(self, effect: Effect) -> None:
        self._effects.append(effect)

    def look(self, job: Job, now: float) -> tuple[PreemptionPlanned | None, bool]:
        """Who would have to end for a waiting job to start now, and whether they will be in its turn."""
        if self.state.licences.short(job.ask.licences):
            return None, False
        cycle = self.schedulers.of(job)
        elsewhere, plan = cycle.promised_elsewhere(job, now), None
        if cycle.placer.pipeline.strategies:
            plan = cycle.preemption.plan(job, now, elsewhere)
        if plan is not None:
            return plan, True
        anybody = Preemption(self.state, cycle.placer, (NotAbove(),), UNGUARDED)
        return anybody.plan(job, now, elsewhere), False

    @property
    def next_at(self) -> float:
        """When the next cycle is needed although nothing happens."""
        return min(self.keeper.next_at, self.state.reservations.next_at, self.schedulers.again_at)

    def _make_room(self, job: Job, plan: events.PreemptionPlanned, now: float) -> None:
        by = f"job {job.label}"
        for victim in plan.victims:
            other = self.state.jobs[victim.job]
            if victim.nodes:
                self._record(
                    events.JobShrunk(other.id, now, other.attempt, victim.nodes, by, victim.gpu_hours)
                )
                for node in victim.nodes:
                    self._ender.send_leave(other, node)
            else:
                self._ender.stop(other, Reason.PREEMPTED, by, now, plan.by)

    def _grew(self, job: Job, grown: events.JobGrew) -> None:
        starts = starts_of(job, addresses(self.state, job))
        for allocation in grown.allocations:
            self._order(SendToNode(allocation.node, starts[allocation.node]))

    def _tick(self, _given: inputs.Tick, now: float) -> Reply:
        self.pipeline.watch.turn += 1
        reserving.turn_due(self.state, now, self._record)
        self.keeper.open_due(now)
        self.keeper.settle(now)
        self._start_what_fits(now)
        if self.keeper.end_due(now):  # who waited for one of these to end may start at once
            self.keeper.settle(now)
            self._start_what_fits(now)
        return DONE

    def _start_what_fits(self, now: float) -> None:
        for step in self.schedulers.run(now):
            self._record(step)
            job = self.state.jobs[step.job]
            if isinstance(step, events.JobPlaced):
                self._order(StartAttempt(Launch(job, partial(addresses, self.state))))
            elif isinstance(step, events.JobGrew):
                self._grew(job, step)
            elif isinstance(step, events.PreemptionPlanned):
                self._make_room(job, step, now)
