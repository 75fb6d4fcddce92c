"""Ways to choose nodes and GPUs by name: the product's own, any installed scorer's, and two yardsticks."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import ClassVar

import numpy as np

from controller.config import Config, Plugin, WeightedPlugin, load
from controller.core.columns import Columns, Floats, Rows
from controller.core.plugin import Backfill, Picker, Pipeline, Scorer, Weighted
from controller.core.requests import Part
from controller.plugins.pickers.tightest import Tightest
from controller.registry import build_pipeline, installed
from controller.sim.refusal import SimulationRefused
from wire.words import WHOLE_GPU

_ALIASES = {"least-loaded": "load"}


@dataclass(frozen=True, slots=True)
class Strategy:
    """A strategy under the name it has in the results; `make` gives its pipeline for a run's dice."""

    name: str
    make: Callable[[Random], Pipeline]
    steady: bool = True
    """The same question has the same answer as long as a node has not changed."""


@dataclass(frozen=True, slots=True)
class BestFit:
    """Best fit as in the FGD paper's experiments: what is left over, on one scale for all nodes."""

    name: ClassVar[str] = "best-fit"

    cpu_milli: int = 128_000
    gpu_milli: int = 8_000

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """Whole percents, as there, so that many nodes are equal and the first name wins."""
        cpu = nodes.cpu_free[rows] - part.cpu_milli
        gpu = np.maximum(nodes.gpu_free[rows], 0).sum(axis=1) - part.gpus * WHOLE_GPU - part.share
        percent: Floats = np.trunc(100 * (1 - (0.5 * cpu / self.cpu_milli + 0.5 * gpu / self.gpu_milli)))
        return percent / 100


@dataclass(frozen=True, slots=True)
class Chance:
    """Any node that fits, and on it any GPU that fits, all equally likely."""

    name: ClassVar[str] = "random"

    dice: Random

    def score(self, part: Part, nodes: Columns, rows: Rows) -> Floats:
        """The highest of so many throws: each node's is as likely to be it."""
        throw = self.dice.random
        return np.array([throw() for _ in nodes.cpu_free[rows]], dtype=np.float64)

    def pick(self, part: Part, nodes: Columns, row: int, slots: Sequence[int]) -> int:
        """One of the slots."""
        return self.dice.choice(slots)


def strategy_of(name: str) -> Strategy:
    """The strategy of that name, or of that scheduler.toml; whatever is wrong with it is said here."""
    return _tried(_strategy(name))


def strategy_in(config: Path) -> Strategy:
    """The strategy of a scheduler.toml, whatever the file is called."""
    return _tried(Strategy(str(config), partial(_configured, load(config))))


def _tried(strategy: Strategy) -> Strategy:
    strategy.make(Random(0))  # noqa: S311 - thrown away: only to see that it can be made
    return strategy


def _strategy(name: str) -> Strategy:
    if name == "default":
        return Strategy(name, partial(_configured, load(None)))
    if name == BestFit.name:
        return Strategy(name, partial(_scored, BestFit(), Tightest()))
    if name == Chance.name:
        return Strategy(name, _at_random, steady=False)
    if name.endswith(".toml"):
        return strategy_in(Path(name))
    scorer = _ALIASES.get(name, name)
    if scorer in installed("scorer"):
        return Strategy(name, partial(_configured, _scoring(scorer)))
    known = ["default", BestFit.name, Chance.name, *_ALIASES, *sorted(installed("scorer"))]
    close = difflib.get_close_matches(name, known, n=1)
    meant = f"Did you mean {close[0]!r}? " if close else ""
    raise SimulationRefused(
        f"there is no strategy {name!r}", f"{meant}Name one of {', '.join(known)}, or a scheduler.toml."
    )


def _scoring(scorer: str) -> Config:
    """One scorer alone; GPUs for shares by the picker of the same name, if there is one."""
    picker = scorer if scorer in installed("picker") else Tightest.name
    changes = {"scorers": {scorer: WeightedPlugin(weight=1)}, "picker": Plugin(name=picker)}
    config = load(None)
    return config.model_copy(update={"scheduler": config.scheduler.model_copy(update=changes)})


def _configured(config: Config, _dice: Random) -> Pipeline:
    # One job at a time: there is nobody to pass.
    return replace(build_pipeline(config), backfill=Backfill.NONE)


def _scored(scorer: Scorer, picker: Picker, dice: Random) -> Pipeline:
    return replace(_configured(load(None), dice), scorers=(Weighted(scorer, 1.0),), picker=picker)


def _at_random(dice: Random) -> Pipeline:
    return _scored(Chance(dice), Chance(dice), dice)
