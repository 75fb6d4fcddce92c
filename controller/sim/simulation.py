"""Runs the scheduling engine in virtual time. Submits and reports of agents are scheduled callbacks."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from controller.core.accounting.cluster_accounting import ClusterAccounting
from controller.core.engine import Engine
from controller.core.model.decision.decision import Accepted, Decision, Refusal, Reply
from controller.core.model.decision.effects import SendToNodes, StartAttempt
from controller.core.model.events.event import Event
from controller.core.model.inputs import agent_inputs, controller_inputs, job_inputs, policy_inputs
from controller.core.model.inputs.controller_inputs import Tick
from controller.core.model.inputs.input import Input
from controller.core.model.job import NEVER
from controller.core.rebalance.rebalancer import AUTO
from controller.sim.lost_nodes import LostNodes
from controller.sim.restart import restarted
from controller.sim.trace_job import TraceJob
from controller.sim.virtual_agents import AttemptReports, Key, PlannedRun, VirtualAgents
from wire.agent.orders import Settle, Start, Stop
from wire.agent.reports import AttemptStatus, NodeFacts
from wire.job.start_conditions import Dependency
from wire.names import JobState

REPORT, REQUEST, REBALANCE = 0, 1, 2
"""The order of callbacks with the same time: reports of agents, then requests of users, then rebalancing."""

QUIET_STEPS = 100
TICK = Tick()
_ENDLESS = PlannedRun(NEVER)

Callback = Callable[[float], None]


class Simulation:
    """One engine, a virtual clock and virtual agents.

    Algorithm of a step
    1. Set `now` to the time of the earliest scheduled callback or of the next timer of the engine, whichever
       is earlier.
    2. Run every callback with this time, ordered by rank and then by the order of scheduling. Each callback
       passes one input to the engine. The virtual agents carry out the engine's orders at once, and schedule
       a callback for each report that is due later.
    3. Run a scheduling cycle (`run_pass`).

    Invariant: the state changes only through Engine.handle, as on a real cluster. Cost: O(log n) per
    callback, with n scheduled callbacks, plus the engine itself.

    Example: job 1 runs for 60 s on the only GPU, and job 2 is submitted 10 s after job 1. The steps are at 0
    s (job 1 is submitted and placed), 10 s (job 2 is submitted and waits) and 60 s (job 1 ends, job 2
    starts).
    """

    def __init__(
        self,
        engine: Engine,
        observe: Callable[[Event], None] | None = None,
        accounting: ClusterAccounting | None = None,
    ) -> None:
        self.engine = engine
        engine.give_no_limit_warnings()
        self.accounting = accounting
        """Counts GPU-hours for the reports on fairness and idle GPUs. If None, nothing is counted."""
        self.now = 0.0
        self.agents = VirtualAgents(lambda key: self._planned_run(key[0]), self._started_at)
        self.planned_runs: dict[int, PlannedRun] = {}
        """For each job id: the run time, exit code, checkpoint interval and start overhead of the next
        attempt.
        """
        self.repeated_overhead_s: dict[int, float] = {}
        """For each job id: the seconds of start overhead that later attempts must spend again, although the
        work of the attempt was saved.
        """
        self.lost_nodes = LostNodes(self)
        self.refused: list[tuple[TraceJob, Refusal]] = []
        self.trace_jobs: dict[int, TraceJob] = {}
        """For each job id: the job of the log."""
        self._first_ids: dict[int, int] = {}
        """For each number of a submitted job in the log: the id of the job, or of the first element of the
        array.
        """
        self._observe = observe
        self._heap: list[tuple[float, int, int, Callback]] = []
        self._sequence = 0
        self._saved: set[Key] = set()
        self._first_start: dict[Key, float] = {}
        self._rules = engine.pipeline.rebalance
        self._quiet_steps = 0

    def schedule(self, when: float, rank: int, callback: Callback) -> None:
        """Schedule a callback. Among callbacks with the same time, the callback with the lowest rank runs
        first.
        """
        self._sequence += 1
        heapq.heappush(self._heap, (when, rank, self._sequence, callback))

    def add_node(self, name: str, facts: NodeFacts) -> None:
        """Add a node, by passing the hello (first message) of its virtual agent to the engine."""
        self.lost_nodes.connect(name, facts)

    def add_work(self, work: Iterable[TraceJob]) -> None:
        """Schedule the submits of these jobs. If rebalancing is on (jobs are moved to other nodes
        automatically), schedule the times at which it runs.
        """
        first: float | None = None
        for each in work:
            first = each.submit_s if first is None else min(first, each.submit_s)
            self.schedule(each.submit_s, REQUEST, lambda _now, each=each: self._submit(each))  # type: ignore[misc]

        if first is not None and self._rules.mode == "auto":
            self.schedule(first + self._rules.interval_s, REBALANCE, self._rebalance)

    def _rebalance(self, now: float) -> None:
        self.tell(policy_inputs.Rebalance(AUTO))
        # Stop rebalancing when no other callback is left, because rebalancing would keep the simulation
        # running forever.
        if self._heap:
            self.schedule(now + self._rules.interval_s, REBALANCE, self._rebalance)

    def _submit(self, work: TraceJob) -> None:
        reply = self._reply_to_submit(work)
        if isinstance(reply, Accepted):
            self._first_ids[work.number] = reply.jobs[0]
            for job in reply.jobs:
                self.trace_jobs[job] = work
                self.planned_runs[job] = PlannedRun(
                    work.runtime_s, work.code, work.checkpoint_every_s, work.start_overhead_s
                )
        else:
            self.refused.append((work, reply))

    def _planned_run(self, job: int) -> PlannedRun:
        """Return the plan of the job's next attempt, such as its run time and its exit code. A replica of a
        service, which is not in the log, runs until it is stopped.
        """
        return self.planned_runs.get(job, _ENDLESS)

    def _reply_to_submit(self, work: TraceJob) -> Reply:
        """Submit a job of the log and return the engine's reply. In the dependencies of the job, job numbers
        of the log are replaced by the ids that the engine has given to these jobs. If one of these jobs was
        refused, return a Refusal.
        """
        spec = work.spec
        if spec.after:
            refused = next((each.job for each in spec.after if _number_of(each) not in self._first_ids), None)
            if refused is not None:
                message = f"job {refused} of the log, on which this job depends, was refused"
                return Refusal("not_found", message, "after")
            spec = replace(spec, after=tuple(map(self._with_job_id, spec.after)))
        return self.tell(job_inputs.Submit(spec, work.user)).reply

    def _with_job_id(self, dependency: Dependency) -> Dependency:
        _, underscore, index = dependency.job.partition("_")
        return replace(dependency, job=f"{self._first_ids[_number_of(dependency)]}{underscore}{index}")

    def _started_at(self, key: Key, now: float) -> float:
        """Return the time from which the run time of the attempt is counted.

        For a gang member that joins a running elastic job, this is the start of the first member, so that all
        members end together.
        """
        work = self.trace_jobs.get(key[0])
        if work is None or not work.spec.gang.elastic:
            return now
        return self._first_start.setdefault(key, now)

    def tell(self, given: Input) -> Decision:
        """Pass one input (command, report or timer) to the engine now, and carry out the orders that the
        engine returns.
        """
        if self.accounting is not None:
            self.accounting.advance(self.engine, self.now)
        decision = self.engine.handle(given, self.now)
        if self.accounting is not None:
            self.accounting.observe(self.engine.state, decision.events, self.now)
        if self._observe is not None:
            for event in decision.events:
                self._observe(event)
        for effect in decision.effects:
            # Use the effect itself, and do not build the message to an agent, because virtual agents need no
            # messages.
            if isinstance(effect, StartAttempt):
                self._start((effect.job.id, effect.attempt), tuple(effect.members), effect.time_limit_s)
            elif isinstance(effect, SendToNodes):
                self._obey(effect.nodes, effect.frame)
            else:
                self._obey((effect.node,), effect.frame)
        return decision

    def _obey(self, nodes: Sequence[str], order: object) -> None:
        """Carry out an order of the engine on the connected nodes.

        Virtual agents ignore orders to start a ready gang, to check a GPU, or to extend a time limit.
        """
        if self.lost_nodes.lost_at:
            nodes = [node for node in nodes if node not in self.lost_nodes.lost_at]
        if isinstance(order, Start):
            self._start((order.job, order.attempt), nodes, order.time_limit_s)
        elif isinstance(order, Stop):
            self._report((order.job, order.attempt), self.agents.stop(nodes, order, self.now))
        elif isinstance(order, Settle):
            self.agents.settle((order.job, order.attempt), nodes)

    def _start(self, key: Key, nodes: Sequence[str], limit_s: float | None) -> None:
        started, seconds = self.agents.start(key, nodes, limit_s, self.now)
        self._schedule_end(key, seconds, lambda now: self._report(key, self.agents.end(key, nodes, now)))
        self._schedule_checkpoint(key, nodes)
        self._report(key, started)
        job = self.engine.state.jobs[key[0]]
        if job.spec.health is not None and job.state is JobState.RUNNING:
            self.tell(agent_inputs.HealthReported(*key, healthy=True))

    def _schedule_checkpoint(self, key: Key, nodes: Sequence[str]) -> None:
        """Schedule the next checkpoint of an attempt that writes checkpoints during its run."""
        planned = self.planned_runs.get(key[0])
        if planned is None or planned.checkpoint_every_s is None:
            return

        def save(now: float) -> None:
            reports = self.agents.save(key, nodes, now)
            if reports:
                self._report(key, reports)
                self._schedule_checkpoint(key, nodes)

        self.schedule(self.now + planned.checkpoint_every_s, REPORT, save)

    def _schedule_end(self, _key: Key, seconds: float, ending: Callback) -> None:
        """Call `ending` in `seconds` seconds to end an attempt's processes. `ending` does nothing if the
        processes have been stopped before.
        """
        self.schedule(self.now + seconds, REPORT, ending)

    def _report(self, key: Key, reports: AttemptReports) -> None:
        if self.lost_nodes.lost_at:
            reports = {name: each for name, each in reports.items() if name not in self.lost_nodes.lost_at}
        if not reports:
            return
        node, status = next(iter(reports.items()))
        self.subtract_saved_work(status)
        self.tell(
            agent_inputs.AgentReported(node, status)
            if len(reports) == 1
            else agent_inputs.MembersReported(*key, reports)
        )

    def subtract_saved_work(self, status: AttemptStatus) -> None:
        """If this attempt has ended with a checkpoint, subtract the saved work from the run time of the next
        attempt.
        """
        key = status.job, status.attempt
        ended = status.ended_at is not None
        if not ended or status.checkpoint is None or status.started_at is None or key in self._saved:
            return
        # Subtract the work only once, because all members of a gang report the same checkpoint.
        self._saved.add(key)
        planned = self._planned_run(status.job)
        ran_s = status.checkpoint.at - status.started_at
        left_s = max(0.0, planned.runtime_s - planned.saved_work_s(ran_s))
        self.planned_runs[status.job] = replace(planned, runtime_s=left_s)
        if planned.start_overhead_s:
            spent_s = min(ran_s, planned.start_overhead_s)
            self.repeated_overhead_s[status.job] = self.repeated_overhead_s.get(status.job, 0.0) + spent_s

    @property
    def next_at(self) -> float:
        """Return the time of the next step; NEVER if no step is left."""
        return min(self._heap[0][0] if self._heap else NEVER, self.engine.next_at)

    def restart(self) -> None:
        """Restart the controller. All agents that were connected connect again at once."""
        if self.accounting is not None:
            self.accounting.advance(self.engine, self.now)
        facts = {node.name: node.facts for node in self.engine.state.nodes}
        self.engine, connected = restarted(self.engine.state, self.engine.pipeline)
        self.tell(controller_inputs.ControllerStarted(connected))
        for name in connected:
            self.lost_nodes.connect(name, facts[name])

    def _goes_on(self) -> bool:
        """Return whether the simulation continues.

        The simulation continues while a callback is scheduled or a timer of the engine is left. With a
        recurring reservation, or with quotas that change with the hour ([hours.NAME]), timers are always
        left. In this case, the simulation ends after QUIET_STEPS plus `changes_per_week` successive steps
        without a callback. If there is no recurring reservation, but [hours.NAME], it also ends when neither
        a callback nor a job is left.
        """
        if self._heap:
            self._quiet_steps = 0
            return True
        state, timetable = self.engine.state, self.engine.state.quotas.rules.timetable
        repeated = any(each.spec.every_s for each in state.reservations)
        if not (repeated or timetable.tables):
            self._quiet_steps = 0
        else:
            self._quiet_steps += 1
            if not repeated and next(iter(state.live()), None) is None:
                return False
        return self._quiet_steps <= QUIET_STEPS + timetable.changes_per_week

    def step(self) -> bool:
        """Run all callbacks with the earliest scheduled time, and then one scheduling cycle. Return False if
        nothing is left to do."""
        now = self.next_at
        if now == NEVER or not self._goes_on():
            return False
        self.now, heap = now, self._heap
        while heap and heap[0][0] == now:
            heapq.heappop(heap)[3](now)
        self.run_pass()
        return True

    def run_pass(self) -> None:
        """Run a scheduling cycle, and repeat it as long as the last cycle has preempted jobs.

        A virtual job ends at its stop, so the preempting job starts in the next scheduling cycle.
        """
        self.tell(TICK)
        while self.engine.cycle.preemption.victims_have_left():
            self.tell(TICK)
        self.engine.state.forget_old()

    def run(self) -> None:
        while self.step():
            pass


def _number_of(dependency: Dependency) -> int:
    return int(dependency.job.partition("_")[0])
