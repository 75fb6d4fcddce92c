"""API bodies of the reports on GPU usage and on the accuracy of predicted run times and start times."""

from __future__ import annotations

from typing import Optional

from wire.dataclass import dataclass
from wire.names import NodeState


@dataclass(frozen=True)
class UsageView:
    """The usage of a user, project, queue or job. `utilisation` and `p95` are the mean and the 95th
    percentile of GPU utilisation in percent; None if not measured. `peak_mib` is GPU memory.

    `cpu_hours` are the CPU-hours that jobs used, and `cpu_hours_held` the CPU-hours that jobs had allocated.
    `memory_gib_hours` is the allocated memory times the run time, and `memory_peak_mib` is the highest
    measured memory of a job on one node. `money` is the cost at the present prices; None if scheduler.toml
    has no prices.
    """

    name: str
    jobs: int
    gpu_hours: float
    utilisation: Optional[float]
    p95: Optional[int]
    peak_mib: int
    energy_wh: float
    cpu_hours: float
    cpu_hours_held: float = 0.0
    memory_gib_hours: float = 0.0
    memory_peak_mib: int = 0
    money: Optional[float] = None


@dataclass(frozen=True)
class UsageList:
    """GPU usage between `since` and `until`, the largest usage first. `total` counts all users, projects,
    queues or jobs, even if `usage` lists only the first of them.
    """

    usage: tuple[UsageView, ...]
    since: float
    until: float
    total: int = 0
    currency: str = ""


@dataclass(frozen=True)
class BudgetView:
    """The usage of a project in one calendar month, compared with its budget. `gpu_hours_limit` and
    `money_limit` include the amount that was carried over from the last month; None means no limit.

    `percent` is the percentage of the budget that is used. `then` says what happens to the waiting jobs of
    the project when the budget is used up. With `alert` they start as before, with `low` they start after all
    other jobs, and with `stop` they do not start. The month ends at `ends_at`.
    """

    project: str
    month: str
    percent: float
    gpu_hours: float
    gpu_hours_limit: Optional[float]
    money: float
    money_limit: Optional[float]
    currency: str
    then: str
    ends_at: float


@dataclass(frozen=True)
class BudgetReport:
    """The budgets of all projects, ordered by project."""

    budgets: tuple[BudgetView, ...]


@dataclass(frozen=True)
class RunEstimate:
    """The errors of the predicted run times of one user's jobs. All times are means in seconds.

    `bias_s` is above 0 if jobs run longer than predicted. `error_s` is the mean absolute error. `outlived` is
    the fraction of jobs that ran longer than predicted. `limit_error_s` is for comparison: the mean absolute
    error if the time limit were the prediction, over the jobs with a time limit.
    """

    user: str
    jobs: int
    run_s: float
    bias_s: float
    error_s: float
    outlived: float
    limit_error_s: Optional[float] = None


@dataclass(frozen=True)
class StartEstimates:
    """The errors of estimated start times. All times are means in seconds. `kind` names the estimate: promise
    (the backfill reservation of the first waiting job), latest (a forecast from time limits) or likely (a
    forecast from predicted run times).

    `bias_s` is above 0 if jobs start later than estimated. `error_s` is the mean absolute error. `late`
    is the fraction of jobs that started later than estimated.
    """

    kind: str
    count: int
    ahead_s: float
    bias_s: float
    error_s: float
    late: float


@dataclass(frozen=True)
class Foreseen:
    """An estimate of a job's start time that was made while the job waited."""

    kind: str
    made_at: float
    start: float


@dataclass(frozen=True)
class PredictionComparison:
    """The comparison of backfill by predictions with backfill by time limits, on the last `jobs` jobs that
    have ended. `ratio` is the slowdown with predictions divided by the slowdown with time limits; None before
    enough jobs have ended. Backfill uses predictions while `used` is true.
    """

    used: bool
    jobs: int
    ratio: Optional[float] = None


@dataclass(frozen=True)
class EstimateReport:
    """The accuracy of estimates. `runs` has one entry for each user, the user with the most jobs first.
    `plans` is the kind of run time that the scheduler uses for plans: `limit` (the time limits) or
    `predicted` (the predicted run times). `comparison` is None if plans use time limits.
    """

    plans: str
    runs: tuple[RunEstimate, ...]
    all_runs: Optional[RunEstimate] = None
    starts: tuple[StartEstimates, ...] = ()
    comparison: Optional[PredictionComparison] = None


