"""Plugins of strangers at arm's length: one that fails is named, passed over for a cycle, then given up."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from controller.core.columns import Bools, Columns, Floats, Rows
from controller.core.dues import Dues, Ground, Settling
from controller.core.jobs import NEVER, Job
from controller.core.outlets import Placed, Sample, sample_problem
from controller.core.queue import Group
from controller.core.requests import Part
from controller.core.shares import Path
from controller.core.standing import Moving, View
from controller.core.watch import Watch
from wire.api.reasons import Points
from wire.quota import Quota

if TYPE_CHECKING:
    from controller.core.state import State

T = TypeVar("T")


class Guard:
    """Asks a plugin, and answers for it when it fails."""

    kind = ""

    def __init__(self, plugin: Any, watch: Watch) -> None:
        self.plugin = plugin
        self.name: str = plugin.name
        self._watch = watch

    def ask(self, question: Callable[[], T], instead: T, wrong: Callable[[T], str] = lambda _: "") -> T:
        """The plugin's answer, or this one if it fails or what it says is `wrong`."""
        if not self._watch.trusts(self.kind, self.name):
            return instead
        try:
            answer = question()
            why = wrong(answer)
        except Exception as error:  # the code of strangers: anything may come out of it
            why = f"{type(error).__name__}: {error}"
        if why:
            self._watch.fail(self.kind, self.name, why[:500])
            return instead
        return answer


class GuardedFilter(Guard):
    """A filter that fails keeps every node."""

    kind = "filter"

    @property
    def static(self) -> bool:
        """Does it look only at what nodes have by nature?"""
        return bool(getattr(self.plugin, "static", False))

    def keep(self, part: Part, nodes: Columns, rows: Rows) -> Bools:
        """True for every row that may hold the part."""
        everything = np.ones(len(nodes.open[rows]), dtype=np.bool_)
        return self.ask(lambda: self.plugin.keep(part, nodes, rows), everything, _not_like(everything))

    def concerns(self, part: Part) -> bool:
        """Has it a say about the part?"""
        return bool(self.ask(lambda: self.plugin.concerns(part), instead=False))

    def explain(self, part: Part) -> str:
        """What is wrong with a node lost here."""
        return str(self.ask(lambda: self.plugin.explain(part), f"refused by the filter {self.name}"))


class GuardedScorer(Guard):
    """A scorer that fails finds all nodes alike."""

    kind = "scorer"

    def concerns(self, part: Part, nodes: Columns) -> bool:
        """Are some nodes better than others?"""
        asked = getattr(self.plugin, "concerns", None)
        return asked is None or bool(self.ask(lambda: asked(part, nodes), instead=False))

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """One number per row."""
        alike = np.zeros(len(nodes.open[rows]))
        return self.ask(lambda: self.plugin.score(part, nodes, rows), alike, _not_like(alike))


class GuardedPicker(Guard):
    """A picker that fails takes the first."""

    kind = "picker"

    def pick(self, part: Part, nodes: Columns, row: int, slots: Sequence[int]) -> int:
        """One of the slots."""

        def wrong(picked: int) -> str:
            return "" if picked in slots else f"picked {picked!r}, which was none of {list(slots)}"

        return self.ask(lambda: self.plugin.pick(part, nodes, row, slots), slots[0], wrong)


class GuardedOrder(Guard):
    """An order that fails puts the job last."""

    kind = "order"

    def rank(self, job: Job) -> tuple[float, ...]:
        """Lower is first."""
        return self.ask(lambda: self.plugin.rank(job), (NEVER,), _no_numbers)


class GuardedMoving(GuardedOrder):
    """The same for one that moves."""

    def group(self, job: Job, tenant: Path) -> Group:
        """Jobs that keep their places among each other."""
        return self.ask(lambda: self.plugin.group(job, tenant), tenant)

    def place(self, job: Job, view: View) -> tuple[float, ...]:
        """The job's place at this moment."""
        return self.ask(lambda: self.plugin.place(job, view), (NEVER,), _no_numbers)

    def receipt(self, job: Job, view: View) -> tuple[Points, ...]:
        """What its place is made of, if it says so."""
        asked = getattr(self.plugin, "receipt", None)
        return () if asked is None else self.ask(lambda: asked(job, view), ())


