"""Placement strategies by name: the default, each installed scorer, best fit and random."""

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
from controller.core.cluster.node_table import Floats, NodeTable, Rows
from controller.core.framework.interfaces import Picker, Scorer, WeightedScorer
from controller.core.model.request import PerNodeRequest
from controller.core.pipeline.pipeline import Pipeline
from controller.plugins.backfill.kinds import NoBackfill
from controller.plugins.pickers.share_pickers import TightestPicker
from controller.registry import build_pipeline, installed_plugins
from controller.sim.errors import SimulationRefused
from wire.names import WHOLE_GPU

_ALIASES = {"least-loaded": "load"}


@dataclass(frozen=True, slots=True)
class PlacementStrategy:
    """A placement strategy. `name` is its name in the results. `make` returns the pipeline (plugins and
    settings) of an engine; its argument is the random generator that the strategy may use.
    """

    name: str
    make: Callable[[Random], Pipeline]
    steady: bool = True
    """True if the score of a node is the same until the node changes."""


@dataclass(frozen=True, slots=True)
class BestFit:
    """The scorer "best fit" of the FGD paper: it prefers nodes with few free resources after the placement.
    Free CPUs are divided by `cpu_milli` and free GPUs by `gpu_milli`; these divisors are the same for all
    nodes.
    """

    name: ClassVar[str] = "best-fit"

    cpu_milli: int = 128_000
    gpu_milli: int = 8_000

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return scores in whole percent, as in the paper. Because of the rounding, many nodes have equal
        scores; the first of them by name is chosen.
        """
        cpu = nodes.cpu_free[rows] - part.cpu_milli
        gpu = np.maximum(nodes.gpu_free[rows], 0).sum(axis=1) - part.gpus * WHOLE_GPU - part.share
        percent: Floats = np.trunc(100 * (1 - (0.5 * cpu / self.cpu_milli + 0.5 * gpu / self.gpu_milli)))
        return percent / 100


@dataclass(frozen=True, slots=True)
class Chance:
    """Chooses a random node among those that can hold the pod, and a random GPU among the suitable GPUs of
    this node, all with equal probability.
    """

    name: ClassVar[str] = "random"

    dice: Random

    def score(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Floats:
        """Return a random score for each node, so that each node is equally likely to have the highest."""
        throw = self.dice.random
        return np.array([throw() for _ in nodes.cpu_free[rows]], dtype=np.float64)

    def pick(self, part: PerNodeRequest, nodes: NodeTable, row: int, slots: Sequence[int]) -> int:
        return self.dice.choice(slots)


def strategy_of(name: str) -> PlacementStrategy:
    """Return the strategy with this name, or the strategy of the scheduler.toml with this path. Raise
    SimulationRefused for an unknown name, and ConfigRefused for an invalid file.
    """
    return _tried(_strategy(name))


def strategy_in(config: Path) -> PlacementStrategy:
    """Return the strategy that a scheduler.toml sets. The file may have any name."""
    return _tried(PlacementStrategy(str(config), partial(_configured, load(config))))


def _tried(strategy: PlacementStrategy) -> PlacementStrategy:
    strategy.make(Random(0))
    return strategy


def _strategy(name: str) -> PlacementStrategy:
    if name == "default":
        return PlacementStrategy(name, partial(_configured, load(None)))
    if name == BestFit.name:
        return PlacementStrategy(name, partial(_scored, BestFit(), TightestPicker()))
    if name == Chance.name:
        return PlacementStrategy(name, _at_random, steady=False)
    if name.endswith(".toml"):
        return strategy_in(Path(name))
    scorer = _ALIASES.get(name, name)
    if scorer in installed_plugins("scorer"):
        return PlacementStrategy(name, partial(_configured, _scoring(scorer)))
    known = ["default", BestFit.name, Chance.name, *_ALIASES, *sorted(installed_plugins("scorer"))]
    close = difflib.get_close_matches(name, known, n=1)
    meant = f"Did you mean {close[0]!r}? " if close else ""
    raise SimulationRefused(
        f"there is no strategy {name!r}", f"{meant}Name one of {', '.join(known)}, or a scheduler.toml."
    )


def _scoring(scorer: str) -> Config:
    """Return a configuration with a single scorer. If a picker with the same name exists, it chooses the GPUs
    for parts of GPUs.
    """
    picker = scorer if scorer in installed_plugins("picker") else TightestPicker.name
    changes = {"scorers": {scorer: WeightedPlugin(weight=1)}, "picker": Plugin(name=picker)}
    config = load(None)
    return config.model_copy(update={"scheduler": config.scheduler.model_copy(update=changes)})


def _configured(config: Config, _dice: Random) -> Pipeline:
    # Backfill is not needed, because only one job waits at a time.
    return replace(build_pipeline(config), backfill=NoBackfill())


def _scored(scorer: Scorer, picker: Picker, dice: Random) -> Pipeline:
    return replace(_configured(load(None), dice), scorers=(WeightedScorer(scorer, 1.0),), picker=picker)


def _at_random(dice: Random) -> Pipeline:
    return _scored(Chance(dice), Chance(dice), dice)
