"""A job as the engine knows it: what was asked, where it is, and its current attempt."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.core.events import Allocation, JobPreempted, Victim
from controller.core.foresight import StartEstimate
from controller.core.gates import FRESH, Wait
from controller.core.requests import Ask
from wire.frames import Checkpoint, GpuUse
from wire.spec import JobSpec
from wire.words import HIGHEST_PRIORITY, WHOLE_GPU, JobState, Reason

NEVER = float("inf")


@dataclass(slots=True)
class Member:
    """The part of an attempt that runs on one node."""

    allocation: Allocation
    started_at: float | None = None
    pid: int | None = None
    ended_at: float | None = None
    code: int | None = None
    signal: int | None = None
    why: str = ""
    cpu_s: float = 0.0
    max_rss_mib: int = 0
    fault: str = ""
    """What happened to a GPU that it holds; `own` if that was its own doing."""
    own: bool = False
    ready: bool = False
    """At the barrier of its gang, or beyond it."""
    use: GpuUse | None = None
    leaving: bool = False
    """It was told to end, while the others go on: however it ends, that is no failure."""

    def gpu_s(self, since: float, until: float) -> float:
        """GPU-seconds that it held between two moments; a share counts as one."""
        begin = max(since, self.started_at if self.started_at is not None else until)
        end = min(until, until if self.ended_at is None else self.ended_at)
        return max(0.0, end - begin) * sum(hold.milli for hold in self.allocation.gpus) / WHOLE_GPU

    @property
    def failed(self) -> bool:
        """Ended, and not with exit code 0."""
        return self.ended_at is not None and not self.leaving and not (self.code == 0 and not self.why)


@dataclass(frozen=True, slots=True)
class Move:
    """One time that the job was told to go on elsewhere: from which attempt, from where and to where."""

    proposal: str
    kind: str
    at: float
    attempt: int
    origin: tuple[Allocation, ...]
    quality: int
    to: tuple[str, ...]
    gpu_hours: float
    for_job: int | None = None
    node: str = ""
    done_at: float | None = None
    """When it ran there."""
    undone: str = ""
    """Why it never did."""

    @property
    def under_way(self) -> bool:
        """Is it not known yet what comes of it?"""
        return self.done_at is None and not self.undone


@dataclass(slots=True)
class Job:
    """Mutable, and mutated by apply() alone. `attempt` only ever grows: it is the fencing token."""

    id: int
    spec: JobSpec
    user: str
    ask: Ask
    submitted_at: float
    key: str = ""
    array: int | None = None
    index: int | None = None
    state: JobState = JobState.QUEUED
    reason: Reason = Reason.NEW
    detail: str = ""
    held: bool = False
    from_queue: tuple[str, ...] = ()
    """Labels in its selector that its queue has put there: they go when it goes to another."""
    wait: Wait = FRESH
    profile: str = ""
    """Who decides, or has decided, when and where it runs; empty on a cluster without profiles."""
    attempt: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    unstarted: int = 0
    """Members whose process has not been seen yet, and may still come."""
    unended: int = 0
    """Members that hold something now."""
    quality: int | None = None
    placed_at: float | None = None
    foreseen: tuple[StartEstimate, ...] = ()
    """When the attempt was to start, as was said while the job waited."""
    predicted_s: float | None = None
    """How long the attempt was likely to run when it was placed."""
    planned_s: float | None = None
    """How long plans count on it; None: as long as it may run."""
    charge: float = 0.0
    """What the attempt costs its tenant, in units per hour."""
    started_at: float | None = None
    ended_at: float | None = None
    stopping: Reason | None = None
    stopped_by: str = ""
    code: int | None = None
    signal: int | None = None
    spent_gpu_s: float = 0.0
    spent_wh: float = 0.0
    """GPU-seconds and energy of earlier attempts."""
    checkpoint: Checkpoint | None = None
    """The newest that any attempt saved; the next one is told of it."""
    claim: tuple[Allocation, ...] = ()
    """What is kept for the job until those who still hold it are gone."""
    claim_quality: int = 0
    claim_from: tuple[Victim, ...] = ()
    """Who was to leave for that."""
    stop_by: float | None = None
    """When the room of a waiting job with a claim is free, or a preempted one gone, at the latest."""
    idle_since: float | None = None
    """Since when the GPUs of its attempt have done nothing, and when it is ended for that."""
    idle_until: float | None = None
    yields_to: tuple[int, ...] = ()
    """The jobs for whose sake this one is being ended; a gang may make room for several."""
    preemptions: tuple[JobPreempted, ...] = ()
    """Every attempt that was ended so that others could run."""
    moves: tuple[Move, ...] = ()
    """Every attempt that was ended so that the job went on elsewhere."""

    @property
    def label(self) -> str:
        """How people name it: 17, or 12_3 for an element of array 12."""
        return str(self.id) if self.array is None else f"{self.array}_{self.index}"

    @property
    def name(self) -> str:
        """The name given, else the program's."""
        return self.spec.name or self.spec.command[0].rsplit("/", 1)[-1]

    @property
    def ready(self) -> bool:
        """Only its turn and a place keep it from starting: it takes part in cycles."""
        return self.state is JobState.QUEUED and not self.held and not self.wait.gates and not self.claim

    @property
    def move(self) -> Move | None:
        """The move that is under way: from the order until the job runs where it was moved to."""
        return self.moves[-1] if self.moves and self.moves[-1].under_way else None

    @property
    def ready_at(self) -> float:
        """Since when only its turn and a place have kept it from starting."""
        return self.submitted_at if self.wait.ready_at is None else self.wait.ready_at

    @property
    def ages_from(self) -> float:
        """Since when waiting counts: a job that may not begin yet does not grow old."""
        return max(self.submitted_at, self.spec.begin_at or 0.0)

    @property
    def priority(self) -> int:
        """0 to 100, higher is sooner: its own, or that of a more important job that waits for it."""
        return max(self.own_priority, self.wait.inherited)

    @property
    def own_priority(self) -> int:
        """What was asked for, and what waiting has added."""
        return min(HIGHEST_PRIORITY, self.spec.priority + self.wait.promoted)

    @property
    def latest_start(self) -> float:
        """The last moment at which it can start and still keep its deadline, if it runs as long as it may."""
        deadline = self.spec.deadline_at
        return NEVER if deadline is None else deadline - (self.spec.time_limit_s or 0.0)

    @property
    def limit(self) -> float:
        """How long the job may run, in seconds."""
        return NEVER if self.spec.time_limit_s is None else self.spec.time_limit_s

    @property
    def span(self) -> float:
        """How long it may hold what it gets: its limit, and the grace in which it is ended."""
        return self.limit + self.spec.grace_s

    @property
    def expected_end(self) -> float:
        """When plans count on the end of a job that holds something, or for which something is kept."""
        if self.placed_at is None:
            return NEVER if self.stop_by is None else self.stop_by + self.limit
        end = self.placed_at + (self.limit if self.planned_s is None else self.planned_s)
        return end if self.stop_by is None else min(end, self.stop_by)

    @property
    def unsaved_since(self) -> float:
        """From when on the work of this attempt would be lost if it ended now."""
        since = self.started_at if self.started_at is not None else self.placed_at
        if since is None:
            return NEVER
        return since if self.checkpoint is None else max(since, self.checkpoint.at)

    @property
    def staying(self) -> list[Member]:
        """Members that hold something and were not told to leave."""
        return [member for member in self.members.values() if member.ended_at is None and not member.leaving]

    @property
    def finishing(self) -> bool:
        """Has a member ended well, and not because it was told to? Then the others are about to."""
        ended = [member for member in self.members.values() if member.ended_at is not None]
        return any(not member.failed and not member.leaving for member in ended)

    def spare(self, node: str) -> bool:
        """May what it runs on this node be ended, and the rest go on?"""
        gang = self.spec.gang
        return (
            gang.elastic
            and self.state is JobState.RUNNING
            and node != next(iter(self.members))
            and len(self.staying) > (gang.min_nodes or 0)
        )

    @property
    def gpu_milli(self) -> int:
        """What its attempt was given of GPUs, over all nodes."""
        return sum(self._milli(member) for member in self.members.values() if not member.leaving)

    @staticmethod
    def _milli(member: Member) -> int:
        return sum(gpu.milli for gpu in member.allocation.gpus)

    def unsaved(self, now: float, nodes: tuple[str, ...] = ()) -> float:
        """GPU-hours that would be lost if the attempt ended now, or what it runs on these nodes."""
        milli = self.gpu_milli if not nodes else sum(self._milli(self.members[node]) for node in nodes)
        return milli / WHOLE_GPU * max(0.0, now - self.unsaved_since) / 3_600

    def board(self, allocations: tuple[Allocation, ...]) -> None:
        """Give the job what a new attempt gets: nobody of it has started."""
        self.members = {allocation.node: Member(allocation) for allocation in allocations}
        self.unstarted = self.unended = len(self.members)

    def seat(self, members: dict[str, Member]) -> None:
        """Give the job the members of its attempt."""
        self.members = members
        self.unstarted = sum(
            member.started_at is None and member.ended_at is None for member in members.values()
        )
        self.unended = sum(member.ended_at is None for member in members.values())

    @property
    def running(self) -> list[Member]:
        """Members that hold something now."""
        return [member for member in self.members.values() if member.ended_at is None]


def newest(one: Checkpoint | None, other: Checkpoint | None) -> Checkpoint | None:
    """The later of two checkpoints; what is known stands if both are as late."""
    if one is None or other is None:
        return one or other
    return other if other.at > one.at else one
