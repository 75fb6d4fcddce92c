"""What a plugin is: a small frozen dataclass whose fields are its options in scheduler.toml."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from controller.core.columns import Bools, Columns, Floats, Rows
from controller.core.estimates import BY_LIMIT, Estimating
from controller.core.events import AS_IT_IS, Overcommit
from controller.core.gates import WAIT_RULES, WaitRules
from controller.core.health import USUAL_CARE, Care
from controller.core.idling import USUAL_IDLING, Idling
from controller.core.losses import NO_LOSSES, Losses
from controller.core.outlets import Hook, Metrics
from controller.core.proposals import NO_REBALANCING, RebalanceRules
from controller.core.quotas import NO_RULES, Rules
from controller.core.requests import Part
from controller.core.shares import Sharing
from controller.core.watch import Watch

if TYPE_CHECKING:
    from controller.core.jobs import Job
    from controller.core.profiles import Profile


class Filter(Protocol):
    """Says which nodes can hold a part at all. Deterministic; reads, never writes.

    One with `static: ClassVar[bool] = True` answers from what nodes have by nature, their labels, taints and
    GPUs: it is asked once a class until one of these changes, and not when jobs come and go.
    """

    name: ClassVar[str]

    def keep(self, part: Part, nodes: Columns, rows: Rows) -> Bools:
        """True for every row that may hold the part."""
        ...

    def concerns(self, part: Part) -> bool:
        """False if the part asks for nothing this filter looks at: then it keeps every node unasked."""
        ...

    def explain(self, part: Part) -> str:
        """What is wrong with a node lost here, as in `3 nodes: fewer than 8 free GPUs`."""
        ...


class Scorer(Protocol):
    """Says how good a node is for a part: 0..1, higher is better.

    One with a method `concerns(part, nodes)` is not asked where that is False: all nodes are alike to it. One
    with `wide: ClassVar[bool] = True` looks at other nodes, too: it is asked about all when any has changed.
    """

    name: ClassVar[str]

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """One number per row; asked only about rows that every filter kept."""
        ...


class Picker(Protocol):
    """Says which GPU of a node gives a share."""

    name: ClassVar[str]

    def pick(self, part: Part, nodes: Columns, row: int, slots: Sequence[int]) -> int:
        """One of the slots, all of which can give the share; they come in order."""
        ...


class Order(Protocol):
    """Says which job comes first: lowest rank. The submit order breaks ties."""

    name: ClassVar[str]

    def rank(self, job: Job) -> tuple[float, ...]:
        """The job's rank; must not change while it waits."""
        ...


class Strategy(Protocol):
    """Says for whom running jobs may be ended: a job reaches those whose standing is not above its reach."""

    name: ClassVar[str]

    def standing(self, job: Job) -> float:
        """How well a running job stands against being ended; must not change while it runs."""
        ...

    def reach(self, job: Job) -> float | None:
        """The highest standing that a waiting job may have ended; None: nobody's."""
        ...


@dataclass(frozen=True, slots=True)
class Guards:
    """What protects running jobs, whatever a strategy says."""

    grace_s: float = 60.0
    min_runtime_s: float = 300.0
    max_per_job: int = 3
    cooldown_s: float = 900.0
    rate: int = 100
    """Jobs that may be ended within any `window_s`."""
    window_s: float = 3_600.0


class Backfill(enum.Enum):
    """What may start although a job before it has to wait."""

    NONE = "none"
    """Nothing: strictly in order."""
    EASY = "easy"
    """What does not delay the first waiting job, in queue order."""
    EASY_SJBF = "easy-sjbf"
    """The same, shortest first."""
    CONSERVATIVE = "conservative"
    """What does not delay any job before it: every waiting job has a promised start."""
    AGGRESSIVE = "aggressive"
    """As easy, but the first may be delayed by `max_delay_s` at most, once."""
    GREEDY = "greedy"
    """Whatever fits: a big job may wait for ever behind small ones."""


class Deadlines(enum.Enum):
    """What waiting jobs with a deadline may count on."""

    NONE = "none"
    """Their place in the queue, like all others."""
    GUARD = "guard"
    """Nobody passes others in the room that they need in the end."""
    LIFT = "lift"
    """Nor whose turn it is gets that room: it is theirs then, and at their last moment in any case."""


@dataclass(frozen=True, slots=True)
class Weighted:
    """A scorer and how much it counts."""

    scorer: Scorer
    weight: float


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The plugins of one policy, in the order they are asked."""

    order: Order
    filters: tuple[Filter, ...]
    scorers: tuple[Weighted, ...]
    picker: Picker
    backfill: Backfill = Backfill.EASY
    max_delay_s: float = 0.0
    deadlines: Deadlines = Deadlines.NONE
    """What waiting jobs with a deadline may count on."""
    estimating: Estimating = BY_LIMIT
    """What plans count on: limits, or predictions."""
    watch: Watch = field(default_factory=Watch)
    sharing: Sharing = field(default_factory=Sharing)
    depth: int | None = None
    """How many waiting jobs get a promise under conservative backfill; None: all of them."""
    losses: Losses = NO_LOSSES
    """What becomes of jobs on nodes that are not heard of."""
    overcommit: Overcommit = AS_IT_IS
    rules: Rules = NO_RULES
    """What the configuration says about who may have what."""
    strategies: tuple[Strategy, ...] = ()
    """For whom running jobs may be ended, asked in this order; without any nobody is."""
    guards: Guards = Guards()
    waiting: WaitRules = WAIT_RULES
    """What applies to jobs that wait for something."""
    idling: Idling = USUAL_IDLING
    """What follows when jobs let their GPUs idle."""
    rebalance: RebalanceRules = NO_REBALANCING
    """Whether running jobs may be moved, and at what price."""
    care: Care = USUAL_CARE
    """How sick GPUs are treated."""
    metrics: tuple[Metrics, ...] = ()
    """Who gives figures to whoever watches the controller."""
    hooks: tuple[Hook, ...] = ()
    """Who hears of placements."""
    profiles: tuple[Profile, ...] = ()
    """Who decides instead, for whom and where; the last is for everybody. Without any it is this alone."""