@dataclass(frozen=True)
class StintView:
    """GPU usage by a process that no job started. `until` is None while the process still uses the GPU.
    `units` is the cost in billing units.
    """

    user: str
    node: str
    gpu: int
    uuid: str
    pid: int
    command: str
    since: float
    until: Optional[float]
    gpu_hours: float
    units: float = 0.0
    number: str = ""
    """The number that the driver gives the GPU."""


@dataclass(frozen=True)
class StintList:
    """GPU usage by processes that no job started, between `since` and `until`, the newest first. A GPU in use
    counts as one whole GPU.
    """

    stints: tuple[StintView, ...]
    since: float
    until: float


@dataclass(frozen=True)
class FairnessRow:
    """The GPU-hours that one project or user used, and the GPU-hours to which the project or user was
    entitled. The entitlement is the max-min fair part of the cluster, computed from weights and demands.

    `got` (used), `entitled`, `demanded` and `scavenged` are GPU-hours. `points` is `got` minus `entitled`, in
    percent of the capacity. Waits are seconds from the time when a job may start to its first start;
    `wait_max_s` also counts jobs that still wait. `scavenged` is the usage of jobs with the priority
    SCAVENGER; no other field includes these jobs.
    """

    name: str
    got: float
    entitled: float
    points: float
    demanded: float
    scavenged: float
    started: int
    wait_p50_s: Optional[float]
    wait_p90_s: Optional[float]
    wait_max_s: float
    longest_waiting: str
    """The label of the job that has waited longest and still waits; empty if none waits."""
    longest_waiting_s: float
    judgement: str
    """One sentence for users if `got` differs much from `entitled`, or if jobs waited long; otherwise empty.
    """


@dataclass(frozen=True)
class FairnessReport:
    """The fairness of the cluster between `since` and `until`: one row for each project or user. The row
    whose usage differs most from its entitlement is the first.

    `capacity` is in GPU-hours. Idle GPUs that get no new jobs (such as cordoned GPUs) are not part of the
    capacity.
    """

    by: str
    since: float
    until: float
    capacity: float
    rows: tuple[FairnessRow, ...]


@dataclass(frozen=True)
class GpuHoursByCause:
    """Idle or lost GPU-hours with one cause. `percent` is their percentage of all GPU-hours of the cluster.

    `avoidable` is True for lost work, and for idle GPU-hours in which a waiting job could have run without a
    delay for another job.
    """

    cause: str
    gpu_hours: float
    percent: float
    about: str
    avoidable: bool


@dataclass(frozen=True)
class WasteReport:
    """The GPU-hours between `since` and `until`: the used GPU-hours, the idle GPU-hours by cause, and the
    lost GPU-hours by cause.

    Lost GPU-hours are a part of the used GPU-hours: attempts that ended without saving their work used these
    GPU-hours.
    """

    since: float
    until: float
    gpu_hours: float
    used: float
    idle: tuple[GpuHoursByCause, ...]
    lost: tuple[GpuHoursByCause, ...]


@dataclass(frozen=True)
class ModelUse:
    """GPU time on one GPU model. `gpu_ms` is GPU time in milliseconds, a whole number, so that sums are
    exact. `money` is `gpu_hours` times `price`.
    """

    model: str
    """The name of the model; for a node with several models, all their names; `(unknown)` for removed nodes
    and deleted jobs.
    """
    gpu_ms: int
    gpu_hours: float
    price: float
    """The price of a GPU-hour, from [budgets] of scheduler.toml; a mean price if nodes have several
    models.
    """
    money: float


