"""Runs one seed run, with checks at every step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from controller.core.engine import Engine
from controller.core.lifecycle.node_loss import is_overdue
from controller.core.model.decision.decision import Accepted, Reply
from controller.core.model.decision.effects import Effect
from controller.core.model.events.attempts import AttemptExited
from controller.core.model.events.event import Event
from controller.core.model.inputs import agent_inputs, job_inputs, policy_inputs
from controller.core.model.inputs.input import Input
from controller.core.model.job import NEVER
from controller.core.pipeline.pipeline import Pipeline
from controller.core.rebalance.rebalancer import AUTO
from controller.core.state.state import State
from controller.registry import build_pipeline
from controller.sim.generate.random_numbers import RandomStream
from controller.sim.replay.replay_clock import Clock
from controller.sim.trace_job import TraceJob
from controller.sim.virtual_agents import PlannedRun
from tests.simulation.controller import Answer, CrashPoint, SimulatedController
from tests.simulation.fault_injection import FaultInjector
from tests.simulation.flaky_link import Direction, FlakyLink, Frame
from tests.simulation.host import SimulatedHost
from tests.simulation.oracle import GuaranteeBroken, GuaranteeOracle
from tests.simulation.random_services import RandomServices
from tests.simulation.trial_plan import TrialPlan, one_of
from wire.agent.orders import Start
from wire.agent.reports import AttemptStatus, GpuChecked, GpuReset, GpuTrouble, Hello, NodeFacts, Report
from wire.job.start_conditions import Dependency
from wire.names import JobState

EngineMaker = Callable[[Pipeline, State], Engine]

LATENCIES = (0.01, 0.3, 5.0)
COMMITS = (0.0, 0.01, 1.0)
"""Most seconds from the first input of a batch to its commit."""
KEPT = (20, 10_000)
RETRY_S = 5.0
SAMPLED = 0.1
"""Probability that the whole state is compared with the journal; what a commit changed always is."""
LATEST = 25
"""Number of notes printed with a failure."""
SILENCE_STEP_S = 5.0
"""Seconds between checks for silent nodes."""
STEPS = 10_000
"""More steps per job and hour than this count as an endless loop."""


class FaultTrial:
    """A controller, hosts, the links between them, and users who retry until they get an answer."""

    def __init__(
        self,
        plan: TrialPlan,
        seed: int,
        engine: EngineMaker = Engine,
        controller: type[SimulatedController] = SimulatedController,
    ) -> None:
        self.plan = plan
        self.seed = seed
        self.clock = Clock()
        self.truth = GuaranteeOracle()
        self.latest: deque[tuple[float, Event | str]] = deque(maxlen=LATEST)
        self.work = {work.spec.name: work for work in plan.work(seed)}
        self.acknowledged: dict[str, tuple[int, ...]] = {}
        """The job ids of each acknowledged submit, by key."""
        self.deaths: list[float] = []
        """Times of controller crashes."""
        self._rng = RandomStream(seed, "trial")
        self._latency_s = one_of(self._rng, LATENCIES)
        self._commit_s = one_of(self._rng, COMMITS)
        self._landing = False
        self._fresh = False
        """Whether the controller has restarted and its state has not been compared yet."""
        self._woken_at = NEVER
        """Time of the next pass without an input."""
        self._silent: dict[str, float] = {}
        """Since when each node is silent."""
        self._told: list[tuple[str, AttemptStatus]] = []
        """Ends reported since the last commit."""
        self._given_up: list[tuple[int, int, str]] = []
        """(attempt, node) pairs that it has declared lost since then."""
        pipeline = build_pipeline(plan.policy(seed))
        self.services = RandomServices(self, pipeline.services, seed)
        self._losses = pipeline.losses
        self._rebalance = pipeline.rebalance
        self.truth.licences = pipeline.rules.licences
        self.truth.licences_of = self._licences_of
        self.controller = controller(pipeline, engine, one_of(self._rng, KEPT), self._order, self.note)
        self.hosts: dict[str, SimulatedHost] = {}
        self.lines: dict[str, FlakyLink] = {}
        for name, facts in plan.cluster().nodes.items():
            self._add_host(name, facts)
        self.trouble = FaultInjector(self, seed)

    def _add_host(self, name: str, facts: NodeFacts) -> None:
        line = self.lines[name] = FlakyLink(
            self.clock,
            RandomStream(self.seed, "line", name),
            self._latency_s,
            lambda way, frame: self._deliver(name, way, frame),
            lambda why: self._lost(name, why),
        )
        self.hosts[name] = SimulatedHost(
            name,
            facts,
            self.clock,
            RandomStream(self.seed, "host", name),
            self.truth,
            self._course,
            lambda frame: line.send(Direction.UP, frame),
            lambda: line.well and self.controller.alive,
        )

    def _licences_of(self, job: int) -> Mapping[str, int]:
        kept = self.controller.store.folded.jobs.get(job)
        return {} if kept is None else kept.spec.licences

    def _course(self, order: Start) -> PlannedRun:
        work = self.work.get(order.name)
        if work is None:
            return self.services.course(order)
        return PlannedRun(work.runtime_s, work.code)

    def note(self, what: Event | str) -> None:
        """Add a note for the report of a failure."""
        self.latest.append((self.clock.now, what))
        if isinstance(what, AttemptExited) and what.why.startswith("node_lost"):
            self._given_up.append((what.job, what.attempt, what.node))

    # --- between hosts and controller ---

    def reach(self, node: str) -> None:
        """Connect to the host, if possible."""
        line, host = self.lines[node], self.hosts[node]
        if self.controller.alive and host.up and not line.open and not line.cut:
            line.connect(host.hello())

    def _deliver(self, node: str, way: Direction, frame: Frame) -> None:
        if way is Direction.DOWN:
            if self.hosts[node].up:
                self.hosts[node].obey(frame)  # type: ignore[arg-type]
        elif isinstance(frame, Hello):
            self._silent.pop(node, None)
            self._heard(node, frame.attempts)
            self.tell(agent_inputs.AgentSaidHello(node, frame))
        elif isinstance(frame, Report):
            self._heard(node, [frame.status])
            self.tell(agent_inputs.AgentReported(node, frame.status))
        elif isinstance(frame, GpuTrouble):
            self.tell(agent_inputs.GpuTroubled(node, frame.uuid, frame.kind, frame.why, frame.xid))
        elif isinstance(frame, GpuChecked):
            self.tell(agent_inputs.GpuChecked(node, frame.uuid, frame.ok, frame.why))
        elif isinstance(frame, GpuReset):
            self.tell(agent_inputs.GpuWasReset(node, frame.uuid, frame.ok, frame.why))

    def _heard(self, node: str, told: Iterable[AttemptStatus]) -> None:
        if self.controller.alive:
            self._told += [(node, status) for status in told if status.ended_at is not None]

    def _lost(self, node: str, why: str) -> None:
        self._begin_silence(node)
        self.tell(agent_inputs.LinkWentDown(node, why))
        self.clock.after(self._rng.between(0.1, 30.0), lambda: self.reach(node))

    def _order(self, effect: Effect) -> None:
        for order in effect.orders():
            self.lines[order.node].send(Direction.DOWN, order.frame)

    # --- the controller ---

    def tell(self, given: Input, answer: Answer | None = None) -> None:
        """Put an input into the inbox; inputs until the next land() share its commit."""
        if self.controller.alive:
            self.controller.put(given, answer)
            self._land_soon()

    def _land_soon(self) -> None:
        if not self._landing:
            self._landing = True
            self.clock.after(self._commit_s * self._rng.uniform(), self._land)

    def _begin_silence(self, node: str) -> None:
        since = self._silent.setdefault(node, self.clock.now)

        def count() -> None:
            state, silent_s = self.controller.engine.state, self.clock.now - since
            if self._silent.get(node) != since:
                return
            there = state.nodes.get(node)
            if (
                self.controller.alive
                and there is not None
                and is_overdue(state, there, self._losses, silent_s)
            ):
                self.tell(agent_inputs.NodeSilent(node, silent_s))
            self.clock.after(SILENCE_STEP_S, count)

        self.clock.after(SILENCE_STEP_S, count)

    def _wake(self) -> None:
        """Schedule the next timer, as the daemon does."""
        at = self.controller.engine.next_at if self.controller.alive else NEVER
        if at < self._woken_at:
            self._woken_at = at

            def look() -> None:
                if self._woken_at == at:
                    self._woken_at = NEVER
                    self.controller.look()
                    self._land_soon()

            self.clock.at(at, look)

    def _explain(self) -> None:
        """Explain a waiting job, and check that this changes nothing."""
        engine = self.controller.engine
        for job in [*engine.state.live()]:
            if job.state is JobState.QUEUED:
                engine.explain(job, self.clock.now)

    def _land(self) -> None:
        self._landing = False
        death = self.controller.land(self.clock.now)
        told, self._told = self._told, []
        if death is not CrashPoint.BEFORE_COMMIT:
            self.truth.hear(told)
            self.truth.give_up(self._given_up)
            self._given_up.clear()
        if death is not None:
            self.note(f"the controller died {death.value}")
            self.deaths.append(self.clock.now)
            for line in self.lines.values():
                line.drop()
            self.clock.after(self._rng.between(0.1, 600.0), self.revive)
            return
        self._wake()
        if self.controller.alive and (self._fresh or self._rng.chance(SAMPLED)):
            self._fresh = False
            self.controller.compare()
            self._explain()

    def revive(self) -> None:
        """Restart the controller unless it runs; it connects to the hosts one by one."""
        if self.controller.alive:
            return
        self.note("the controller starts")
        self.controller.recover()
        self._fresh = True
        self._woken_at = NEVER
        self._silent.clear()
        for node in self.hosts:
            self._begin_silence(node)
        for node in self.hosts:
            self.clock.after(self._rng.between(0.1, 10.0), lambda node=node: self.reach(node))  # type: ignore[misc]
        self._land_soon()

    # --- users ---

    def insist(self, given: Input, answered: Answer = lambda _reply: None) -> None:
        """Retry until there is an answer, as clients do."""
        done: list[Reply] = []

        def answer(reply: Reply) -> None:
            if not done:
                answered(reply)
            done.append(reply)

        def ask() -> None:
            if not done:
                self.tell(given, answer)
                self.clock.after(RETRY_S * (1 + self._rng.uniform()), ask)

        ask()

    def _submit(self, work: TraceJob) -> None:
        key, spec = work.spec.name, replace(work.spec, after=self._named(work.spec.after))
        self.insist(job_inputs.Submit(spec, work.user, key), lambda reply: self._submitted(work, reply))

    def _named(self, after: Iterable[Dependency]) -> tuple[Dependency, ...]:
        """Dependencies with job ids; those on jobs without an id yet are dropped."""
        found = [(each, self.acknowledged.get(each.job)) for each in after]
        return tuple(replace(each, job=str(jobs[0])) for each, jobs in found if jobs)

    def _submitted(self, work: TraceJob, reply: Reply) -> None:
        if isinstance(reply, Accepted):
            self.acknowledged[work.spec.name] = reply.jobs
            if work.spec.hold:
                pause = self._rng.between(0.0, 3_600.0)
                for job in reply.jobs:
                    self.clock.after(pause, lambda job=job: self.insist(job_inputs.Release(job, work.user)))  # type: ignore[misc]

    # --- run ---

    def run(self) -> None:
        """Run everything; raises GuaranteeBroken."""
        for node in self.hosts:
            self.reach(node)
        for work in self.work.values():
            self.clock.at(work.submit_s, lambda work=work: self._submit(work))  # type: ignore[misc]
        if self._rebalance.mode == "auto":
            for turn in range(1, int(self.plan.seconds / self._rebalance.interval_s) + 1):
                at = turn * self._rebalance.interval_s
                self.clock.at(at, lambda: self.tell(policy_inputs.Rebalance(AUTO)))
        self.services.arrange()
        self.trouble.arrange(self.plan.seconds)
        self.clock.at(self.plan.seconds, self.trouble.heal_all)
        for _ in range(most := int(STEPS * (self.plan.jobs + self.plan.hours))):
            if not self.clock.step():
                return
        raise GuaranteeBroken("everything comes to rest", f"{most} steps, and still something to do")
