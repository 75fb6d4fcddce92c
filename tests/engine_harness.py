"""The real engine with a clock and agents that a test drives; all invariants are checked after every
input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.core.engine import Engine
from controller.core.forecast.smallest_change import Suggestion
from controller.core.framework.interfaces import Backfill, WeightedScorer
from controller.core.invariants import find_violations
from controller.core.lifecycle.due_jobs import DueJobs
from controller.core.model.decision.decision import Accepted, Decision, Refusal
from controller.core.model.decision.effects import SendToNode
from controller.core.model.events.event import Event
from controller.core.model.inputs import agent_inputs, controller_inputs, job_inputs, node_inputs
from controller.core.model.inputs.input import Input
from controller.core.model.job import Job
from controller.core.pipeline.pipeline import Pipeline
from controller.core.state.job_and_node_rows import job_row, node_row, restore_state
from controller.core.state.note_rows import all_notes
from controller.core.state.state import State
from controller.plugins.backfill.kinds import Aggressive, Conservative, Easy, EasySjbf, Greedy, NoBackfill
from controller.plugins.filters.image import ImageFilter
from controller.plugins.filters.job_affinity import JobAffinityFilter as CompanyFilter
from controller.plugins.filters.labels_and_taints import AffinityFilter as AffinityFilter
from controller.plugins.filters.labels_and_taints import SelectorFilter
from controller.plugins.filters.labels_and_taints import TaintFilter as TaintsFilter
from controller.plugins.filters.resources import AvailableFilter, CapacityFilter, GpuFilter
from controller.plugins.orders.fixed import PriorityOrder
from controller.plugins.pickers.share_pickers import TightestPicker
from controller.plugins.scorers.preferences import (
    AffinityScorer,
    GpuTopologyScorer,
    JobAffinityScorer,
    TaintScorer,
)
from controller.plugins.scorers.resource_use import FitScorer, LoadScorer
from wire.agent.orders import Start, Stop
from wire.agent.reports import AttemptStatus, GpuFacts, Hello, NodeFacts
from wire.api.reasons import Why
from wire.job.spec import JobSpec

BACKFILLS: dict[str, Backfill] = {
    each.name: each
    for each in (NoBackfill(), Easy(), EasySjbf(), Conservative(), Aggressive(max_delay_s=0.0), Greedy())
}

PIPELINE = Pipeline(
    order=PriorityOrder(),
    backfill=Easy(),
    filters=(
        AvailableFilter(),
        CapacityFilter(),
        GpuFilter(),
        ImageFilter(),
        SelectorFilter(),
        AffinityFilter(),
        TaintsFilter(),
        CompanyFilter(),
    ),
    scorers=(
        WeightedScorer(FitScorer(), 30),
        WeightedScorer(LoadScorer(), 20),
        WeightedScorer(AffinityScorer(), 100),
        WeightedScorer(TaintScorer(), 100),
        WeightedScorer(GpuTopologyScorer(), 100),
        WeightedScorer(JobAffinityScorer(), 100),
    ),
    picker=TightestPicker(),
)


def default_pipeline() -> Pipeline:
    """The pipeline of an empty scheduler.toml."""
    from controller.config import Config
    from controller.registry import build_pipeline

    return build_pipeline(Config())


def facts(
    name: str,
    gpus: int = 8,
    model: str = "H100",
    cpus: int = 64,
    memory_gib: int = 512,
    numa_nodes: int = 2,
    island: int = 8,
    labels: Mapping[str, str] | None = None,
    mig: str = "",
    gpu_gib: int = 80,
    compute: str = "9.0",
    scratch_gib: int = 100,
    runtime: str = "",
    image_gpus: str = "",
) -> NodeFacts:
    """Facts of a host; GPUs are linked in islands of `island` neighbours."""
    per_numa = max(1, gpus // numa_nodes)
    return NodeFacts(
        cpu_milli=cpus * 1000,
        memory_mib=memory_gib * 1024,
        gpus=tuple(
            GpuFacts(
                index=index,
                uuid=f"GPU-{name}-{index}",
                model=model,
                memory_mib=gpu_gib * 1024,
                numa=min(index // per_numa, numa_nodes - 1),
                links=tuple(
                    other for other in range(gpus) if other != index and other // island == index // island
                ),
                compute=compute,
                mig=mig,
            )
            for index in range(gpus)
        ),
        numa_nodes=numa_nodes,
        labels=labels or {},
        storage_mib=scratch_gib * 1024,
        runtime=runtime,
        image_gpus=image_gpus,
    )


def spec(gpus: float = 0, **more: Any) -> JobSpec:
    """A small job; without grace, so that it ends exactly at its time limit."""
    return JobSpec(command=("true",), gpus=gpus, **{"grace_s": 0.0, **more})


@dataclass
class EngineHarness:
    """The engine, a clock, and agents that act when the test calls a method."""

    pipeline: Pipeline = PIPELINE
    now: float = 1_000.0
    events: list[Event] = field(default_factory=list)
    sent: list[SendToNode] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = Engine(self.pipeline, State(self.pipeline.order, sharing=self.pipeline.sharing))

    @property
    def state(self) -> State:
        return self.engine.state

    def tell(self, given: Input) -> Decision:
        """Hand the engine one input, then check the invariants of the whole state."""
        decision = self.engine.handle(given, self.now)
        self.events += decision.events
        self.sent += decision.orders
        assert find_violations(self.state) == []
        due_jobs = self.engine.due_jobs
        rebuilt = DueJobs(self.state, self.engine.pipeline.waiting, self.events.append, print)
        assert (rebuilt.due_times, rebuilt.gated) == (due_jobs.due_times, due_jobs.gated)
        assert rebuilt.dependencies.edges == due_jobs.dependencies.edges
        for fresh, kept in (
            (rebuilt.throttles, due_jobs.throttles),
            (rebuilt.workload_throttles, due_jobs.workload_throttles),
        ):
            assert sorted(fresh.by_group) == sorted(kept.by_group)
            for group, slots in fresh.by_group.items():
                now = kept.by_group[group]
                assert (slots.holding, slots.waiting) == (now.holding, now.waiting)
                assert len(slots.holding) <= slots.limit
                assert slots.next_job() is None
        return decision

    def join(
        self, name: str, attempts: tuple[AttemptStatus, ...] = (), boot: str = "b1", **host: Any
    ) -> None:
        """The agent of a node says hello."""
        hello = Hello(name, "0", boot, "i", facts(name, **host), attempts)
        self.tell(agent_inputs.AgentSaidHello(name, hello))

    def submit(self, asked: JobSpec, user: str = "ada", key: str = "") -> int:
        """Submit a job that must be accepted, and return its id, or the first id of an array."""
        reply = self.tell(job_inputs.Submit(asked, user, key)).reply
        assert isinstance(reply, Accepted), reply
        return reply.jobs[0]

    def submit_unchecked(self, asked: JobSpec) -> int:
        """Submit without checking the invariants, for tests with very many jobs."""
        reply = self.engine.handle(job_inputs.Submit(asked, "ada"), self.now).reply
        assert isinstance(reply, Accepted), reply
        return reply.jobs[0]

    def refuse(self, given: Input) -> Refusal:
        """Hand in an input that must be refused and must change nothing."""
        decision = self.tell(given)
        assert isinstance(decision.reply, Refusal), decision.reply
        assert decision.events == ()
        assert decision.effects == ()
        return decision.reply

    def tick(self) -> list[Start]:
        """One scheduling cycle; the starts it ordered."""
        orders = self.tell(controller_inputs.Tick()).orders
        return [order.frame for order in orders if isinstance(order.frame, Start)]

    def tick_at(self, now: float) -> list[Start]:
        """One scheduling cycle at this moment; the starts it ordered."""
        self.now = now
        return self.tick()

    def why(self, job: int) -> Why:
        """Return the reason why the job waits, or its nodes."""
        return self.engine.explain(self.job(job), self.now)

    def job(self, job: int) -> Job:
        return self.state.jobs[job]

    def nodes_of(self, job: int) -> list[str]:
        return list(self.job(job).members)

    def gpus_of(self, job: int) -> list[int]:
        """Indices of the GPUs a job holds, node by node."""
        return [
            int(hold.uuid.rsplit("-", 1)[1])
            for member in self.job(job).members.values()
            for hold in member.allocation.gpus
        ]

    def start(self, job: int) -> None:
        """Report that every member's process has started."""
        for node in self.nodes_of(job):
            status = AttemptStatus(job, self.job(job).attempt, pid=100 + job, started_at=self.now)
            self.tell(agent_inputs.AgentReported(node, status))

    def exit(self, job: int, code: int | None = 0, node: str = "", **how: Any) -> None:
        """Report that the processes of all members, or of the member on one node, have ended."""
        for name in [node] if node else self.nodes_of(job):
            status = AttemptStatus(
                job, self.job(job).attempt, 100 + job, self.now, self.now + 1, code=code, **how
            )
            self.tell(agent_inputs.AgentReported(name, status))

    def tell_drain(self, node: str) -> None:
        """Drain the node."""
        self.tell(node_inputs.Drain(node, "root", "test"))

    def restarted(self, pipeline: Pipeline | None = None) -> EngineHarness:
        """A controller restarted with the same rows; no agent is connected yet."""
        other = EngineHarness(pipeline or self.engine.pipeline, self.now)
        restore_state(
            other.state,
            [job_row(job, with_spec=True) for job in self.state.jobs.values()],
            [node_row(node) for node in self.state.nodes],
            all_notes(self.state),
        )
        return other

    def stops(self) -> list[tuple[str, int]]:
        """(node, job) of every stop order sent so far."""
        return [(sent.node, sent.frame.job) for sent in self.sent if isinstance(sent.frame, Stop)]