@dataclass(frozen=True)
class MonthRow:
    """The resources that a user, a project or a queue used in one month, with their cost."""

    name: str
    jobs: int
    gpu_ms: int
    gpu_hours: float
    money: float
    models: tuple[ModelUse, ...] = ()
    utilisation: Optional[float] = None
    """The mean GPU utilisation in percent over the measured time; None if there are no measurements."""
    idle_gpu_hours: float = 0.0
    """The unused part of the measured GPU-hours: a GPU with a utilisation of 70 % for one hour adds 0.3."""
    wait_p50_s: Optional[float] = None
    wait_p95_s: Optional[float] = None
    """The median (p50) and the 95th percentile (p95) of the waits of the jobs that started in the month, in
    seconds. Each is accurate to 12 %. None if no job started, or if the waits are not known.
    """
    off_queue_gpu_hours: float = 0.0
    """GPU-hours that the user's processes used without a job; 0 for projects and queues."""
    cpu_ms: int = 0
    """The allocated CPU time: the number of allocated CPUs times the run time in milliseconds."""
    cpu_hours: float = 0.0
    cpu_hours_used: float = 0.0
    """The CPU-hours that processes of jobs used, as measured."""
    memory_mib_s: int = 0
    """The allocated memory in MiB times the run time in seconds."""
    memory_gib_hours: float = 0.0
    memory_peak_mib: int = 0
    """The highest measured memory of a job on one node."""
    cpu_money: float = 0.0
    """The part of `money` for allocated CPUs."""
    memory_money: float = 0.0
    """The part of `money` for allocated memory."""


@dataclass(frozen=True)
class MonthReport:
    """The usage of one calendar month. The rows are ordered by GPU time. The integers `gpu_ms`, `cpu_ms` and
    `memory_mib_s` are the sums of all rows, and of all usage records of the month. `money` is the exact sum,
    rounded once. Therefore a report by project, a report by user and a report by queue have the same `money`.
    """

    month: str
    since: float
    until: float
    by: str
    currency: str
    rows: tuple[MonthRow, ...]
    gpu_ms: int
    gpu_hours: float
    money: float
    off_queue_gpu_hours: float
    """GPU-hours that processes used without a job."""
    lost: tuple[GpuHoursByCause, ...] = ()
    """GPU-hours of unsaved work that preemption and failures lost in the whole cluster, by cause."""
    cpu_ms: int = 0
    cpu_hours: float = 0.0
    cpu_hours_used: float = 0.0
    memory_mib_s: int = 0
    memory_gib_hours: float = 0.0
    cpu_price: float = 0.0
    """The price of a CPU-hour, from [budgets] of scheduler.toml."""
    memory_price: float = 0.0
    """The price of one GiB of memory for one hour, from [budgets] of scheduler.toml."""


@dataclass(frozen=True)
class SlaRow:
    """The waits of the jobs of one queue, compared with the wait target of the queue (`wait_target_s`).
    `in_target` is the number of started jobs whose wait was within the target.
    """

    queue: str
    target_s: float
    started: int
    """The number of jobs that started for the first time while the queue had a wait target."""
    in_target: int
    met_percent: Optional[float]
    """The percentage of the started jobs that met the wait target; None if no job started."""
    wait_p50_s: Optional[float]
    wait_p95_s: Optional[float]
    waiting_longer: int
    """The number of jobs that still wait and have already waited longer than the wait target."""


@dataclass(frozen=True)
class SlaReport:
    """The queues with a wait target, ordered by name. The report counts jobs since the time `since`."""

    since: float
    until: float
    rows: tuple[SlaRow, ...]


@dataclass(frozen=True)
class FailureCount:
    """The number of failed jobs of one failure class, such as out_of_memory. A failure without a class has
    the reason of the end of the job.
    """

    failure: str
    jobs: int


@dataclass(frozen=True)
class NodeOutcomes:
    """How the jobs on one node ended, compared with the same jobs on other nodes. Jobs are the same if their
    users and their names without a number at the end are equal.

    `expected` is the number of failures that the same jobs had on other nodes, for as many jobs. `slower` is
    the median of the run times, each divided by the median of the same jobs on all nodes; None with fewer
    than 10 such jobs.
    `warning` says what is unusual; empty if nothing is.
    """

    node: str
    state: NodeState
    state_since: float
    jobs: int
    failed: int
    expected: float
    failures: tuple[FailureCount, ...]
    gpu_hours: float
    """The GPU-hours that the jobs held on the node."""
    held_percent: Optional[float]
    """`gpu_hours` in percent of the GPU-hours of the node; None without GPUs."""
    load_percent: Optional[float]
    """The mean load of these GPUs in percent; None if it was not measured."""
    slower: Optional[float] = None
    warning: str = ""


@dataclass(frozen=True)
class NodesReport:
    """The nodes with the outcomes of their jobs, nodes with a warning first. The report counts jobs that are
    in the memory of the controller. If jobs that ended after the requested begin are no longer in memory,
    `since` is later than requested.
    """

    since: float
    until: float
    rows: tuple[NodeOutcomes, ...]
