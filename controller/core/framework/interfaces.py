"""The interfaces of plugins. A plugin is a frozen dataclass. Its fields are its options in scheduler.toml."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from controller.core.cluster.network_tree import NetworkTopology
from controller.core.cluster.node_table import Bools, Floats, NodeTable, Rows
from controller.core.estimates.runtime_prediction import NO_PREDICTION, PredictionConfig
from controller.core.model.request import PerNodeRequest
from controller.core.queue.order import Order

if TYPE_CHECKING:
    from controller.core.framework.profiles import Profile
    from controller.core.model.job import Job


class Filter(Protocol):
    """Decides which nodes can hold a request. A filter must be deterministic, and it must not change its
    arguments.

    A filter with `static: ClassVar[bool] = True` depends only on labels, taints and the hardware of nodes.
    Its results are cached for all jobs with equal requests until labels, taints or hardware change. When jobs
    start or end, the filter is not called again.
    """

    name: ClassVar[str]

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        """Return an array with one entry for each node (row of the node table) of `rows`: True if the node
        can hold the request.
        """
        ...

    def concerns(self, part: PerNodeRequest) -> bool:
        """Return whether this filter can reject a node for the request. If the result is False, `keep` is not
        called.
        """
        ...

    def explain(self, part: PerNodeRequest) -> str:
        """Return the general reason why this filter rejects nodes, such as `fewer than 8 free GPUs`.

        A filter may also have a method `shortage(part, nodes, rows, *, idle)`. It returns the reason for the
        nodes in `rows` only. `idle` is True if the filter would reject these nodes even without running jobs.
        """
        ...


class Scorer(Protocol):
    """Rates how well nodes suit a request, from 0 to 1. The node with the highest weighted sum of scores is
    used.

    A scorer may have a method `concerns(part, nodes)`. If `concerns` returns False, the scorer rates all
    nodes equally and is not called. The scores of a scorer with `wide: ClassVar[bool] = True` also depend on
    other nodes. This scorer is called for all nodes when one node has changed.
    """

    name: ClassVar[str]

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return one score, from 0 to 1, for each node of `rows`. All filters have already accepted these
        nodes.
        """
        ...


class Picker(Protocol):
    """Chooses the GPU of a node for a job that requests a part of one GPU."""

    name: ClassVar[str]

    def pick(self, part: PerNodeRequest, nodes: NodeTable, row: int, slots: Sequence[int]) -> int:
        """Return the index on the node of the chosen GPU. `slots` are the indices of the GPUs with enough
        free capacity for the request, in ascending order.
        """
        ...


class Strategy(Protocol):
    """Decides which running jobs a waiting job may preempt.

    A strategy gives each running job a number (`standing`) and each waiting job a number (`reach`). A waiting
    job may preempt the running jobs whose `standing` is at most its `reach`.
    """

    name: ClassVar[str]

    def standing(self, job: Job) -> float:
        """Return how well a running job is protected against preemption. The greater the number, the better
        the protection. The number may change only when the job is edited, inherits another priority, or has
        run longer than predicted.
        """
        ...

    def reach(self, job: Job) -> float | None:
        """Return the highest `standing` (protection) of running jobs that the waiting job may preempt. Return
        None if the waiting job may preempt no job.
        """
        ...


@dataclass(frozen=True, slots=True)
class PreemptionGuards:
    """Limits that protect running jobs from preemption even if a preemption strategy allows the preemption.
    The limits come from `[preemption]` and from the table of the job's queue.
    """

    grace_s: float = 60.0
    min_runtime_s: float = 300.0
    max_per_job: int = 3
    cooldown_s: float = 900.0
    rate: int = 100
    """At most this many jobs are preempted within any `window_s` seconds."""
    window_s: float = 3_600.0
    preemptible: bool = True
    """False: the queue of the job protects the job from every preemption and every move."""
    spare_ending_s: float = 300.0
    """A job that is likely to end within this many seconds is not preempted."""
    gang_gain: float = 0.0
    """If above 0, a waiting gang may preempt jobs that run on one node each, because all other GPUs of the
    gang would stay idle until these jobs end. These idle GPU-hours must be at least `gang_gain` times the
    GPU-hours that the victims lose (preemption/gang_gain.py).
    """


class Reserves(enum.Enum):
    """The waiting jobs that get a backfill reservation. A reservation is a planned start that other jobs must
    not delay.
    """

    NO_JOB = "none"
    FIRST_JOB = "first"
    """Only the first job in queue order that cannot start gets a reservation. On nodes shared with other
    profiles, later jobs also get one if the first job cannot use these nodes.
    """
    ALL_JOBS = "all"
    """The first waiting jobs in queue order get a reservation, at most `Backfill.depth` jobs."""


class Backfill(Protocol):
    """A kind of backfill. Decides which jobs may start although an earlier job in the queue must wait."""

    name: ClassVar[str]
    reserves: ClassVar[Reserves]
    starts_behind: ClassVar[bool]
    """True if jobs behind the first waiting job may start while that job waits."""
    in_queue_order: ClassVar[bool]
    """True if candidates (jobs that may be backfilled) are tried in queue order. `candidate_key` is then not
    called.
    """

    @property
    def max_delay_s(self) -> float | None:
        """The greatest total delay, in seconds, that backfilled jobs may cause for the first waiting job.
        None if no delay is allowed.
        """
        ...

    @property
    def depth(self) -> int | None:
        """The greatest number of waiting jobs that get a reservation with `Reserves.ALL_JOBS`; None for no
        limit.
        """
        ...

    def candidate_key(self, runtime_s: float) -> float:
        """Return the sort key of a backfill candidate with this expected run time in seconds. Candidates are
        tried in the order of their keys, the lowest first. Candidates with equal keys are tried in queue
        order.
        """
        ...


class DeadlinePolicy(enum.Enum):
    """The treatment of waiting jobs with a deadline (`[backfill] deadlines`)."""

    NONE = "none"
    """Jobs with a deadline are treated like all other jobs."""
    GUARD = "guard"
    """A job with a deadline needs certain nodes at its latest start. Backfilled jobs must leave these nodes
    free.
    """
    LIFT = "lift"
    """Like GUARD, but jobs that are ahead of the job in the queue must also leave its nodes free. At its
    latest start, the job is tried before all other jobs.
    """


@dataclass(frozen=True, slots=True)
class WeightedScorer:
    scorer: Scorer
    weight: float


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """The scheduling policy of one scheduler profile: its plugins in the order of use, and its kind of
    backfill.
    """

    order: Order
    filters: tuple[Filter, ...]
    scorers: tuple[WeightedScorer, ...]
    picker: Picker
    backfill: Backfill
    deadlines: DeadlinePolicy = DeadlinePolicy.NONE
    """The treatment of waiting jobs with a deadline (`[backfill] deadlines`)."""
    estimating: PredictionConfig = NO_PREDICTION
    """The settings of run time predictions, such as whether backfill uses predictions or time limits."""
    strategies: tuple[Strategy, ...] = ()
    """The preemption strategies, in the order in which the engine tries them. Without a strategy, no job is
    preempted.
    """
    guards: PreemptionGuards = PreemptionGuards()
    slice_s: float = 0.0
    """`[scheduler] slice_s`: the seconds after which a running job that can save its state may give way to a
    waiting job, and continue later. 0: jobs do not take turns.
    """
    network: NetworkTopology | None = None
    """The switches above the nodes ([topology]). None if the nearness of nodes does not count."""
    profiles: tuple[Profile, ...] = ()
    """The scheduler profiles. The last profile accepts every job. Without profiles, this policy applies to
    all jobs.
    """