def carry_out(harness: EngineHarness, job: int, advice: Suggestion, order: int = 0) -> None:
    """Carry out the advice of explain. `order` picks the order in which preempted jobs end."""
    given: list[Input] = []
    if advice.changes:
        given.append(job_inputs.Edit(job, "root", advice.changes))
    if advice.release:
        given.append(job_inputs.Release(job, "root"))
    for name in advice.resume:
        node, _, gpu = name.partition(":")
        given.append(
            node_inputs.ResumeGpu(node, int(gpu), "root") if gpu else node_inputs.Resume(node, "root")
        )
        if gpu:
            given.append(agent_inputs.GpuChecked(node, f"GPU-{node}-{gpu}", True))
    given += [job_inputs.Preempt(victim, "root", advice.hold) for victim in advice.preempt]
    for each in given:
        reply = harness.tell(each).reply
        assert not isinstance(reply, Refusal), (advice, reply)
    harness.tick()
    leaving = [(victim, node) for victim in advice.preempt for node in harness.nodes_of(victim)]
    if leaving:
        turn = order % len(leaving)
        leaving = leaving[turn:] + leaving[:turn]
        leaving = leaving[::-1] if order % 2 else leaving
    for victim, node in leaving:
        member = harness.job(victim).members.get(node)
        if member is not None and member.ended_at is None:
            harness.exit(victim, None, node, signal=15, why="preempted")
            harness.tick()
