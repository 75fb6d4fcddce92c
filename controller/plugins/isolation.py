"""Isolates the plugins of a site, so that a plugin that raises an exception or returns an invalid value
cannot stop the scheduler.

1. A failure is recorded with its reason, and the plugin is not called again in the same scheduling cycle.
2. After three cycles with a failure, the plugin is not called until the controller restarts or gets another
   configuration (CircuitBreaker).
3. While the plugin is not called, its wrapper returns a fixed value: a filter rejects all nodes (with
   `on_error = "pass"` it keeps all nodes), a scorer gives all nodes the same score, an order ranks the job
   last, and a preemption strategy stops no job.
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
    """A wrapper that calls a plugin. While the plugin fails, the wrapper returns a fixed value in place of
    the plugin's result.
    """

    kind = ""

    def __init__(self, plugin: Any, breaker: CircuitBreaker) -> None:
        self.plugin = plugin
        self.name: str = plugin.name
        self._breaker = breaker

    @property
    def failure(self) -> str:
        """The text of the plugin's last failure, while the plugin is not called because of it; empty for a
        plugin that is called.
        """
        return "" if self._breaker.allows(self.kind, self.name) else self._breaker.why(self.kind, self.name)

    def call(self, question: Callable[[], T], instead: T, wrong: Callable[[T], str] = lambda _: "") -> T:
        """Call `question`, a function that calls the plugin, and return its result.

        Return `instead` if the plugin is not called at present, if it raises an exception, or if `wrong`
        returns an error text for its result. Record the exception or the error text as a failure.
        """
        if not self._breaker.allows(self.kind, self.name):
            return instead
        try:
            answer = question()
            why = wrong(answer)
        # Catch all exceptions, because the plugin is code of a site and may raise any exception.
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        if why:
            self._breaker.fail(self.kind, self.name, why[:500])
            return instead
        return answer


class IsolatedFilter(IsolatedPlugin):
    """Isolates a filter. While the filter fails, all nodes are rejected for the requests that the filter
    checks, so these jobs wait. With `on_error = "pass"` in the filter's table, all nodes are kept instead.

    `could_keep` keeps all nodes while the filter fails, so a failing filter never makes a job impossible.
    """

    kind = "filter"

    def __init__(self, plugin: Any, breaker: CircuitBreaker, *, passes: bool = False) -> None:
        super().__init__(plugin, breaker)
        self._passes = passes

    @property
    def static(self) -> bool:
        """Return True if the filter reads only labels, taints and hardware of nodes, so that its results can
        be cached.
        """
        return bool(getattr(self.plugin, "static", False))

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        """Return True for each node that the filter keeps for the request. While the filter fails, return
        False for all nodes; with `on_error = "pass"`, True for all nodes.
        """
        return self._keep(part, nodes, rows, passes=self._passes)

    def could_keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        """Return True for each node that could run the job if no other job ran there. `nodes` is a table
        without running jobs. While the filter fails, return True for all nodes.
        """
        return self._keep(part, nodes, rows, passes=True)

    def _keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows, *, passes: bool) -> Bools:
        instead = np.full(len(nodes.open[rows]), passes, dtype=np.bool_)
        return self.call(lambda: self.plugin.keep(part, nodes, rows), instead, _wrong_array(instead))

    def concerns(self, part: PerNodeRequest) -> bool:
        """Return whether the filter checks this request. While the filter fails, return True; with `on_error
        = "pass"`, False.
        """
        return bool(self.call(lambda: self.plugin.concerns(part), instead=not self._passes))

    def explain(self, part: PerNodeRequest) -> str:
        why = self._breaker.why(self.kind, self.name)
        failing = f"the filter {self.name} fails ({why})" if why else f"refused by the filter {self.name}"
        return str(self.call(lambda: self.plugin.explain(part), failing))


class IsolatedScorer(IsolatedPlugin):
    """Isolates a scorer. While the scorer fails, all nodes get the same score."""

    kind = "scorer"

    def concerns(self, part: PerNodeRequest, nodes: NodeTable) -> bool:
        asked = getattr(self.plugin, "concerns", None)
        return asked is None or bool(self.call(lambda: asked(part, nodes), instead=False))

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return the score of each node in `rows`; 0 for all nodes while the scorer fails."""
        alike = np.zeros(len(nodes.open[rows]))
        return self.call(lambda: self.plugin.score(part, nodes, rows), alike, _wrong_array(alike))


