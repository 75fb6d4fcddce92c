"""Isolates the plugins of a site: a plugin that raises or returns an invalid value cannot stop the scheduler.

1. A failure is recorded with its reason, and the plugin is not called again in that cycle.
2. After three cycles with a failure the plugin is not called until the controller restarts (CircuitBreaker).
3. While the plugin is not called, its wrapper returns a fixed value: a filter rejects all nodes (unless
   `on_error = "pass"`), a scorer gives all nodes the same score, an order ranks the job last, and a
   preemption strategy stops no job.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from controller.core.cluster.node_table import Bools, Floats, NodeTable, Rows
from controller.core.fairshare.share_tree import SharePath
from controller.core.framework.circuit_breaker import CircuitBreaker
from controller.core.framework.interfaces import Reserves
from controller.core.model.job import NEVER, Job
from controller.core.model.request import PerNodeRequest
from controller.core.pipeline.hooks import Placed, Sample, sample_problem
from controller.core.preemption.fairshare_reclaim import ReclaimContext, ReclaimPolicy, ReclaimStrategy
from controller.core.queue.order import DynamicOrder, OrderView
from controller.core.queue.queue import LaneGroup
from wire.api.reasons import Points
from wire.cluster.quota import Quota

if TYPE_CHECKING:
    from controller.core.state.state import State

T = TypeVar("T")


class IsolatedPlugin:
    """Calls a plugin, and returns a fixed value while the plugin fails."""

    kind = ""

    def __init__(self, plugin: Any, breaker: CircuitBreaker) -> None:
        self.plugin = plugin
        self.name: str = plugin.name
        self._breaker = breaker

    def call(self, question: Callable[[], T], instead: T, wrong: Callable[[T], str] = lambda _: "") -> T:
        """The value that the plugin returns; `instead` if it raises, or if `wrong` returns an error text."""
        if not self._breaker.allows(self.kind, self.name):
            return instead
        try:
            answer = question()
            why = wrong(answer)
        except Exception as error:  # A site's code may raise any exception.
            why = f"{type(error).__name__}: {error}"
        if why:
            self._breaker.fail(self.kind, self.name, why[:500])
            return instead
        return answer


class IsolatedFilter(IsolatedPlugin):
    """Isolates a filter: while it fails, it rejects all nodes, and the jobs that it concerns wait.

    With `on_error = "pass"` in the filter's table it keeps all nodes instead. A failing filter never makes a
    job impossible: the check for idle nodes (`could_keep`) keeps all nodes.
    """

    kind = "filter"

    def __init__(self, plugin: Any, breaker: CircuitBreaker, *, passes: bool = False) -> None:
        super().__init__(plugin, breaker)
        self._passes = passes

    @property
    def static(self) -> bool:
        """Does the filter read only labels, taints and hardware?"""
        return bool(getattr(self.plugin, "static", False))

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        """True for each node that may hold the request."""
        return self._keep(part, nodes, rows, passes=self._passes)

    def could_keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        """True for each node that could hold the request when idle; True for all while the filter fails."""
        return self._keep(part, nodes, rows, passes=True)

    def _keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows, *, passes: bool) -> Bools:
        instead = np.full(len(nodes.open[rows]), passes, dtype=np.bool_)
        return self.call(lambda: self.plugin.keep(part, nodes, rows), instead, _wrong_array(instead))

    def concerns(self, part: PerNodeRequest) -> bool:
        """Does the filter check this request? While it fails: yes, unless `on_error = "pass"`."""
        return bool(self.call(lambda: self.plugin.concerns(part), instead=not self._passes))

    def explain(self, part: PerNodeRequest) -> str:
        """The reason that users see for a node that this filter rejected."""
        why = self._breaker.why(self.kind, self.name)
        failing = f"the filter {self.name} fails ({why})" if why else f"refused by the filter {self.name}"
        return str(self.call(lambda: self.plugin.explain(part), failing))


class IsolatedScorer(IsolatedPlugin):
    """Isolates a scorer: while it fails, all nodes have the same score."""

    kind = "scorer"

    def concerns(self, part: PerNodeRequest, nodes: NodeTable) -> bool:
        """False if all nodes would get the same score."""
        asked = getattr(self.plugin, "concerns", None)
        return asked is None or bool(self.call(lambda: asked(part, nodes), instead=False))

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """One score per row; 0 for all while the scorer fails."""
        alike = np.zeros(len(nodes.open[rows]))
        return self.call(lambda: self.plugin.score(part, nodes, rows), alike, _wrong_array(alike))


class IsolatedPicker(IsolatedPlugin):
    """Isolates a picker: while it fails, the first GPU that fits is chosen."""

    kind = "picker"

    def pick(self, part: PerNodeRequest, nodes: NodeTable, row: int, slots: Sequence[int]) -> int:
        """One of these GPU slots of the node."""

        def wrong(picked: int) -> str:
            return "" if picked in slots else f"returned slot {picked!r}, which is not one of {list(slots)}"

        return self.call(lambda: self.plugin.pick(part, nodes, row, slots), slots[0], wrong)


class IsolatedOrder(IsolatedPlugin):
    """Isolates an order: while it fails, jobs are ranked last."""

    kind = "order"

    def rank(self, job: Job) -> tuple[float, ...]:
        """The rank of the job; the lowest rank is first."""
        return self.call(lambda: self.plugin.rank(job), (NEVER,), _not_numbers)


class IsolatedDynamicOrder(IsolatedOrder):
    """Isolates an order in which positions change while jobs wait."""

    def group(self, job: Job, tenant: SharePath) -> LaneGroup:
        """The group of the job. Jobs of one group never overtake each other."""
        return self.call(lambda: self.plugin.group(job, tenant), tenant)

    def place(self, job: Job, view: OrderView) -> tuple[float, ...]:
        """The sort key of the job at this moment."""
        return self.call(lambda: self.plugin.place(job, view), (NEVER,), _not_numbers)

    def receipt(self, job: Job, view: OrderView) -> tuple[Points, ...]:
        """The points whose sum is the job's priority; empty if the plugin has no method `receipt`."""
        asked = getattr(self.plugin, "receipt", None)
        return () if asked is None else self.call(lambda: asked(job, view), ())


