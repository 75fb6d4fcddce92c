"""The state of a job: its spec, its placement and its current attempt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from controller.core.model.allocation import Allocation
from controller.core.model.events.attempts import JobPreempted
from controller.core.model.events.nominations import Victim
from controller.core.model.request import ResourceRequest
from controller.core.model.services import Replica
from controller.core.model.start_estimates import StartEstimate
from controller.core.model.time_limits import ShortLimit
from controller.core.model.wait_state import NEVER_WAITED, Wait
from wire.agent.reports import Checkpoint, GpuUse
from wire.job.spec import JobSpec
from wire.job.steps import Step
from wire.names import HIGHEST_PRIORITY, WHOLE_GPU, JobState, Reason

NEVER = float("inf")
NO_JOB = 0
"""An id that no job has."""
LEGAL: Final[dict[JobState, frozenset[JobState]]] = {
    JobState.QUEUED: frozenset({JobState.SCHEDULED, JobState.CANCELLED, JobState.FAILED}),
    JobState.SCHEDULED: frozenset(
        {JobState.RUNNING, JobState.QUEUED, JobState.PREEMPTED, JobState.FAILED, JobState.CANCELLED}
    ),
    JobState.RUNNING: frozenset(
        {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.PREEMPTED, JobState.QUEUED}
    ),
    JobState.PREEMPTED: frozenset({JobState.QUEUED, JobState.FAILED, JobState.CANCELLED}),
    JobState.COMPLETED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELLED: frozenset(),
}
"""The states to which a job may change from each state."""


class IllegalTransition(AssertionError):
    """Raised for an event that the job's state does not allow. Such an event is always a bug."""


@dataclass(slots=True)
class Member:
    """The part of an attempt on one node: its allocation and its processes. A job on one node has one
    member.
    """

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
    """The fault that a GPU of the member had during the attempt; empty if there was none. `own` is True if
    the member's own program caused the fault.
    """
    own: bool = False
    ready: bool = False
    """True once the member has reached the start barrier of its gang."""
    use: GpuUse | None = None
    leaving: bool = False
    """True if the member was ordered to stop while the other members continue. Its end does not count as a
    failure, whatever its exit code.
    """
    memory_mib: int = 0
    """The peak memory of all processes together, in MiB."""
    failure: str = ""
    """The failure class of the member's end, such as too little GPU memory; empty if no class matches."""
    steps: tuple[Step, ...] = ()
    """The steps that srun has run, recorded with the end of the attempt on its first node."""

    def gpu_s(self, since: float, until: float) -> float:
        """Return the GPU-seconds that the member held from `since` to `until`. Half a GPU for 2 seconds gives
        1.
        """
        begin = max(since, self.started_at if self.started_at is not None else until)
        end = min(until, until if self.ended_at is None else self.ended_at)
        return max(0.0, end - begin) * sum(hold.milli for hold in self.allocation.gpus) / WHOLE_GPU

    @property
    def failed(self) -> bool:
        """True if the member has ended with a failure. A member that was ordered to end because its elastic
        job shrinks does not count as failed.
        """
        return self.ended_at is not None and not self.leaving and not (self.code == 0 and not self.why)


@dataclass(frozen=True, slots=True)
class Move:
    """One move of a running job to other nodes, caused by the rebalancer, a preemption or a timed drain."""

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
    """The time at which the job began to run on the new nodes. None if it has not run there."""
    undone: str = ""
    """The reason why the job never ran on the new nodes. Empty if the job has run on the new nodes or can
    still do so.
    """

    @property
    def under_way(self) -> bool:
        """True while the move has neither succeeded nor failed."""
        return self.done_at is None and not self.undone


@dataclass(frozen=True, slots=True)
class LastAttempt:
    """How the last attempt of a job that is queued again ended: the time, the reason and the failure
    class.
    """

    attempt: int
    at: float
    reason: Reason
    detail: str = ""
    failure: str = ""


