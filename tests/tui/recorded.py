"""A recorded cluster: the answers of a controller at a fixed time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tui.data.cluster_feed import Changes, ConnectionStatus, PendingChanges
from wire.api.forecasts import Easing, Explanation, Plan, PlanEntry, PlanPoint, Shift, WhatIf, WhatIfAnswer
from wire.api.jobs import (
    Held,
    JobDetail,
    JobList,
    JobRefused,
    JobsAnswer,
    JobsOrder,
    JobView,
    LogMatch,
    Moved,
    QueuePlace,
    Submitted,
)
from wire.api.nodes import GpuShare, GpuView, NodeView
from wire.api.policy.projects import ProjectList
from wire.api.policy.queues import QueueList, QueueView
from wire.api.policy.quotas import QuotaList, QuotaView
from wire.api.policy.rebalance import MoveView, ProposalView, Rebalanced, RebalanceView, SpreadView
from wire.api.policy.reservations import ReservationList, ReservationView
from wire.api.policy.shares import ShareList, ShareView, ShareWeight
from wire.api.problem import Problem
from wire.api.reasons import Ahead, FilterLoss, NodeScore, Points, Why
from wire.api.service.cluster import ClusterView, EventList, EventView, GpuLoadView
from wire.api.service.reports import FairnessReport, FairnessRow
from wire.cluster.quota import Limits, Quota
from wire.cluster.reservation import ReservationSpec
from wire.http.client import Client, Refused
from wire.job.spec import JobSpec
from wire.names import GpuHealth, JobState, NodeState, Reason

NOW = 1_763_462_400.0
LIVE = ConnectionStatus("live", NOW)

_NAMES = (
    "llama-70b-sft",
    "eval-mmlu",
    "vit-h-pretrain",
    "tokenize-c4",
    "rlhf-ppo",
    "whisper-large",
    "ablation",
    "dpo",
)
_USERS = ("alice", "bob", "chiara", "dmitri", "emeka")
_PROJECTS = ("nlp", "vision", "speech")


def job(number: int, state: JobState = JobState.QUEUED, **changes: object) -> JobView:
    """A believable job; the same number gives the same job."""
    started = (
        NOW - 60 * (7 + number * 13 % 400) if state not in (JobState.QUEUED, JobState.SCHEDULED) else None
    )
    base = JobView(
        id=number,
        label=str(number),
        name=_NAMES[number * 7 % len(_NAMES)],
        user=_USERS[number * 3 % len(_USERS)],
        project=_PROJECTS[number % len(_PROJECTS)],
        queue="default",
        state=state,
        reason=Reason.RESOURCES if state is JobState.QUEUED else Reason.NONE,
        detail="",
        priority=(50, 50, 75, 25, 50)[number % 5],
        gpus=(1, 8, 0.5, 2, 4, 0)[number % 6],
        nodes=1,
        cpu_milli=4000 * (1 + number % 8),
        memory_mib=16384 * (1 + number % 4),
        attempt=1,
        submitted_at=NOW - 3600 * 5 + number * 60,
        started_at=started,
        ended_at=NOW - 300 if state.terminal else None,
        time_limit_s=7200 if number % 2 else None,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def gpu(index: int, *jobs: int, free: int = 0, load: int = 0, **changes: object) -> GpuView:
    """One H100 of a node with two NUMA nodes."""
    base = GpuView(
        index=index,
        uuid=f"GPU-{index:08x}",
        model="H100",
        memory_mib=81_559,
        numa=index // 4,
        health=GpuHealth.OK,
        free_milli=free if jobs else 1000,
        jobs=jobs,
        utilisation=load,
        memory_used_mib=load * 790,
        power_w=90 + load * 6,
        temperature_c=32 + load // 3,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def node(name: str, gpus: Sequence[GpuView], state: NodeState = NodeState.UP, **changes: object) -> NodeView:
    """A host with eight GPUs."""
    holders = tuple(dict.fromkeys(itertools.chain.from_iterable(gpu.jobs for gpu in gpus)))
    base = NodeView(
        name=name,
        state=state,
        cpu_milli=128_000,
        cpu_free_milli=128_000 - 14_000 * len(holders),
        memory_mib=1_048_576,
        memory_free_mib=1_048_576 - 131_072 * len(holders),
        numa_nodes=2,
        labels={"rack": "r1", "net": "ib"},
        gpus=tuple(gpus),
        jobs=holders,
        since=NOW - 86_400 * 3,
        version="0.1.0",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def nodes() -> tuple[NodeView, ...]:
    """Four hosts: one full, one mixed, one with a broken GPU, one drained."""
    return (
        node("node-1", [gpu(at, 1, load=97 - at) for at in range(8)]),
        node(
            "node-2",
            [
                *(gpu(at, 2, load=88 + at) for at in range(2)),
                gpu(2, 3, 4, load=54),
                gpu(3, 5, free=500, load=31),
                *(gpu(at, 6, load=71 + at * 3) for at in range(4, 8)),
            ],
        ),
        node(
            "node-3",
            [
                gpu(0, 7, load=99),
                gpu(1, 8, load=12),
                gpu(2, health=GpuHealth.CORDONED, why="Xid 79: fallen off the bus"),
                gpu(3),
                *(gpu(at, 9, load=63) for at in range(4, 6)),
                gpu(6),
                gpu(7),
            ],
        ),
        node(
            "node-4", [gpu(at) for at in range(8)], NodeState.DRAINED, why="firmware update", since=NOW - 4000
        ),
    )


def jobs() -> tuple[JobView, ...]:
    """Forty jobs in every state."""
    held = {
        1: ("node-1", range(8), 1000), 2: ("node-2", range(2), 1000), 3: ("node-2", (2,), 500),
        4: ("node-2", (2,), 500), 5: ("node-2", (3,), 500), 6: ("node-2", range(4, 8), 1000),
        7: ("node-3", (0,), 1000), 8: ("node-3", (1,), 1000), 9: ("node-3", (4, 5), 1000),
    }  # fmt: skip
    running = [
        job(
            number,
            JobState.RUNNING,
            gpus=sum([milli / 1000 for _ in places]),
            held=(Held(name, 8000, 65536, tuple(GpuShare(at, f"GPU-{at:08x}", milli) for at in places)),),
        )
        for number, (name, places, milli) in held.items()
    ]
    queued = [job(number) for number in range(10, 24)]
    queued[0] = replace(
        queued[0],
        gpus=16.0,
        nodes=2,
        name="llama-405b",
        detail="needs 16 GPUs on 2 nodes; no two nodes have 8 GPUs free",
    )
    queued[3] = replace(queued[3], reason=Reason.HELD, detail="held by chiara")
    array = [
        job(24 + at, label=f"24_{at}", name="sweep", array=24, index=at, reason=Reason.PRIORITY)
        for at in range(6)
    ]
    starting = (Held("node-3", 4000, 16384, (GpuShare(3, "GPU-00000003", 1000),)),)
    ended = [job(number, JobState.COMPLETED, exit_code=0) for number in range(30, 36)]
    ended += [
        job(36, JobState.FAILED, reason=Reason.EXIT_NONZERO, exit_code=1, detail="exit code 1 after 2m10s"),
        job(37, JobState.FAILED, reason=Reason.TIME_LIMIT, signal=15, detail="ran into its limit of 2h00m"),
        job(38, JobState.CANCELLED, reason=Reason.USER, detail="cancelled by bob"),
        job(39, JobState.SCHEDULED, reason=Reason.STARTING, held=starting),
        job(40, JobState.PREEMPTED, reason=Reason.PRIORITY, attempt=2, detail="made room for job 1"),
    ]  # fmt: skip
    return (*running, *queued, *array, *ended)


def events() -> tuple[EventView, ...]:
    """Recent events."""
    said = (
        ("JobQueued", "bob queued job 22 (rlhf-ppo)", 22, None),
        ("JobPlaced", "job 9 placed on node-3, GPUs 4-5", 9, "node-3"),
        ("AttemptStarted", "job 9 started, attempt 1", 9, "node-3"),
        ("GpuCordoned", "GPU 2 of node-3 cordoned: Xid 79: fallen off the bus", None, "node-3"),
        ("JobFailed", "job 36 failed: exit code 1 after 2m10s", 36, None),
        ("NodeDrained", "node-4 drained by alice: firmware update", None, "node-4"),
    )
    return tuple(
        EventView(980 + at, NOW - 600 + 90 * at, kind, text, number, name)
        for at, (kind, text, number, name) in enumerate(said)
    )


def life(number: int) -> tuple[EventView, ...]:
    """The events of a job: job 10 has run twice and waits again."""
    if number != 10:
        return ()
    told: list[EventView] = []

    def add(at: float, kind: str, text: str, **data: object) -> None:
        told.append(EventView(100 + len(told), NOW - at, kind, text, 10, None, data))

    nodes = [{"node": "node-1"}, {"node": "node-2"}]
    add(17_400, "JobQueued", "alice queued job 10 (llama-405b)")
    add(15_000, "JobPlaced", "job 10 placed on node-1 and node-2", attempt=1, allocations=nodes)
    add(14_990, "AttemptStarted", "job 10 runs on node-1 (attempt 1)", attempt=1, node="node-1")
    add(11_000, "JobPreempted", "job 10 was preempted by job 6", attempt=1, by="6", gpu_hours=17.7)
    add(10_990, "AttemptExited", "job 10 ended on node-1: signal 15", attempt=1, node="node-1")
    add(10_990, "JobRequeued", "job 10 is queued again", attempt=1, reason="preempted", detail="")
    add(9_000, "JobPlaced", "job 10 placed on node-2 and node-3", attempt=2, allocations=nodes[1:])
    add(8_990, "AttemptStarted", "job 10 runs on node-2 (attempt 2)", attempt=2, node="node-2")
    add(7_000, "AttemptExited", "job 10 ended on node-2: the node is lost", attempt=2, node="node-2")
    add(7_000, "JobRequeued", "job 10 is queued again", attempt=2, reason="node_lost", detail="node-2")
    return tuple(told)


def cluster(name: str = "demo") -> ClusterView:
    """The cluster in one glance."""
    return ClusterView(name, "0.1.0", NOW, 985, {}, {}, 32, 20.0, 512_000, 100_000, NOW - 90_000)


def everything(connection: ConnectionStatus = LIVE) -> Changes:
    """The whole recording as one change."""
    return Changes(connection, True, cluster(), jobs(), nodes(), events())


def shares() -> tuple[ShareView, ...]:
    """An organisation of two projects, and a separate project whose user is above its share."""
    return (
        ShareView(("lab",), "lab", 2.0, 2 / 3, 24.01, 24.0, 0.9704),
        ShareView(("lab", "speech"), "speech", 1.0, 0.25, 4.0, 4.0, 0.9575),
        ShareView(("lab", "speech", "chiara"), "speech/chiara", 1.0, 1.0, 4.0, 4.0, 0.9543),
        ShareView(("lab", "vision"), "vision", 3.0, 0.75, 20.01, 20.0, 0.9491),
        ShareView(("lab", "vision", "alice"), "vision/alice", 1.0, 0.5, 620.5, 9.0, 0.2349, True, soft=500.0),
        ShareView(("lab", "vision", "bob"), "vision/bob", 1.0, 0.5, 11.0, 11.0, 0.9318),
        ShareView(
            ("nlp",), "nlp", 1.0, 1 / 3, 9001.0, 0.0, 0.0021, hard=9000.0, stopped="nlp", until=NOW + 7800
        ),
        ShareView(
            ("nlp", "emeka"), "nlp/emeka", 1.0, 1.0, 9001.0, 0.0, 0.0007, stopped="nlp", until=NOW + 7800
        ),
    )


def quotas() -> tuple[QuotaView, ...]:
    """A user at its quota, a project that borrows, and the limits of all other users."""
    return (
        QuotaView("user", "*", Quota(Limits(gpus=4, running=20)), Limits(), False),
        QuotaView(
            "user",
            "alice",
            Quota(Limits(gpus=8, memory_mib=524_288, running=20), Limits(gpus=4)),
            Limits(32_000, 262_144, 8, 5, 2, 310.5),
            True,
        ),
        QuotaView("user", "bob", Quota(), Limits(8_000, 65_536, 2, 1, 0, 12.25), False),
        QuotaView(
            "project",
            "vision",
            Quota(Limits(gpus=8, gpu_hours=2000), borrow=Limits(gpus=8)),
            Limits(40_000, 327_680, 10, 6, 2, 322.75),
            True,
        ),
        QuotaView(
            "queue",
            "default",
            Quota(Limits(queued=1000)),
            Limits(40_000, 327_680, 10, 6, 2, 322.75),
            False,
            ("all users", "its jobs are never preempted or moved"),
        ),
    )


def reservations() -> tuple[ReservationView, ...]:
    """One that is on, one for maintenance, and a course every week."""
    course = ReservationSpec(
        "course",
        NOW + 7_200,
        14_400.0,
        count=2,
        projects=("ai", "vision"),
        every_s=604_800.0,
        why="lecture 4",
    )
    fans = ReservationSpec("fans", NOW + 36_000, 7_200.0, ("node-4",), why="new fans")
    demo = ReservationSpec("demo", NOW - 1_800, 5_400.0, ("node-1",), users=("alice", "bob"))
    return (
        ReservationView(demo, ("node-1",), NOW - 1_800, NOW + 3_600, True, "root", (1,)),
        ReservationView(course, ("node-2", "node-3"), NOW + 7_200, NOW + 21_600, False, "carla", (2, 3)),
        ReservationView(fans, ("node-4",), NOW + 36_000, NOW + 43_200, False, "root"),
    )


def rebalance() -> RebalanceView:
    """One job could move so that a big one starts, others to empty a node; one has moved, one has not."""

    def held(name: str, *gpus: int) -> Held:
        return Held(name, 8000, 65536, tuple(GpuShare(at, f"GPU-{at:08x}", 1000) for at in gpus))

    place = (held("node-3", *range(8)),)
    move = MoveView(7, "7", "dpo", "alice", (held("node-3", 0),), (held("node-2", 3),), 0.25)
    others = (
        replace(move, job=8, label="8", origin=(held("node-3", 1),), target=(held("node-4", 0),)),
        replace(move, job=9, label="9", origin=(held("node-3", 4, 5),), target=(held("node-4", 1, 2),)),
    )
    before, after = SpreadView(12, 8, 0.33), SpreadView(12, 16, 0.0)
    proposals = (
        ProposalView(
            "3f9a2c41",
            "defragment",
            (move,),
            0.25,
            16.0,
            before,
            after,
            10,
            "10",
            "llama-405b",
            place,
            earlier_s=7200.0,
        ),
        ProposalView("77ab01cd", "drain", others, 0.5, 3.2, before, after, node="node-3", rest=1),
    )
    done = Moved(
        2,
        "2",
        "vit-h",
        "bob",
        "aa",
        "drain",
        NOW - 900,
        1,
        ("node-4",),
        ("node-2",),
        0.1,
        None,
        "node-4",
        NOW - 840,
    )
    undone = replace(
        done, job=6, label="6", at=NOW - 7200, done_at=None, undone="node-2 was drained meanwhile"
    )
    return RebalanceView("propose", proposals, (done, undone), 985)


@dataclass(frozen=True)
class Tenants:
    """The answers to requests beside the stream."""

    shares: tuple[ShareView, ...] = shares()
    quotas: tuple[QuotaView, ...] = quotas()
    reservations: tuple[ReservationView, ...] = reservations()
    rebalance: RebalanceView = field(default_factory=rebalance)
    places: tuple[QueuePlace, ...] = ()


class RecordedFeed:
    """A feed that delivers what the test puts into it."""

    def __init__(self, *first: Changes) -> None:
        self._basket = PendingChanges()
        self._first = first
        self.stopped = False

    def start(self, wake: Callable[[], None]) -> None:
        self._basket.on_wake(wake)
        for changes in self._first:
            self._basket.put(changes)

    def put(self, changes: Changes) -> None:
        self._basket.put(changes)

    def take(self) -> Changes:
        return self._basket.take()

    def stop(self) -> None:
        self.stopped = True

    @property
    def empty(self) -> bool:
        """Whether all that was put in has been taken."""
        return self._basket.quiet


class RecordedClient(Client):
    """Answers from the recording, and records orders."""

    def __init__(
        self,
        orders: list[tuple[str, object]],
        output: bytes = b"",
        refuse: frozenset[int] = frozenset(),
        tenants: Tenants | None = None,
    ) -> None:
        self._orders, self._output, self._refuse = orders, output, refuse
        self._tenants = tenants or Tenants()

    @contextmanager
    def expecting(self, what_if: str) -> Iterator[None]:
        """The recording changes nothing, so each effect is still the shown one."""
        yield

    def jobs(self, **_selection: object) -> JobList:  # type: ignore[override]
        return JobList(jobs(), 0, len(jobs()), places=self._tenants.places)

    def job(self, job: str | int) -> JobDetail:
        view = next((one for one in jobs() if one.id == job), None)
        if view is None:
            raise Refused(
                404, Problem("unknown_job", f"there is no job {job}", "job", "corral queue shows all")
            )
        spec = JobSpec(
            ("python", "train.py", "--config", "configs/8b.yaml"),
            gpu_models=("H100",),
            workdir="/home/alice/sft",
        )
        losses = (
            FilterLoss("state", 1, "drained", ("node-4",)),
            FilterLoss("gpus", 3, "fewer than 8 GPUs free", ("node-1", "node-2", "node-3")),
        )
        points = (
            Points("priority", 0.5, 1_000.0, 500.0),
            Points("fair_share", 0.959, 1_000.0, 959.0, "project vision"),
            Points("age", 0.02, 100.0, 2.0),
            Points("size", 0.25, 50.0, 12.5),
        )
        ahead = (Ahead(12, "12", "bob", "1 GPU, 2h00m, priority high"), Ahead(17, "17", "bob", "0.5 CPUs"))
        parts = (Points("spread", 0.5, 100.0, 50.0), Points("topology", 0.9, 20.0, 18.0))
        why = Why(
            view.reason,
            "no two nodes have 8 free GPUs each",
            losses,
            4,
            0,
            points,
            ahead,
            nodes=(NodeScore("node-1", parts, False),),
        )
        return JobDetail(view, spec, why)

    def plan(self, horizon_s: float, within_s: float | None = None) -> Plan:
        waiting = [view for view in jobs() if view.state is JobState.QUEUED][:5]
        entries = tuple(
            PlanEntry(
                view.id,
                view.label,
                view.name,
                view.user,
                view.project,
                view.queue,
                view.gpus,
                ("node-1", "node-2")[: view.nodes],
                NOW + 600 * place,
                NOW + 600 * place + 7_200,
                "likely" if place % 2 else "limit",
            )
            for place, view in enumerate(waiting, 1)
        )
        running = tuple(
            PlanEntry(
                view.id,
                view.label,
                view.name,
                view.user,
                view.project,
                view.queue,
                view.gpus,
                tuple(held.node for held in view.held),
                NOW - 1_800,
                NOW + 3_600 * view.id,
                "certain",
                None,
                NOW + 2_700 * view.id,
            )
            for view in jobs()
            if view.state is JobState.RUNNING
        )
        entries = (*running, *entries)
        return Plan(NOW, horizon_s, entries, (), (PlanPoint(NOW, 9.5),), 32, 20, 15)

    def gpu_loads(
        self, *, nodes: Iterable[str] = (), jobs: Iterable[int] = (), points: int = 8
    ) -> GpuLoadView:
        """The loads of each GPU fall and rise to its present load; the first values are unknown."""

        def loads(last: int) -> tuple[int | None, ...]:
            dips = (at * (points - 1 - at) * 49 // (points - 1) ** 2 for at in range(1, points))
            return (None, *(last * (100 - dip) // 100 for dip in dips))

        there = {view.name: view for view in everything().nodes}
        return GpuLoadView(
            {
                name: {gpu.uuid: loads(gpu.utilisation) for gpu in there[name].gpus}
                for name in nodes
                if name in there
            },
            {str(job): loads(90 if job % 4 else 0) for job in jobs},
            600 / points,
            NOW,
        )

    def fairness(self, by: str, since: int) -> FairnessReport:
        """Two projects or users; the longer the time, the more GPU-hours."""
        hours = (NOW - since) / 3_600
        names = ("nlp", "vision") if by == "project" else ("emeka", "alice")
        first = FairnessRow(
            names[0], 12 * hours, 8 * hours, 12.5, 12 * hours, 0, 14, 60.0, 3_600.0, 7_200.0, "", 0, ""
        )
        second = FairnessRow(
            names[1],
            6 * hours,
            10 * hours,
            -12.5,
            12 * hours,
            0,
            4,
            60.0,
            3_600.0,
            18_000.0,
            "10",
            17_400.0,
            "",
        )
        return FairnessReport(by, float(since), NOW, 32 * hours, (first, second))

    def explain(self, job: str | int, *, within_s: float | None = None) -> Explanation:
        detail = self.job(job)
        if detail.job.state is not JobState.QUEUED:
            pack, spread = Points("pack", 0.75, 100.0, 75.0), Points("pack", 0.25, 100.0, 25.0)
            rated = (NodeScore("node-2", (pack,), chosen=True), NodeScore("node-3", (spread,)))
            return Explanation(detail.job, replace(detail.why, nodes=rated))
        easings = (Easing("with 8 GPUs instead of 16", {"gpus": 8.0}),)
        return Explanation(detail.job, detail.why, NOW + 5_400, ("node-1", "node-2"), easings=easings)

    def logs(
        self, job: str | int, *, stream: str = "stdout", follow: bool = False, offset: int = 0
    ) -> Iterator[bytes]:
        output = self._output if stream == "stdout" else b"warning: nothing serious\n"
        yield output[offset:] if offset >= 0 or -offset < len(output) else output

    def search_log(
        self, job: str | int, text: str, *, stream: str = "stdout", offset: int = 0, back: bool = False
    ) -> LogMatch:
        """As the agent does, but in one step."""
        log, wanted = self._output, text.encode()
        end = len(log) if offset < 0 else offset
        found = log.rfind(wanted, 0, end + len(wanted) - 1) if back else log.find(wanted, end)
        return LogMatch(None if found < 0 else found, 0 if back else len(log), len(log))

    def queues(self) -> QueueList:
        """Two queues, of which one has no jobs."""
        return QueueList(tuple(QueueView(name, 0, (), 0, 0, 0.0, {}) for name in ("default", "night")), 985)

    def projects(self) -> ProjectList:
        """No declared projects."""
        return ProjectList((), "open", 985)

    def events(self, *, after: int = 0, limit: int = 1000, job: int | None = None) -> EventList:
        """Job 10 was preempted twice; other jobs have no events."""
        return EventList(tuple(one for one in life(job or 0) if one.seq > after), 985)

    def submit(self, spec: JobSpec, *, key: str = "", as_user: str = "") -> Submitted:
        self._orders.append(("submit", spec))
        return Submitted((41,), "41")

    def order(self, order: JobsOrder) -> JobsAnswer:
        there = {one.label: one for one in jobs()}
        meant = [there[label] for label in order.jobs]
        refused = [one for one in meant if one.id in self._refuse]
        done = [one for one in meant if one.id not in self._refuse]
        self._orders += [(order.action, one.id) for one in done]
        self._orders += [("changes", dict(order.changes))] if order.changes else []
        problems = (Problem("ended", f"job {one.id} has already ended") for one in refused)
        return JobsAnswer(tuple(done), tuple(map(JobRefused, (one.label for one in refused), problems)))

    def drain(self, name: str, why: str = "", empty_by: float | None = None) -> NodeView:
        self._orders.append(("drain", (name, why) if empty_by is None else (name, why, empty_by)))
        return nodes()[0]

    def cordon_gpu(self, name: str, gpu: str, why: str = "") -> NodeView:
        self._orders.append(("cordon", (name, gpu, why)))
        return nodes()[0]

    def resume_gpu(self, name: str, gpu: str) -> NodeView:
        self._orders.append(("resume", (name, gpu)))
        return nodes()[0]

    def resume(self, name: str) -> NodeView:
        self._orders.append(("resume", name))
        return nodes()[0]

    def shares(self) -> ShareList:
        return ShareList(self._tenants.shares, NOW)

    def set_share(self, change: ShareWeight) -> ShareList:
        if change.weight is not None and change.weight > 1000:
            raise Refused(400, Problem("invalid", "must be above 0 and at most 1,000", "weight"))
        self._orders.append(("share", change))
        return self.shares()

    def quotas(self) -> QuotaList:
        return QuotaList(self._tenants.quotas, 86_400.0 * 30, 985)

    def set_quota(self, scope: str, name: str, quota: Quota) -> QuotaView:
        if name == "nobody":
            raise Refused(400, Problem("invalid", "must be printable", "name", "Take another."))
        self._orders.append(("quota", (scope, name, quota)))
        return QuotaView(scope, name, quota, Limits(), True)

    def unset_quota(self, scope: str, name: str) -> QuotaView:
        self._orders.append(("unset quota", (scope, name)))
        return QuotaView(scope, name, Quota(), Limits(), False)

    def reservations(self) -> ReservationList:
        return ReservationList(self._tenants.reservations, 985)

    def reserve(self, spec: ReservationSpec, *, anyway: bool = False) -> ReservationView:
        if spec.nodes and not anyway:
            hint = "Take a later time or other nodes, or reserve anyway: the job then runs on."
            raise Refused(409, Problem("conflict", "job 1 on node node-1 has no time limit", "nodes", hint))
        self._orders.append(("reserve", (spec, anyway)))
        return ReservationView(
            spec, ("node-1",), spec.starts_at, spec.starts_at + spec.duration_s, False, "me"
        )

    def cancel_reservation(self, name: str) -> ReservationView:
        self._orders.append(("cancel reservation", name))
        return self._tenants.reservations[0]

    def rebalance(self) -> RebalanceView:
        return self._tenants.rebalance

    def run_rebalance(self, proposal: str = "") -> Rebalanced:
        if proposal == "77ab01cd":
            raise Refused(409, Problem("conflict", "what it said does not hold any more", "proposal"))
        self._orders.append(("move", proposal))
        return Rebalanced(self._tenants.rebalance.moves[:1])

    def what_if(
        self, asked: WhatIf, *, within_s: float | None = None, only_first: bool = False
    ) -> WhatIfAnswer:
        """One job starts later, and another sooner; a new one in half an hour."""
        shifts = (
            Shift(10, "10", "llama-405b", "alice", NOW + 5_400, NOW + 9_000, ("node-1", "node-2")),
            Shift(12, "12", "dpo", "bob", NOW + 7_200, NOW, ("node-3",)),
        )
        new = tuple(Shift(41, "41", "", "alice", None, NOW + 1_800, ("node-3",), True) for _ in asked.submit)
        return WhatIfAnswer(NOW, (*new, *shifts), 11)

    def close(self) -> None:
        """Nothing is open."""