class IsolatedStrategy(IsolatedPlugin):
    """Isolates a preemption strategy: while it fails, it stops no job."""

    kind = "preemption"

    def standing(self, job: Job) -> float:
        """The standing of a running job; NEVER while the plugin fails, so that no strategy stops the job."""
        return self.call(lambda: self.plugin.standing(job), NEVER, _not_a_number)

    def reach(self, job: Job) -> float | None:
        """The highest standing of jobs that may be stopped for this one; None: no job."""
        none: float | None = None
        found: float | None = self.call(lambda: self.plugin.reach(job), none, _no_reach)
        return found


class IsolatedReclaimStrategy(IsolatedStrategy):
    """Isolates a reclaim strategy, but not the policy objects that it returns."""

    def group(self, job: Job, state: State) -> Hashable:
        """The group of the job. Either a whole group must give resources back, or no job of it."""
        found: Hashable = self.call(lambda: self.plugin.group(job, state), job.id)
        return found

    def reclaim_policy(self, job: Job, context: ReclaimContext) -> ReclaimPolicy | None:
        """The policy for this waiting job; None if no tenant has to give anything back."""
        none: ReclaimPolicy | None = None
        found: ReclaimPolicy | None = self.call(lambda: self.plugin.reclaim_policy(job, context), none)
        return found


class IsolatedQuota(IsolatedPlugin):
    """Isolates a quota provider: while it fails, it sets no limit."""

    kind = "quota"

    def quota(self, scope: str, name: str) -> Quota | None:
        """The quota of this user, project or queue; None: no limit."""
        none: Quota | None = None
        return self.call(lambda: self.plugin.quota(scope, name), none, _no_quota)

    def names(self, scope: str) -> Iterator[str]:
        """The names of all tenants with a quota in this scope."""
        none: list[str] = []
        return iter(self.call(lambda: list(self.plugin.names(scope)), none))