class IsolatedPicker(IsolatedPlugin):
    """Isolates a picker (it chooses the GPU for a job that requests part of a GPU). While the picker fails,
    the first suitable GPU is used.
    """

    kind = "picker"

    def pick(self, part: PerNodeRequest, nodes: NodeTable, row: int, slots: Sequence[int]) -> int:
        def wrong(picked: int) -> str:
            return "" if picked in slots else f"returned slot {picked!r}, which is not one of {list(slots)}"

        return self.call(lambda: self.plugin.pick(part, nodes, row, slots), slots[0], wrong)


class IsolatedOrder(IsolatedPlugin):
    """Isolates a queue order: while the order fails, jobs are ranked last."""

    kind = "order"

    def rank(self, job: Job) -> tuple[float, ...]:
        return self.call(lambda: self.plugin.rank(job), (NEVER,), _not_numbers)


class IsolatedDynamicOrder(IsolatedOrder):
    """Isolates a queue order whose sort keys change while jobs wait, such as `fair`."""

    def group(self, job: Job, tenant: SharePath) -> LaneGroup:
        return self.call(lambda: self.plugin.group(job, tenant), tenant)

    def place(self, job: Job, view: OrderView) -> tuple[float, ...]:
        return self.call(lambda: self.plugin.place(job, view), (NEVER,), _not_numbers)

    def receipt(self, job: Job, view: OrderView) -> tuple[Points, ...]:
        """Return the priority points of the job by factor; empty if the plugin has no method `receipt`."""
        asked = getattr(self.plugin, "receipt", None)
        return () if asked is None else self.call(lambda: asked(job, view), ())


class IsolatedStrategy(IsolatedPlugin):
    """Isolates a preemption strategy. While the strategy fails, no job is stopped by the strategy."""

    kind = "preemption"

    def standing(self, job: Job) -> float:
        """Return the rank by which the strategy protects a running job. The job may be stopped only for a
        waiting job whose `reach` is at least this rank. While the strategy fails, return NEVER (infinity), so
        that no job is stopped.
        """
        return self.call(lambda: self.plugin.standing(job), NEVER, _not_a_number)

    def reach(self, job: Job) -> float | None:
        none: float | None = None
        found: float | None = self.call(lambda: self.plugin.reach(job), none, _no_reach)
        return found


class IsolatedReclaimStrategy(IsolatedStrategy):
    """Isolates a reclaim strategy, which stops jobs of tenants that use more than their fair share or quota.

    Only the strategy itself is isolated. The wrapper does not catch exceptions in the reclaim policy that the
    strategy returns.
    """

    def group(self, job: Job, state: State) -> Hashable:
        found: Hashable = self.call(lambda: self.plugin.group(job, state), job.id)
        return found

    def reclaim_policy(self, job: Job, context: ReclaimContext) -> ReclaimPolicy | None:
        none: ReclaimPolicy | None = None
        found: ReclaimPolicy | None = self.call(lambda: self.plugin.reclaim_policy(job, context), none)
        return found


class IsolatedQuota(IsolatedPlugin):
    """Isolates a quota provider. While the provider fails, there are no limits from the provider."""

    kind = "quota"

    def quota(self, scope: str, name: str) -> Quota | None:
        none: Quota | None = None
        return self.call(lambda: self.plugin.quota(scope, name), none, _no_quota)

    def names(self, scope: str) -> Iterator[str]:
        none: list[str] = []
        return iter(self.call(lambda: list(self.plugin.names(scope)), none))


class IsolatedMetrics(IsolatedPlugin):
    """Isolates a metrics plugin: while the plugin fails, its metrics are missing on the page /metrics."""

    kind = "metrics"

    def collect(self, state: State, now: float) -> Iterable[Sample]:
        """Return the plugin's metric samples. Return none if the plugin fails or one of its samples is
        invalid.
        """
        nothing: list[Sample] = []
        return self.call(lambda: list(self.plugin.collect(state, now)), nothing, _no_samples)


class IsolatedHook(IsolatedPlugin):
    """Isolates a hook: after a failure, the hook is not called again in the same scheduling cycle."""

    kind = "hook"

    def on_placed(self, placed: Placed) -> None:
        self.call(lambda: self.plugin.on_placed(placed), None)


class IsolatedBackfill(IsolatedPlugin):
    """Isolates a kind of backfill. While the plugin fails, backfill candidates are tried in queue order.

    For an attribute that the plugin lacks, the wrapper uses the value of EASY backfill. One exception:
    without the attribute `in_queue_order`, candidates are tried in the order of `candidate_key`.
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
    """Return a wrapper around the plugin. A plugin of a kind without a wrapper is returned without one.

    If `passes` is True, a filter keeps all nodes while it fails. If `passes` is False, it rejects all nodes.
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