@dataclass(slots=True)
class Job:
    """A job in the state of the engine. Only `apply` (the function that applies events to the state) changes
    a job.

    `attempt` never decreases, because agents refuse orders of older attempts.
    """

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
    operator_hold: str = ""
    """The operator that holds the job; empty if the job is not held, or held by its user."""
    from_queue: tuple[str, ...] = ()
    """The keys of the node labels that the queue added to the job's node selector. The labels are removed
    when the job changes its queue.
    """
    wait: Wait = NEVER_WAITED
    profile: str = ""
    """The scheduler profile that places the job or has placed it; empty on a cluster without profiles."""
    attempt: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    unstarted: int = 0
    """The number of members that have neither started nor ended."""
    unended: int = 0
    """The number of members that have not ended. These members still hold their allocations."""
    quality: int | None = None
    placed_at: float | None = None
    foreseen: tuple[StartEstimate, ...] = ()
    """The recorded estimates of the job's start. They are compared with the real start when the job starts.
    """
    predicted_s: float | None = None
    """The run time in seconds that was predicted when the job was placed; None without a prediction."""
    planned_s: float | None = None
    """The number of seconds after its start at which scheduling plans expect the job to end. None: plans
    expect the end after the time limit and the grace time.
    """
    outlived: bool = False
    """True if the attempt has run longer than the run time that was predicted at its placement."""
    charge: float = 0.0
    """The charge of the present attempt in billing units per hour."""
    started_at: float | None = None
    ended_at: float | None = None
    stopping: Reason | None = None
    stopped_by: str = ""
    code: int | None = None
    signal: int | None = None
    spent_gpu_s: float = 0.0
    spent_wh: float = 0.0
    """`spent_gpu_s` is the GPU-seconds that earlier attempts used, `spent_wh` is their energy in
    watt-hours.
    """
    spent_run_s: float = 0.0
    """The seconds that earlier attempts ran."""
    checkpoint: Checkpoint | None = None
    """The newest checkpoint of any attempt; the next attempt receives its path."""
    claim: tuple[Allocation, ...] = ()
    """The nomination of the job: allocations that are kept for the job, and on which it starts when other
    jobs have left them. Empty: the job is not nominated.
    """
    claim_quality: int = 0
    claim_from: tuple[Victim, ...] = ()
    """The running jobs that are stopped or moved so that this job can start on `claim` (the victims)."""
    stop_by: float | None = None
    """For a nominated job: the time by which its victims have ended. For a job with a stop order: the latest
    time of its end.
    """
    idle_since: float | None = None
    """The time since which all GPUs of the job are idle; None if a GPU of the job is busy."""
    idle_until: float | None = None
    """The time at which the job is ended if its GPUs stay idle; None if the job will not be ended for this
    reason.
    """
    kept_until: float | None = None
    """Until this time, the attempt is neither flagged nor ended because of idle GPUs, as ordered by a user.
    None: there is no such order.
    """
    kept_why: str = ""
    yields_to: tuple[int, ...] = ()
    """The ids of the jobs for which this job is being preempted. A gang may give up nodes for several
    jobs.
    """
    preemptions: tuple[JobPreempted, ...] = ()
    """All preemptions of the job, the latest last."""
    moves: tuple[Move, ...] = ()
    """All moves of the job to other nodes, the latest last."""
    replica: Replica | None = None
    """The service, and the number of the job in the service; None for a job that a user submitted."""
    workload: int | None = None
    """The id of the workload to which the job belongs; None for a job in no workload."""
    task: str = ""
    """The name of the workload's task to which the job belongs."""
    short: ShortLimit | None = None
    """The time limit of the present attempt, if this limit is shorter than the limit of the job
    (`--time-min`).
    """
    limit_raised: bool = False
    """True if the time limit of the present attempt was extended after its start."""
    warned_end: float | None = None
    """The owner was warned that the time limit ends the job at this time. None: there was no such warning in
    this attempt.
    """
    last: LastAttempt | None = None
    """How the previous attempt ended; None before and during the first attempt."""
    healthy: bool | None = None
    """The last result of the attempt's health checks; None before the first result and without checks."""

    @property
    def label(self) -> str:
        """The name of the job for users: its id, such as 17, or 12_3 for element 3 of array 12."""
        return str(self.id) if self.array is None else f"{self.array}_{self.index}"

    @property
    def name(self) -> str:
        """The job's name from its spec, or the file name of its program if the spec has none."""
        return self.spec.name or self.spec.command[0].rsplit("/", 1)[-1]

    @property
    def failure(self) -> str:
        """The failure class of an ended attempt: the class of the member that failed first. A member that was
        stopped because another member had failed has no failure class.
        """
        failed = [member for member in self.members.values() if member.failed and member.failure]
        return min(failed, key=lambda member: member.ended_at or 0.0).failure if failed else ""

    @property
    def ready(self) -> bool:
        """True if the job is in the queue. The state of such a job is QUEUED, the job is not held, no nodes
        are kept for the job (nomination), and no gate is closed. A closed gate is a reason to wait, such as a
        dependency.
        """
        return self.state is JobState.QUEUED and not self.held and not self.wait.gates and not self.claim

    @property
    def move(self) -> Move | None:
        """The move of the job that has neither succeeded nor failed yet, or None."""
        return self.moves[-1] if self.moves and self.moves[-1].under_way else None

    @property
    def ready_at(self) -> float:
        """The time at which the job last entered the queue. It is the submit time if the job has been in the
        queue since then: no hold, no closed gate (a reason to wait, such as a dependency) and no attempt has
        kept it out.
        """
        return self.submitted_at if self.wait.ready_at is None else self.wait.ready_at

    @property
    def ages_from(self) -> float:
        """The time from which the age of the job in the queue is counted: its submit time, or its begin time
        if the begin time is later.
        """
        return max(self.submitted_at, self.spec.begin_at or 0.0)

    @property
    def priority(self) -> int:
        """The priority, 0 to 100: the higher one of the job's own and its inherited priority. Jobs with a
        high priority start first.
        """
        return max(self.own_priority, self.wait.inherited)

    @property
    def own_priority(self) -> int:
        """The priority in the spec, plus the points that the job has gained by waiting, but at most 100."""
        return min(HIGHEST_PRIORITY, self.spec.priority + self.wait.promoted)

    @property
    def granted_priority(self) -> int:
        """The higher one of the requested and the inherited priority, without the points gained by waiting.

        Jobs on which this job depends inherit this priority. While the job runs, preemption strategies such
        as `priority` compare this priority with the priority of the waiting job.
        """
        return max(self.spec.priority, self.wait.inherited)

    @property
    def latest_start(self) -> float:
        """The latest time at which the job can start so that it ends before its deadline. The job is assumed
        to run for its whole time limit; without a time limit, the result is the deadline. NEVER if there is
        no deadline.
        """
        deadline = self.spec.deadline_at
        return NEVER if deadline is None else deadline - (self.spec.time_limit_s or 0.0)

    @property
    def limit(self) -> float:
        """The time limit in seconds; NEVER (infinite) if the job has none. The limit may be shorter than the
        job requests (`short`).
        """
        if self.short is not None:
            return self.short.limit_s
        return NEVER if self.spec.time_limit_s is None else self.spec.time_limit_s

    @property
    def span(self) -> float:
        """The most seconds between the start of an attempt and its end: the time limit plus the grace time
        (between SIGTERM and SIGKILL). The time from the placement to the start is not included. NEVER
        (infinite) without a time limit.
        """
        # Do not call the property `limit`: a call takes time, and backfill reads `span` of every waiting job.
        limit = self.spec.time_limit_s if self.short is None else self.short.limit_s
        return NEVER if limit is None else limit + self.spec.grace_s

    @property
    def expected_end(self) -> float:
        """The time at which backfill and all other scheduling plans expect a placed or nominated job to end.

        1. The time limit begins when the processes of all members have started. Until then, the time of the
           placement counts as the start. A slow prolog or image pull makes this difference large.
        2. After the time limit the job may use its whole grace time (between SIGTERM and SIGKILL). No
           checkpoint is saved at the time limit.
        3. A job that is being preempted has ended at `stop_by` at the latest. This time includes its
           checkpoint and its grace time.
        4. With `[backfill] estimate = "predicted"` the predicted run time replaces time limit and grace time.
           For a job without a time limit, its predicted run time or `[jobs] default_time_limit_s` is used.
        5. A nominated job is expected to start at `stop_by`, when its victims have ended.

        Example: a job is placed at 10:00 and starts at 10:02, with a time limit of 1h and a grace time of
        30s. Its expected end is 11:02:30.
        """
        return self._end_after(self.span if self.planned_s is None else self.planned_s)

    @property
    def latest_end(self) -> float:
        """The latest time at which a placed or nominated job ends; NEVER if there is no time limit.

        Unlike `expected_end`, this time does not depend on a predicted run time or on `[jobs]
        default_time_limit_s`.
        """
        return self._end_after(self.span)

    def _end_after(self, run_s: float) -> float:
        if self.placed_at is None:
            return NEVER if self.stop_by is None else self.stop_by + self.span
        end = (self.placed_at if self.started_at is None else self.started_at) + run_s
        return end if self.stop_by is None else min(end, self.stop_by)

    @property
    def unsaved_since(self) -> float:
        """The time of the attempt's last checkpoint; without a checkpoint, the start of the attempt. If the
        attempt ends now, the work since this time is lost. NEVER if the job is not placed.
        """
        since = self.started_at if self.started_at is not None else self.placed_at
        if since is None:
            return NEVER
        return since if self.checkpoint is None else max(since, self.checkpoint.at)

    @property
    def staying(self) -> list[Member]:
        """The members of the job that have not ended and were not ordered to stop. An elastic job that
        shrinks orders single members to stop.
        """
        return [member for member in self.members.values() if member.ended_at is None and not member.leaving]

    @property
    def shown_members(self) -> list[Member]:
        """The members that the API and the commands show: all members except those that an elastic job has
        given up or is giving up.

        When the command of a batch job on its first node has ended, the job releases its other nodes. The
        members on the released nodes are included, because the job held these nodes until then.
        """
        members = self.members.values()
        done_at = next(iter(members)).ended_at if self.spec.batch and members else None
        if done_at is None:
            return [member for member in members if not member.leaving]
        return [
            member
            for member in members
            if not member.leaving or member.ended_at is None or member.ended_at >= done_at
        ]

    @property
    def finishing(self) -> bool:
        """True if at least one member of the job has ended with success. The other members are then likely to
        end soon.
        """
        ended = [member for member in self.members.values() if member.ended_at is not None]
        return any(not member.failed and not member.leaving for member in ended)

    def spare(self, node: str) -> bool:
        """Return whether this job is elastic and can give up its member on the node and continue with its
        other members. The first member cannot be given up.
        """
        gang = self.spec.gang
        return (
            gang.elastic
            and self.state is JobState.RUNNING
            and node != next(iter(self.members))
            and len(self.staying) > (gang.min_nodes or 0)
        )

    @property
    def gpu_milli(self) -> int:
        """The number of GPUs that the job holds, in thousandths of a GPU. Members that an elastic job gives
        up (members with a stop order) are not counted.
        """
        return sum(
            gpu.milli
            for member in self.members.values()
            if not member.leaving
            for gpu in member.allocation.gpus
        )

    @staticmethod
    def _milli(member: Member) -> int:
        return sum(gpu.milli for gpu in member.allocation.gpus)

    def unsaved(self, now: float, nodes: tuple[str, ...] = ()) -> float:
        """Return the GPU-hours of work since the last checkpoint that are lost if the attempt ends now. If
        `nodes` is not empty, count only the members on these nodes.
        """
        milli = self.gpu_milli if not nodes else sum(self._milli(self.members[node]) for node in nodes)
        return milli / WHOLE_GPU * max(0.0, now - self.unsaved_since) / 3_600

    def change_state(self, new: JobState, reason: Reason, detail: str = "") -> None:
        """Change the state of the job. Raise IllegalTransition if the table LEGAL does not allow the
        change.
        """
        if new not in LEGAL[self.state]:
            raise IllegalTransition(f"job {self.id}: {self.state.value} -> {new.value}")
        self.state, self.reason, self.detail = new, reason, detail

    def set_members(self, members: dict[str, Member]) -> None:
        """Replace the members of the job, and compute `unstarted` and `unended` again."""
        self.members = members
        self.unstarted = sum(
            member.started_at is None and member.ended_at is None for member in members.values()
        )
        self.unended = sum(member.ended_at is None for member in members.values())

    @property
    def running(self) -> list[Member]:
        """The members that have not ended and therefore still hold their allocations."""
        return [member for member in self.members.values() if member.ended_at is None]


def newest_checkpoint(one: Checkpoint | None, other: Checkpoint | None) -> Checkpoint | None:
    """Return the later of two checkpoints; the first argument if both were saved at the same time."""
    if one is None or other is None:
        return one or other
    return other if other.at > one.at else one