class GuardedStrategy(Guard):
    """A strategy that fails has nobody ended."""

    kind = "preemption"

    def standing(self, job: Job) -> float:
        """How well a running job stands against being ended."""
        return self.ask(lambda: self.plugin.standing(job), NEVER, _no_number)

    def reach(self, job: Job) -> float | None:
        """The highest standing that a waiting job may have ended."""
        none: float | None = None
        found: float | None = self.ask(lambda: self.plugin.reach(job), none, _no_reach)
        return found


class GuardedSettling(GuardedStrategy):
    """The same for one that weighs tenants; the dues it gives are trusted."""

    def group(self, job: Job, state: State) -> Hashable:
        """Jobs of one group owe alike."""
        found: Hashable = self.ask(lambda: self.plugin.group(job, state), job.id)
        return found

    def dues(self, job: Job, ground: Ground) -> Dues | None:
        """Who owes something to this waiting job."""
        nobody: Dues | None = None
        found: Dues | None = self.ask(lambda: self.plugin.dues(job, ground), nobody)
        return found


class GuardedQuota(Guard):
    """A provider that fails limits nobody."""

    kind = "quota"

    def quota(self, scope: str, name: str) -> Quota | None:
        """What is stated for this user, project or queue."""
        none: Quota | None = None
        return self.ask(lambda: self.plugin.quota(scope, name), none, _no_quota)

    def names(self, scope: str) -> Iterator[str]:
        """All for which something is stated."""
        nobody: list[str] = []
        return iter(self.ask(lambda: list(self.plugin.names(scope)), nobody))


class GuardedMetrics(Guard):
    """One that fails gives no figures."""

    kind = "metrics"

    def collect(self, state: State, now: float) -> Iterable[Sample]:
        """The figures, if all of them are such."""
        nothing: list[Sample] = []
        return self.ask(lambda: list(self.plugin.collect(state, now)), nothing, _no_samples)


class GuardedHook(Guard):
    """One that fails is not told of the placements of this cycle any more."""

    kind = "hook"

    def on_placed(self, placed: Placed) -> None:
        """Hear of a placement."""
        self.ask(lambda: self.plugin.on_placed(placed), None)


GUARDS: dict[str, type[Guard]] = {
    each.kind: each
    for each in (
        GuardedFilter,
        GuardedScorer,
        GuardedPicker,
        GuardedStrategy,
        GuardedQuota,
        GuardedMetrics,
        GuardedHook,
    )
}


def guarded(kind: str, plugin: Any, watch: Watch) -> Any:
    """The plugin with a guard around it; kinds that are asked outside of cycles have none."""
    if kind == "order":
        return (GuardedMoving if isinstance(plugin, Moving) else GuardedOrder)(plugin, watch)
    if kind == "preemption" and isinstance(plugin, Settling):
        return GuardedSettling(plugin, watch)
    return GUARDS[kind](plugin, watch) if kind in GUARDS else plugin


def _not_like(model: np.ndarray[Any, Any]) -> Callable[[Any], str]:
    def wrong(answer: Any) -> str:
        if not isinstance(answer, np.ndarray) or answer.shape != model.shape:
            return f"answered {_shape(answer)} for {len(model)} nodes"
        if model.dtype == np.bool_:
            return "" if answer.dtype == np.bool_ else f"answered {answer.dtype}, not bool"
        return "" if np.isfinite(answer).all() else "answered something that is not a number"

    return wrong


def _shape(answer: Any) -> str:
    return f"an array of {answer.shape}" if isinstance(answer, np.ndarray) else f"a {type(answer).__name__}"


def _no_number(answer: Any) -> str:
    if isinstance(answer, int | float) and answer == answer:
        return ""
    return f"answered {answer!r}, which is no number"


def _no_quota(answer: Any) -> str:
    return "" if answer is None or isinstance(answer, Quota) else f"answered {answer!r}, which is no quota"


def _no_reach(answer: Any) -> str:
    return "" if answer is None else _no_number(answer)


def _no_samples(samples: list[Any]) -> str:
    return next(filter(None, map(sample_problem, samples)), "")


def _no_numbers(rank: Any) -> str:
    if not isinstance(rank, tuple) or not all(
        isinstance(each, int | float) and each == each for each in rank
    ):
        return f"ranked a job {rank!r}, which is no tuple of numbers"
    return ""