class IsolatedMetrics(IsolatedPlugin):
    """Isolates a metrics plugin: while it fails, it has no samples."""

    kind = "metrics"

    def collect(self, state: State, now: float) -> Iterable[Sample]:
        """The samples of the plugin; none if one of them is invalid."""
        nothing: list[Sample] = []
        return self.call(lambda: list(self.plugin.collect(state, now)), nothing, _no_samples)


class IsolatedHook(IsolatedPlugin):
    """Isolates a hook: after a failure it is not called again in this cycle."""

    kind = "hook"

    def on_placed(self, placed: Placed) -> None:
        """Call the hook for a placement."""
        self.call(lambda: self.plugin.on_placed(placed), None)


class IsolatedBackfill(IsolatedPlugin):
    """Isolates a kind of backfill: while it fails, candidates are tried in queue order.

    Attributes that the plugin lacks are those of EASY backfill, but candidates are tried in the order of the
    plugin's `candidate_key`.
    """

    kind = "backfill"

    def __init__(self, plugin: Any, breaker: CircuitBreaker) -> None:
        super().__init__(plugin, breaker)
        self.reserves: Reserves = getattr(plugin, "reserves", Reserves.FIRST_JOB)
        self.starts_behind: bool = getattr(plugin, "starts_behind", True)
        self.in_queue_order: bool = getattr(plugin, "in_queue_order", False)
        self.max_delay_s: float | None = getattr(plugin, "max_delay_s", None)
        self.depth: int | None = getattr(plugin, "depth", None)

    def candidate_key(self, runtime_s: float) -> float:
        """The sort key of a candidate with this run time; the lowest is tried first."""
        return self.call(lambda: self.plugin.candidate_key(runtime_s), 0.0, _not_a_number)


ISOLATED: dict[str, type[IsolatedPlugin]] = {
    each.kind: each
    for each in (
        IsolatedBackfill,
        IsolatedFilter,
        IsolatedScorer,
        IsolatedPicker,
        IsolatedStrategy,
        IsolatedQuota,
        IsolatedMetrics,
        IsolatedHook,
    )
}


def isolated(kind: str, plugin: Any, breaker: CircuitBreaker, *, passes: bool = False) -> Any:
    """The plugin in the wrapper for its kind; a plugin of a kind without a wrapper is returned unchanged.

    With `passes` a filter that fails keeps all nodes instead of none.
    """
    if kind == "filter":
        return IsolatedFilter(plugin, breaker, passes=passes)
    if kind == "order":
        return (IsolatedDynamicOrder if isinstance(plugin, DynamicOrder) else IsolatedOrder)(plugin, breaker)
    if kind == "preemption" and isinstance(plugin, ReclaimStrategy):
        return IsolatedReclaimStrategy(plugin, breaker)
    return ISOLATED[kind](plugin, breaker) if kind in ISOLATED else plugin


def _wrong_array(model: np.ndarray[Any, Any]) -> Callable[[Any], str]:
    def wrong(answer: Any) -> str:
        if not isinstance(answer, np.ndarray) or answer.shape != model.shape:
            return f"returned {_shape(answer)} for {len(model)} nodes"
        if model.dtype == np.bool_:
            return "" if answer.dtype == np.bool_ else f"returned an array of {answer.dtype}, not bool"
        return "" if np.isfinite(answer).all() else "returned a score that is not a finite number"

    return wrong


def _shape(answer: Any) -> str:
    return f"an array of {answer.shape}" if isinstance(answer, np.ndarray) else f"a {type(answer).__name__}"


def _not_a_number(answer: Any) -> str:
    if isinstance(answer, int | float) and answer == answer:
        return ""
    return f"returned {answer!r}, which is not a number"


def _no_quota(answer: Any) -> str:
    return "" if answer is None or isinstance(answer, Quota) else f"returned {answer!r}, which is not a Quota"


def _no_reach(answer: Any) -> str:
    return "" if answer is None else _not_a_number(answer)


def _no_samples(samples: list[Any]) -> str:
    return next(filter(None, map(sample_problem, samples)), "")


def _not_numbers(rank: Any) -> str:
    if not isinstance(rank, tuple) or not all(
        isinstance(each, int | float) and each == each for each in rank
    ):
        return f"returned the rank {rank!r}, which is not a tuple of numbers"
    return ""
