"""The engine: computes events, effects (messages to agents) and a reply from the state, an input and the
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from controller.core.backfill.cycle_events import CycleEvent
from controller.core.backfill.profiles.profile_cycles import ProfileCycles
from controller.core.explain.placement_receipt import placement_receipt
from controller.core.explain.why_pending import explain
from controller.core.input_handlers.agent_reports import AgentReports
from controller.core.input_handlers.context import Context
from controller.core.input_handlers.job_commands import JobCommands
from controller.core.input_handlers.job_edits import changed_fields
from controller.core.input_handlers.operator_commands import OperatorCommands
from controller.core.input_handlers.reservation_commands import ReservationCommands
from controller.core.input_handlers.token_commands import TokenCommands
from controller.core.input_handlers.workload_commands import WorkloadCommands
from controller.core.lifecycle.due_jobs import DueJobs
from controller.core.lifecycle.failure_classes import rule_of
from controller.core.lifecycle.gang_barrier import start_facts
from controller.core.lifecycle.gpu_health_handler import GpuHealthHandler
from controller.core.lifecycle.idle_gpus import IdleGpuHandler
from controller.core.lifecycle.limit_warnings import NO_LIMIT_WARNINGS, PLANS_WARNING, LimitWarnings
from controller.core.lifecycle.stop import Stopper
from controller.core.model.decision.decision import DONE, Decision, Refusal, Reply, no_such_job, no_such_node
from controller.core.model.decision.effects import Effect, SendToNode, StartAttempt
from controller.core.model.decision.start_orders import start_frames
from controller.core.model.events.attempts import (
    AttemptStarted,
    CheckpointSaved,
    JobGrew,
    JobPlaced,
    JobShrunk,
    MembersStarted,
    PredictionOutlived,
)
from controller.core.model.events.controller import ConfigApplied, PluginFailed
from controller.core.model.events.event import Event, JobEvent
from controller.core.model.events.nominations import (
    PREEMPTION,
    WINDOW,
    WINDOW_CLOSED,
    MovePlanned,
    PreemptionPlanned,
)
from controller.core.model.events.queued import JobEdited, JobRelaxed, PriorityInherited
from controller.core.model.events.tenants import BudgetReached, HoursChanged
from controller.core.model.inputs import (
    access_inputs,
    agent_inputs,
    controller_inputs,
    job_inputs,
    node_inputs,
    policy_inputs,
)
from controller.core.model.inputs.input import Input, JobCommand, NodeCommand
from controller.core.model.job import NEVER, Job
from controller.core.pipeline.pipeline import Pipeline
from controller.core.pipeline.reconfigure import state_under
from controller.core.preemption.preemptor import NO_GUARDS, NotAbovePriority, Preemptor
from controller.core.preemption.scavengers import scavengers_yield
from controller.core.rebalance.rebalancer import Rebalancer
from controller.core.rebalance.timed_drains import TimedDrains
from controller.core.services.health import HealthHandler
from controller.core.services.reconciler import ServiceReconciler
from controller.core.state.apply import APPLY
from controller.core.state.state import State
from wire.api.reasons import NodeScore, Why
from wire.job.spec import JobSpec
from wire.names import JobState, Reason

_CHANGES_STANDING = frozenset((JobEdited, PriorityInherited, PredictionOutlived))
"""Events that can change how well a running job is protected from preemption. After such an event, more
waiting jobs may be able to preempt the job.
"""
_CHANGES_VICTIM = _CHANGES_STANDING.union(
    (AttemptStarted, CheckpointSaved, MembersStarted, JobShrunk, JobGrew)
)
"""Events that can change whether a running job may be preempted, or how much work its preemption would lose.
"""


class Engine:
    """Handles every input: a command, an agent's report, or a tick of the clock. Keeps the state.

    Algorithm of `handle`
    1. Refuse a command on a job or node that does not exist.
    2. Find the handler of the input by its type. The handler checks the input and calls `_record` for each
       event and `_effects.append` for each effect.
    3. `_record` applies an event to the state at once, so that the handler continues with the new state.
    4. After the handler, record the failures of plugins. If the events have met dependencies of jobs, these
       jobs enter the queue. If a dependency can never be met any more, its job is ended or waits, depending
       on the settings.
    5. Return the events, the effects and the reply. The caller writes the events to disk before sending
       effects and the reply.

    Invariant: every decision depends only on the state, the configuration, the input and the time. So a new
    engine with the same state and configuration makes the same decisions. Without this property, the
    decisions after a restart could differ from the decisions without a restart.

    Cost: that of the handler. The handler of `Tick` runs a scheduling cycle
    (backfill/profiles/profile_cycles.py).

    Example: the input `Submit` gives the event JobQueued(7) and the reply Accepted((7,)). The next `Tick`
    gives the event JobPlaced(7) and the effect StartAttempt for node gpu01.
    """

    stopper_type: type[Stopper] = Stopper
    agent_reports_type: type[AgentReports] = AgentReports
    """Tests replace `stopper_type` and `agent_reports_type` by classes with an error, to show that the fault
    simulation finds the error.
    """

    def __init__(self, pipeline: Pipeline, state: State) -> None:
        self._events: list[Event] = []
        self._effects: list[Effect] = []
        self._warns_of_limits = True
        self._build(pipeline, state)

    def _build(self, pipeline: Pipeline, state: State) -> None:
        """Create the objects that handle inputs, such as JobCommands, for this configuration and this state.
        They replace the objects for the previous configuration.
        """
        self.pipeline = pipeline
        self.state = state
        state.set_profiles(pipeline.profiles)
        state.set_quota_config(pipeline.rules)
        state.put_scavengers_last(scavengers_yield(pipeline, pipeline.profiles))
        state.order_projects(pipeline.order_of_projects)
        state.gang_after_s = pipeline.waiting.gang_after_s
        state.longest_runs = replace(pipeline.estimating, predicted=False, quantile=1.0)
        state.estimates.use_guard(pipeline.estimating, shortest_first=not pipeline.backfill.in_queue_order)
        state.nodes.datasets.policy = pipeline.datasets
        record, order = self._record, self._effects.append
        self.hours_change_at = NEVER
        """The next time at which another set of tables [hours.NAME] comes into force."""
        self._hours_unknown = bool(pipeline.rules.timetable.tables or state.hours)
        """True until the first tick has computed which tables [hours.NAME] are in force. Always False if
        there are no such tables.
        """
        self.profile_cycles = cycles = ProfileCycles(state, pipeline)
        self.cycle = cycles.last
        self.placer = self.cycle.placer
        self._stopper = stopper = self.stopper_type(state, cycles, record, order)
        self.gpu_health = GpuHealthHandler(state, pipeline.health_policy, record, order)
        self.idle_gpus = IdleGpuHandler(state, pipeline.idling, record, order, stopper.stop)
        self.due_jobs = DueJobs(state, pipeline.waiting, record, stopper.stop)
        self.limit_warnings = LimitWarnings(
            state, pipeline.limits if self._warns_of_limits else NO_LIMIT_WARNINGS, record, order
        )
        self.rebalancer = Rebalancer(state, self.placer, self.cycle, pipeline.rebalance, record, stopper.stop)
        context = Context(
            state, pipeline, cycles, self.due_jobs, self.gpu_health, self.idle_gpus, stopper, record, order
        )
        self._user_commands = users = JobCommands(context)
        self.workloads = workloads = WorkloadCommands(context, users)
        self._reservations = reservations = ReservationCommands(context)
        self._agent_reports = agents = self.agent_reports_type(context)
        self.timed_drains = TimedDrains(state, cycles, pipeline.rebalance, stopper, record, order)
        tokens = TokenCommands(context)
        operators = OperatorCommands(context, self.timed_drains)
        self.services = services = ServiceReconciler(context, users)
        # If a handler accepts an input and has no job ids to return, it returns None. The reply is then DONE.
        self._handlers: dict[type[Any], Callable[[Any, float], Reply | None]] = {
            job_inputs.Submit: users.submit,
            job_inputs.Cancel: users.cancel,
            job_inputs.Edit: users.edit,
            job_inputs.Hold: users.hold,
            job_inputs.Release: users.release,
            job_inputs.Preempt: users.preempt,
            job_inputs.Requeue: users.requeue,
            job_inputs.SubmitWorkload: workloads.submit,
            job_inputs.CancelWorkload: workloads.cancel,
            job_inputs.RetryWorkload: workloads.retry,
            controller_inputs.NoteStart: users.note_start,
            controller_inputs.NoteLongWait: users.note_long_wait,
            controller_inputs.WarnOfLimit: self.limit_warnings.on_recorded,
            node_inputs.AddNode: operators.add_node,
            node_inputs.PinKey: operators.pin_key,
            controller_inputs.SealJournal: operators.seal_journal,
            node_inputs.RemoveNode: operators.remove_node,
            node_inputs.MarkNode: operators.mark_node,
            node_inputs.Drain: operators.drain,
            node_inputs.Resume: operators.resume,
            policy_inputs.SetQuota: operators.set_quota,
            policy_inputs.UnsetQuota: operators.unset_quota,
            policy_inputs.SetShare: operators.set_share,
            policy_inputs.RestartService: services.restart,
            policy_inputs.ScaleService: services.scale,
            agent_inputs.HealthReported: HealthHandler(context).on_report,
            access_inputs.CreateToken: tokens.create,
            access_inputs.RevokeToken: tokens.revoke,
            policy_inputs.Reserve: reservations.reserve,
            policy_inputs.CancelReservation: reservations.cancel,
            policy_inputs.Rebalance: self.rebalancer.run,
            agent_inputs.AgentSaidHello: self._on_agent_hello,
            agent_inputs.AgentReported: agents.on_attempt_report,
            agent_inputs.MembersReported: agents.on_members_report,
            controller_inputs.DataFound: self.due_jobs.on_data_found,
            agent_inputs.OffQueueProcessSeen: agents.on_off_queue_process_seen,
            agent_inputs.OffQueueProcessGone: agents.on_off_queue_process_gone,
            agent_inputs.LinkWentDown: agents.on_link_down,
            agent_inputs.NodeSilent: agents.on_node_silent,
            node_inputs.DeclareLost: agents.on_declare_lost,
            controller_inputs.ControllerStarted: agents.on_controller_started,
            agent_inputs.GpusIdle: self.idle_gpus.on_idle,
            agent_inputs.GpusBusy: self.idle_gpus.on_busy,
            job_inputs.KeepIdle: self.idle_gpus.keep,
            agent_inputs.GpuReported: self.gpu_health.on_report,
            agent_inputs.GpuTroubled: self.gpu_health.on_fault,
            agent_inputs.GpuChecked: self.gpu_health.on_check,
            agent_inputs.GpuWasReset: self.gpu_health.on_reset,
            node_inputs.CordonGpu: self.gpu_health.cordon,
            node_inputs.ResumeGpu: self.gpu_health.resume,
            controller_inputs.ApplyConfig: self._on_apply_config,
            controller_inputs.Tick: self._on_tick,
        }

    def give_no_limit_warnings(self) -> None:
        """Stop warning owners before the time limit ends their jobs. Forecasts and simulations call this,
        because a warning has no effect in a simulation. Replays call this, because their journal already has
        the warnings.
        """
        self._warns_of_limits = False
        self.limit_warnings.clear()

    def handle(self, given: Input, now: float) -> Decision:
        """Handle one input. The events in the returned Decision are already applied to the state."""
        if isinstance(given, JobCommand) and given.job not in self.state.jobs:
            return Decision(reply=no_such_job(given.job))
        if isinstance(given, NodeCommand) and given.node not in self.state.nodes.by_name:
            return Decision(reply=no_such_node(given.node))
        reply = self._handlers[type(given)](given, now) or DONE
        if self.pipeline.breaker.faults:
            for fault in self.pipeline.breaker.take_faults():
                self._record(PluginFailed(now, fault.kind, fault.name, fault.why, fault.given_up))
        self.due_jobs.settle(now)
        decision = Decision(tuple(self._events), tuple(self._effects), reply)
        self._events.clear()
        self._effects.clear()
        return decision

    def follow(self, events: Iterable[Event]) -> None:
        """Apply events that the engine of another controller has recorded. Make no decisions and send no
        effects.
        """
        for event in events:
            self._record(event)
        self._events.clear()

    def _record(self, event: Event) -> None:
        kind = type(event)
        APPLY[kind](self.state, event)
        if kind in _CHANGES_VICTIM and isinstance(event, JobEvent) and self.state.jobs[event.job].unended:
            preemptible_at = event.at if kind in _CHANGES_STANDING else NEVER
            self.profile_cycles.victim_changed(event.job, preemptible_at)
        if isinstance(event, JobRelaxed):
            self.profile_cycles.forget(event.job)
        self._events.append(event)
        self.due_jobs.on_event(event)
        if kind in PLANS_WARNING:
            self.limit_warnings.on_event(event)
        if self.services.active:
            self.services.on_event(event)

    def _on_agent_hello(self, given: agent_inputs.AgentSaidHello, now: float) -> Reply | None:
        reply = self._agent_reports.on_agent_hello(given, now)
        self._user_commands.settle_defaults(now)
        return reply

    def _on_apply_config(self, given: controller_inputs.ApplyConfig, now: float) -> None:
        """Change the configuration. The result is the same as after a restart with the new configuration.
        Running jobs continue.

        1. Record the change.
        2. Copy the state for the new configuration (`given.pipeline`).
        3. Create all objects that handle inputs again.
        """
        old, new = self.pipeline, given.pipeline
        overcommit = new.overcommit if new is not None and new.overcommit != old.overcommit else None
        self._record(ConfigApplied(now, given.digest, given.by, given.changed, given.policy, overcommit))
        if new is not None:
            self._build(new, state_under(self.state, new, self.state.jobs.values(), self.state.estimates))

    def _on_tick(self, _given: controller_inputs.Tick, now: float) -> None:
        """Handle everything that is due, then run a scheduling cycle.

        1. If a plugin failed in the last cycle and is called again now, clear the cached results of plugins.
        2. Put the tables [hours.NAME] of this time into force. Begin and end reservations. Stop the jobs on
           nodes that a timed drain must empty soon. Warn the owners of jobs whose time limit is near. Record
           projects that have used an alert percentage of their budgets.
        3. Act on jobs that are due, such as begin times and restart delays. Act on dependencies that are met
           or can never be met.
        4. Queue and end replicas of services.
        5. Run a scheduling cycle of each scheduler profile. Each event of a cycle is applied before the cycle
           continues.
        6. End the waiting jobs for which this cycle was the last chance to start before their deadline or the
           end of their longest wait. If there were such jobs, run another cycle, because jobs that depend on
           them may start.
        """
        if self.pipeline.breaker.failed and self.pipeline.breaker.begin_cycle():
            self.profile_cycles.ask_again()
        if self.state.nodes.datasets.by_dataset:
            self.state.nodes.datasets.advance(now)
        if self._hours_unknown or self.hours_change_at <= now:
            self._follow_hours(now)
        if self.state.reservations.by_name:
            self._reservations.begin_and_end_due(now)
        if self.state.reservations.drains and self.timed_drains.next_at <= now:
            self.timed_drains.run(now)
        if self.limit_warnings.planned and self.limit_warnings.next_at <= now:
            self.limit_warnings.run(now)
        if self.state.budgets.rules.budgets:
            for standing, percent in self.state.budgets.due(now):
                used = BudgetReached(now, standing.project, standing.month, percent, standing.text)
                self._record(used)
        if self.due_jobs.next_at <= now:
            self.due_jobs.open_due(now)
        if self.services.active:
            self.services.run(now)
        self.due_jobs.settle(now)
        self.profile_cycles.run(now, self._carry_out)
        if self.due_jobs.next_at <= now:
            self.due_jobs.end_due(now)
            self.due_jobs.settle(now)
            self.profile_cycles.run(now, self._carry_out)

    def _follow_hours(self, now: float) -> None:
        """If other tables [hours.NAME] have come into force, record their names."""
        timetable = self.state.quotas.rules.timetable
        tables = timetable.in_force(now)
        if tables != self.state.hours:
            self._record(HoursChanged(now, tables))
        self._hours_unknown, self.hours_change_at = False, timetable.next_change(now)

    def _carry_out(self, event: CycleEvent) -> None:
        """Record an event of a scheduling cycle, and add its effects (messages to agents)."""
        self._record(event)
        job = self.state.jobs[event.job]
        if isinstance(event, JobPlaced):
            facts = partial(start_facts, self.state)
            self._effects.append(
                StartAttempt(job, job.members, job.spec, job.attempt, job.checkpoint, facts, job.short)
            )
        elif isinstance(event, JobGrew):
            starts = start_frames(job, *start_facts(self.state, job))
            for allocation in event.allocations:
                self._effects.append(SendToNode(allocation.node, starts[allocation.node]))
        elif isinstance(event, PreemptionPlanned):
            self._stop_victims(job, event)

    def _stop_victims(self, job: Job, plan: PreemptionPlanned) -> None:
        """Stop the victims of a preemption plan for the waiting job. An elastic victim may give up only some
        of its nodes and continue on the others.

        A victim with a target (a placement on other nodes) is moved to the target. All targets are kept for
        their victims before any victim is stopped.
        """
        by, now = f"job {job.label}", plan.at
        if plan.strategy == WINDOW:
            by += f" ({WINDOW_CLOSED})"
        for victim in plan.victims:
            if victim.target:
                self._record(
                    MovePlanned(
                        *(victim.job, now, victim.attempt, victim.target, victim.quality),
                        *("", PREEMPTION, victim.gpu_hours, plan.by, job.id),
                    )
                )
        for victim in plan.victims:
            other = self.state.jobs[victim.job]
            if victim.nodes:
                self._record(JobShrunk(other.id, now, other.attempt, victim.nodes, by, victim.gpu_hours))
                for node in victim.nodes:
                    self._stopper.send_leave(other, node)
            else:
                self._stopper.stop(other, Reason.PREEMPTED, by, now, plan.by)

    @property
    def next_at(self) -> float:
        """The time at which the next tick is needed, if no other input comes earlier."""
        reservations, budgets = self.state.reservations, self.state.budgets
        at = min(self.due_jobs.next_at, self.profile_cycles.again_at, self.hours_change_at)
        # Ask reservations, services, budgets and warnings only if there are any, because the simulator reads
        # `next_at` after each input.
        if reservations.by_name:
            at = min(at, reservations.next_at)
        if reservations.drains:
            at = min(at, self.timed_drains.next_at)
        if self.services.active:
            at = min(at, self.services.next_at)
        if budgets.rules.budgets:
            at = min(at, budgets.next_at)
        if self.limit_warnings.planned:
            at = min(at, self.limit_warnings.next_at)
        return at

    # --- queries, which do not change the state ---

    def preview(self, given: job_inputs.Submit, now: float) -> JobSpec | Refusal:
        return self._user_commands.preview(given, now)

    def with_defaults(self, job: Job, spec: JobSpec) -> JobSpec:
        """Return `spec`, the edited spec of a waiting job, with default values for CPU and memory that the
        user has not set.
        """
        return self._user_commands.with_defaults(job, spec, frozenset(changed_fields(job.spec, spec)))

    def explain(self, job: Job, now: float) -> Why:
        cycle = self.profile_cycles.of(job)
        with cycle.easy.keeping(), self.state.nodes.keeping_values():
            why = explain(self.state, cycle.placer.for_query(), cycle, self.pipeline.losses, job, now)
        rule = rule_of(job.failure, self.pipeline.failures) if job.state.terminal else None
        if rule is None:
            return why
        notes = (f"cause ({rule.name}): {rule.sentence}", *((rule.remedy,) if rule.remedy else ()))
        return replace(why, notes=(*why.notes, *notes))

    def placement_receipt(self, job: Job) -> tuple[NodeScore, ...]:
        """Return the points of the nodes of a running job, and of the best other nodes, at its placement."""
        return placement_receipt(self.state, self.profile_cycles.of(job).placer.pipeline, job)

    def predicted(self, job: Job) -> float | None:
        """Return the predicted run time of a job in seconds; None if there is no prediction.

        For a queued job, compute the prediction now. For any other job, return the prediction that was made
        at its placement.
        """
        if job.state is JobState.QUEUED:
            return self.state.estimates.predict(job, self.pipeline.estimating)
        return job.predicted_s

    def preemption_plan(self, job: Job, now: float) -> tuple[PreemptionPlanned | None, bool]:
        """Return a preemption that would let a waiting job start, and whether the configured policy allows
        this preemption.

        1. If licences for the job are missing, return None and False, because no job is preempted for
           licences.
        2. If the configured strategies find a preemption, return the preemption and True.
        3. If they find none, ignore the strategies and the guards (limits that protect running jobs). Only
           jobs in queues that are not preemptible stay protected. Search among the running jobs with at most
           the priority of the waiting job. Return the preemption that this search finds, or None, and False.
        """
        if self.state.licences.insufficient(job.ask.licences):
            return None, False
        cycle = self.profile_cycles.of(job)
        reserved, plan = cycle.search.reserved_for_others(job, now), None
        if cycle.placer.pipeline.strategies:
            plan = cycle.preemption.plan(job, now, reserved)
        if plan is not None:
            return plan, True
        rules = self.state.quotas.rules
        unguarded = Preemptor(
            self.state,
            cycle.placer,
            (NotAbovePriority(),),
            NO_GUARDS,
            lambda each: replace(NO_GUARDS, preemptible=rules.queue(each.spec.queue).preemptible),
        )
        return unguarded.plan(job, now, reserved), False
