"""The state of a job: its spec, its placement and its current attempt."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.core.model.events import Allocation, JobPreempted, Victim
from controller.core.model.request import ResourceRequest
from controller.core.model.start_estimates import StartEstimate
from controller.core.model.wait_state import NEVER_WAITED, Wait
from wire.agent.frames import Checkpoint, GpuUse
from wire.job.spec import JobSpec
from wire.names import HIGHEST_PRIORITY, WHOLE_GPU, JobState, Reason

NEVER = float("inf")


@dataclass(slots=True)
class Member:
    """One member of an attempt: its processes on one node."""

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
    """The fault of a GPU that it holds; `own` if the member caused the fault."""
    own: bool = False
    ready: bool = False
    """It has reached the barrier of its gang."""
    use: GpuUse | None = None
    leaving: bool = False
    """It was ordered to stop while the others go on. Its end is no failure, whatever its exit code."""

    def gpu_s(self, since: float, until: float) -> float:
        """GPU-seconds held between two moments; half a GPU for one second is 0.5."""
        begin = max(since, self.started_at if self.started_at is not None else until)
        end = min(until, until if self.ended_at is None else self.ended_at)
        return max(0.0, end - begin) * sum(hold.milli for hold in self.allocation.gpus) / WHOLE_GPU

    @property
    def failed(self) -> bool:
        """Has it ended otherwise than with exit code 0, without an order to leave?"""
        return self.ended_at is not None and not self.leaving and not (self.code == 0 and not self.why)


@dataclass(frozen=True, slots=True)
class Move:
    """One move of a running job to other nodes by the rebalancer."""

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
    """When the job ran on the new nodes."""
    undone: str = ""
    """Why it never ran there."""

    @property
    def under_way(self) -> bool:
        """Has the move neither succeeded nor failed yet?"""
        return self.done_at is None and not self.undone


@dataclass(slots=True)
class Job:
    """Changed by apply() only. `attempt` never decreases: agents refuse orders of older attempts."""

    id: int
    spec: JobSpec
    user: str
    ask: ResourceRequest
    submitted_at: float
    key: str = ""
    array: int | None = None
    index: int | None = None
    state: JobState = JobState.QUEUED
    reason: Reason = Reason.NEW
    detail: str = ""
    held: bool = False
    from_queue: tuple[str, ...] = ()
    """Labels that its queue added to its selector. They are removed when it changes the queue."""
    wait: Wait = NEVER_WAITED
    profile: str = ""
    """The profile that places it, or has placed it; empty on a cluster without profiles."""
    attempt: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    unstarted: int = 0
    """Members that have neither started nor ended."""
    unended: int = 0
    """Members that have not ended, so they hold their allocation."""
    quality: int | None = None
    placed_at: float | None = None
    foreseen: tuple[StartEstimate, ...] = ()
    """Estimates of its start that were shown to users while it waited."""
    predicted_s: float | None = None
    """The predicted run time in seconds at the placement."""
    planned_s: float | None = None
    """Seconds after the start at which plans expect its end; None: limit and grace."""
    charge: float = 0.0
    """The charge of the attempt in billing units per hour."""
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
    """The newest checkpoint of any attempt; the next attempt gets its path."""
    claim: tuple[Allocation, ...] = ()
    """The nomination: allocations that the job gets when the victims on them have ended."""
    claim_quality: int = 0
    claim_from: tuple[Victim, ...] = ()
    """The victims of the nomination."""
    stop_by: float | None = None
    """The latest end of the victims of a nominated job, or of a job that is being preempted."""
    idle_since: float | None = None
    """Since when its GPUs are idle, and when it is ended because of that."""
    idle_until: float | None = None
    yields_to: tuple[int, ...] = ()
    """The jobs for which this one is being preempted; a gang may free nodes for several."""
    preemptions: tuple[JobPreempted, ...] = ()
    """All preemptions of the job."""
    moves: tuple[Move, ...] = ()
    """All moves of the job by the rebalancer."""

    @property
    def label(self) -> str:
        """The name in commands and output: 17, or 12_3 for element 3 of array 12."""
        return str(self.id) if self.array is None else f"{self.array}_{self.index}"

    @property
    def name(self) -> str:
        """The name in the spec, else the file name of the program."""
        return self.spec.name or self.spec.command[0].rsplit("/", 1)[-1]

    @property
    def ready(self) -> bool:
        """Is it in the queue: no hold, no closed gate and no nomination?"""
        return self.state is JobState.QUEUED and not self.held and not self.wait.gates and not self.claim

    @property
    def move(self) -> Move | None:
        """The move under way: from the order until the job runs on the new nodes; else None."""
        return self.moves[-1] if self.moves and self.moves[-1].under_way else None

    @property
    def ready_at(self) -> float:
        """Since when no gate has kept it out of the queue."""
        return self.submitted_at if self.wait.ready_at is None else self.wait.ready_at

    @property
    def ages_from(self) -> float:
        """The start of its age for orders: the submit, or the begin time if that is later."""
        return max(self.submitted_at, self.spec.begin_at or 0.0)

    @property
    def priority(self) -> int:
        """0 to 100, higher is sooner: its own, or the highest of the jobs that depend on it."""
        return max(self.own_priority, self.wait.inherited)

    @property
    def own_priority(self) -> int:
        """The priority of the spec, plus what waiting has added."""
        return min(HIGHEST_PRIORITY, self.spec.priority + self.wait.promoted)

    @property
    def latest_start(self) -> float:
        """The latest start with which it ends by its deadline even if it runs for its whole time limit."""
        deadline = self.spec.deadline_at
        return NEVER if deadline is None else deadline - (self.spec.time_limit_s or 0.0)

    @property
    def limit(self) -> float:
        """The time limit in seconds; infinite without one."""
        return NEVER if self.spec.time_limit_s is None else self.spec.time_limit_s

    @property
    def span(self) -> float:
        """The most seconds for which an attempt holds its allocations: time limit plus grace."""
        return self.limit + self.spec.grace_s

    @property
    def expected_end(self) -> float:
        """The latest end of a job that is placed or nominated. Every plan uses this value.

        1. The time limit runs from the start of the processes, so a slow prolog or image pull counts.
           Until all members have started, it runs from the placement.
        2. After the limit the job may use its whole grace. No checkpoint is taken at a time limit.
        3. A preempted job is gone by `stop_by`, which includes its checkpoint time and its grace.
        4. With `[backfill] estimate = "predicted"` the predicted run time replaces limit and grace.

        Example: placed at 10:00, started at 10:02, limit 1h, grace 30s: 11:02:30.
        """
        if self.placed_at is None:
            return NEVER if self.stop_by is None else self.stop_by + self.span
        began = self.placed_at if self.started_at is None else self.started_at
        end = began + (self.span if self.planned_s is None else self.planned_s)
        return end if self.stop_by is None else min(end, self.stop_by)

    @property
    def unsaved_since(self) -> float:
        """The time of the last checkpoint, or of the start: later work is lost if the attempt ends now."""
        since = self.started_at if self.started_at is not None else self.placed_at
        if since is None:
            return NEVER
        return since if self.checkpoint is None else max(since, self.checkpoint.at)

    @property
    def staying(self) -> list[Member]:
        """Members that have not ended and have no order to leave."""
        return [member for member in self.members.values() if member.ended_at is None and not member.leaving]

    @property
    def finishing(self) -> bool:
        """Has a member succeeded by itself? Then the others are likely to end soon."""
        ended = [member for member in self.members.values() if member.ended_at is not None]
        return any(not member.failed and not member.leaving for member in ended)

    def spare(self, node: str) -> bool:
        """Can the elastic job give up its member on this node and go on?"""
        gang = self.spec.gang
        return (
            gang.elastic
            and self.state is JobState.RUNNING
            and node != next(iter(self.members))
            and len(self.staying) > (gang.min_nodes or 0)
        )

    @property
    def gpu_milli(self) -> int:
        """Thousandths of GPUs that its staying members hold."""
        return sum(self._milli(member) for member in self.members.values() if not member.leaving)

    @staticmethod
    def _milli(member: Member) -> int:
        return sum(gpu.milli for gpu in member.allocation.gpus)

    def unsaved(self, now: float, nodes: tuple[str, ...] = ()) -> float:
        """GPU-hours lost if the attempt, or only its members on these nodes, ended now."""
        milli = self.gpu_milli if not nodes else sum(self._milli(self.members[node]) for node in nodes)
        return milli / WHOLE_GPU * max(0.0, now - self.unsaved_since) / 3_600

    def start_members(self, allocations: tuple[Allocation, ...]) -> None:
        """Give the job the members of a new attempt; none of them has started."""
        self.members = {allocation.node: Member(allocation) for allocation in allocations}
        self.unstarted = self.unended = len(self.members)

    def set_members(self, members: dict[str, Member]) -> None:
        """Replace the members, and count those that have not started or not ended."""
        self.members = members
        self.unstarted = sum(
            member.started_at is None and member.ended_at is None for member in members.values()
        )
        self.unended = sum(member.ended_at is None for member in members.values())

    @property
    def running(self) -> list[Member]:
        """Members that have not ended, so they hold their allocation."""
        return [member for member in self.members.values() if member.ended_at is None]


def newest_checkpoint(one: Checkpoint | None, other: Checkpoint | None) -> Checkpoint | None:
    """The later of two checkpoints; the first if both are equally late."""
    if one is None or other is None:
        return one or other
    return other if other.at > one.at else one
