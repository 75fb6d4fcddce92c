"""A small cluster around the real engine, checked after every step, for tests that read like stories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.core import inputs
from controller.core.check import check
from controller.core.effects import SendToNode
from controller.core.engine import Engine
from controller.core.events import Event
from controller.core.inputs import Accepted, Decision, Input, Refusal
from controller.core.jobs import Job
from controller.core.keeper import Keeper
from controller.core.notes import notes_of
from controller.core.plugin import Pipeline, Weighted
from controller.core.records import job_row, node_row, restore
from controller.core.state import State
from controller.plugins.filters.affinity import Affinity as AffinityFilter
from controller.plugins.filters.available import Available
from controller.plugins.filters.capacity import Capacity
from controller.plugins.filters.company import Company as CompanyFilter
from controller.plugins.filters.gpu import Gpu
from controller.plugins.filters.image import Image
from controller.plugins.filters.selector import Selector
from controller.plugins.filters.taints import Taints as TaintsFilter
from controller.plugins.orders.priority import Priority
from controller.plugins.pickers.tightest import Tightest
from controller.plugins.scorers.affinity import Affinity
from controller.plugins.scorers.company import Company
from controller.plugins.scorers.fit import Fit
from controller.plugins.scorers.load import Load
from controller.plugins.scorers.taints import Taints
from controller.plugins.scorers.wiring import Wiring
from wire.api.reasons import Why
from wire.frames import AttemptStatus, GpuFacts, Hello, NodeFacts, Start, Stop
from wire.spec import JobSpec

PIPELINE = Pipeline(
    order=Priority(),
    filters=(
        Available(),
        Capacity(),
        Gpu(),
        Image(),
        Selector(),
        AffinityFilter(),
        TaintsFilter(),
        CompanyFilter(),
    ),
    scorers=(
        Weighted(Fit(), 30),
        Weighted(Load(), 20),
        Weighted(Affinity(), 100),
        Weighted(Taints(), 100),
        Weighted(Wiring(), 100),
        Weighted(Company(), 100),
    ),
    picker=Tightest(),
)


def default_pipeline() -> Pipeline:
    """What an empty scheduler.toml means."""
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
) -> NodeFacts:
    """A host; GPUs are linked in islands of `island` neighbours."""
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
    )


def spec(gpus: float = 0, **more: Any) -> JobSpec:
    """A job with sensible small defaults."""
    return JobSpec(command=("true",), gpus=gpus, **more)


@dataclass
class World:
    """The engine, a clock, and agents that do what they are told when the test says so."""

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
        """Hand the engine one input and check the whole state after it."""
        decision = self.engine.handle(given, self.now)
        self.events += decision.events
        self.sent += decision.orders
        assert check(self.state) == []
        keeper = self.engine.keeper
        anew = Keeper(self.state, self.pipeline.waiting, self.events.append, print)
        assert (anew.moments, anew.kept) == (keeper.moments, keeper.kept)
        assert anew.followers.edges == keeper.followers.edges
        assert [*anew.slots] == sorted(keeper.slots)
        for array, slots in anew.slots.items():
            now = keeper.slots[array]
            assert (slots.taken, slots.wanting) == (now.taken, now.wanting)
            assert len(slots.taken) <= slots.most
            assert slots.next() is None
        return decision

    def join(
        self, name: str, attempts: tuple[AttemptStatus, ...] = (), boot: str = "b1", **host: Any
    ) -> None:
        """A node says hello."""
        hello = Hello(name, "0", boot, "i", facts(name, **host), attempts)
        self.tell(inputs.AgentSaidHello(name, hello))

    def submit(self, asked: JobSpec, user: str = "ada", key: str = "") -> int:
        """Submit and expect acceptance; the (first) id."""
        reply = self.tell(inputs.Submit(asked, user, key)).reply
        assert isinstance(reply, Accepted), reply
        return reply.jobs[0]

    def submit_unchecked(self, asked: JobSpec) -> int:
        """Submit one of very many: checking the whole state after each would take for ever."""
        reply = self.engine.handle(inputs.Submit(asked, "ada"), self.now).reply
        assert isinstance(reply, Accepted), reply
        return reply.jobs[0]

    def refuse(self, given: Input) -> Refusal:
        """Hand in something that must be refused, and must change nothing."""
        decision = self.tell(given)
        assert isinstance(decision.reply, Refusal), decision.reply
        assert decision.events == ()
        assert decision.effects == ()
        return decision.reply

    def tick(self) -> list[Start]:
        """One cycle; what it started."""
        orders = self.tell(inputs.Tick()).orders
        return [order.frame for order in orders if isinstance(order.frame, Start)]

    def tick_at(self, now: float) -> list[Start]:
        """One cycle at this moment; what it started."""
        self.now = now
        return self.tick()

    def why(self, job: int) -> Why:
        """What is said about why the job is where it is."""
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
        """Every member's process is up."""
        for node in self.nodes_of(job):
            status = AttemptStatus(job, self.job(job).attempt, pid=100 + job, started_at=self.now)
            self.tell(inputs.AgentReported(node, status))

    def exit(self, job: int, code: int | None = 0, node: str = "", **how: Any) -> None:
        """The process of every member (or of one node's) returns."""
        for name in [node] if node else self.nodes_of(job):
            status = AttemptStatus(
                job, self.job(job).attempt, 100 + job, self.now, self.now + 1, code=code, **how
            )
            self.tell(inputs.AgentReported(name, status))

    def tell_drain(self, node: str) -> None:
        """An operator closes the node."""
        self.tell(inputs.Drain(node, "root", "test"))

    def restarted(self) -> World:
        """Another controller on the same rows; the nodes have not been heard of yet."""
        other = World(self.pipeline, self.now)
        restore(
            other.state,
            [job_row(job, with_spec=True) for job in self.state.jobs.values()],
            [node_row(node) for node in self.state.nodes],
            notes_of(self.state),
        )
        return other

    def stops(self) -> list[tuple[str, int]]:
        """(node, job) of every stop order sent so far."""
        return [(sent.node, sent.frame.job) for sent in self.sent if isinstance(sent.frame, Stop)]
