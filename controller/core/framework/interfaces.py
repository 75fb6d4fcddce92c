"""The interfaces of plugins. A plugin is a frozen dataclass; its fields are its options in scheduler.toml."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from controller.core.cluster.node_table import Bools, Floats, NodeTable, Rows
from controller.core.estimates.runtime_prediction import NO_PREDICTION, PredictionConfig
from controller.core.model.request import PerNodeRequest
from controller.core.queue.order import Order

if TYPE_CHECKING:
    from controller.core.framework.profiles import Profile
    from controller.core.model.job import Job


class Filter(Protocol):
    """Decides which nodes can hold a request. Must be deterministic and must not change anything.

    A filter with `static: ClassVar[bool] = True` depends only on labels, taints and the hardware of nodes. It
    is called once per class of jobs until one of these changes, and not when jobs start and end.
    """

    name: ClassVar[str]

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        """True for every row that may hold the part."""
        ...

    def concerns(self, part: PerNodeRequest) -> bool:
        """False if the request has nothing that this filter checks:

        then every node passes without a call of keep.
        """
        ...

    def explain(self, part: PerNodeRequest) -> str:
        """Why this filter rejects nodes, as in `3 nodes: fewer than 8 free GPUs`.

        A filter may also have `shortage(part, nodes, rows, *, idle)`: the same for these nodes, and with
        `idle` for nodes that it would reject even without running jobs.
        """
        ...


class Scorer(Protocol):
    """Rates nodes for a request: 0..1, higher is better.

    A scorer with a method `concerns(part, nodes)` is not called where that is False, because all nodes are
    equal to it. A scorer with `wide: ClassVar[bool] = True` depends on other nodes too, so it is called for
    all nodes when one has changed.
    """

    name: ClassVar[str]

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """One number per row. Called only for rows that every filter kept."""
        ...


class Picker(Protocol):
    """Chooses the GPU of a node for a job that asks for a share of one GPU."""

    name: ClassVar[str]

    def pick(self, part: PerNodeRequest, nodes: NodeTable, row: int, slots: Sequence[int]) -> int:
        """One of `slots`, the GPUs of the node that have the share free, in ascending order."""
        ...


class Strategy(Protocol):
    """Decides which running jobs a waiting job may preempt: those whose standing is not above its reach."""

    name: ClassVar[str]

    def standing(self, job: Job) -> float:
        """The rank of a running job against preemption; must not change while it runs."""
        ...

    def reach(self, job: Job) -> float | None:
        """The highest standing that the waiting job may preempt; None: it may preempt no job."""
        ...


@dataclass(frozen=True, slots=True)
class PreemptionGuards:
    """Protects running jobs from preemption, whatever the strategies say (`[preemption]`)."""

    grace_s: float = 60.0
    min_runtime_s: float = 300.0
    max_per_job: int = 3
    cooldown_s: float = 900.0
    rate: int = 100
    """The most preemptions within any `window_s` seconds."""
    window_s: float = 3_600.0


class Reserves(enum.Enum):
    """Which waiting jobs get a reservation: a start that backfilled jobs must not delay."""

    NO_JOB = "none"
    FIRST_JOB = "first"
    """The first job in queue order that cannot start."""
    ALL_JOBS = "all"
    """All, up to `Backfill.depth` of them."""


class Backfill(Protocol):
    """Says which jobs may start although a job before them in the queue has to wait."""

    name: ClassVar[str]
    reserves: ClassVar[Reserves]
    starts_behind: ClassVar[bool]
    """Whether any job may start behind the first waiting job."""
    in_queue_order: ClassVar[bool]
    """Whether candidates are tried in queue order. Then `candidate_key` is not asked."""

    @property
    def max_delay_s(self) -> float | None:
        """By how many seconds the first waiting job may be delayed in total; None: not at all."""
        ...

    @property
    def depth(self) -> int | None:
        """The most waiting jobs that get a reservation if all do; None for no limit."""
        ...

    def candidate_key(self, runtime_s: float) -> float:
        """Orders jobs behind the first waiting job, lowest first; queue order breaks ties."""
        ...


class DeadlinePolicy(enum.Enum):
    """How waiting jobs with a deadline are treated (`[backfill] deadlines`)."""

    NONE = "none"
    """Like all other jobs."""
    GUARD = "guard"
    """Backfilled jobs must leave the nodes free that such a job needs at its latest start."""
    LIFT = "lift"
    """As GUARD, and jobs before it in the queue must do so too; at its latest start it comes first."""


@dataclass(frozen=True, slots=True)
class WeightedScorer:
    """A scorer and its weight."""

    scorer: Scorer
    weight: float


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """The scheduling policy of one profile: its plugins in the order of use, and its backfill."""

    order: Order
    filters: tuple[Filter, ...]
    scorers: tuple[WeightedScorer, ...]
    picker: Picker
    backfill: Backfill
    deadlines: DeadlinePolicy = DeadlinePolicy.NONE
    """How waiting jobs with a deadline are treated (`[backfill] deadlines`)."""
    estimating: PredictionConfig = NO_PREDICTION
    """Whether plans use time limits or predicted run times."""
    strategies: tuple[Strategy, ...] = ()
    """Preemption strategies, tried in this order; without any no job is preempted."""
    guards: PreemptionGuards = PreemptionGuards()
    profiles: tuple[Profile, ...] = ()
    """The profiles; the last one takes every job. Without any, this policy decides about all jobs."""
