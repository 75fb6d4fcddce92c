"""One run of a log under one policy, from the first submit to the last end."""

from __future__ import annotations

import difflib
import enum
import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from controller.config import Config, Plugin, load, nearest
from controller.core.engine import Engine
from controller.core.plugin import Pipeline
from controller.core.profiles import DEFAULT_PROFILE
from controller.core.state import State
from controller.registry import build_pipeline
from controller.sim.cluster import Cluster
from controller.sim.metrics import Figures, figures_of
from controller.sim.refusal import SimulationRefused
from controller.sim.results import Life, Lives
from controller.sim.sc15 import OneByOne
from controller.sim.simulation import Simulation
from controller.sim.workload import Work

Progress = Callable[[int], None]
"""Told from time to time how many jobs have ended."""
_OFTEN = 500
_ALL = 1_000_000
PREDICTED = "+predicted"
"""Behind a policy's name: its plans count on predictions, not on limits."""
_ORDERS = {"sjf": "shortest"}
_POLICIES = {
    "fcfs": ("fifo", "none"),
    "sjf": ("shortest", "none"),
    "easy": ("fifo", "easy"),
    "easy-sjbf": ("fifo", "easy-sjbf"),
    "conservative": ("fifo", "conservative"),
    "aggressive": ("fifo", "aggressive"),
    "greedy": ("fifo", "greedy"),
}


class SameSecond(enum.StrEnum):
    """What happens within one second."""

    HOUSE = "house"
    """Jobs end, jobs arrive, then one cycle."""
    SC15 = "sc15"
    """Jobs arrive, jobs end, and every event has a cycle of its own."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How jobs are scheduled, under the name it has in the results."""

    name: str
    config: Config


def policy_of(name: str, config: Config) -> Policy:
    """A policy by its name or its file; what a name leaves open is as in `config`."""
    if name.endswith(PREDICTED):
        return planned_by(policy_of(name.removesuffix(PREDICTED), config), "predicted")
    if name in _POLICIES:
        return Policy(name, varied(config, *_POLICIES[name]))
    if name.endswith(".toml") or Path(name).is_file():
        return Policy(Path(name).stem, load(Path(name)))
    close = difflib.get_close_matches(name, _POLICIES, n=1)
    meant = f"Did you mean {close[0]!r}? " if close else ""
    known = f"{meant}Name one of {', '.join(_POLICIES)}, or a scheduler.toml."
    raise SimulationRefused(f"there is no policy {name!r}", known)


def varied(config: Config, order: str, backfill: str) -> Config:
    """The configuration with another order or backfill; nothing changes where they are empty."""
    changes: dict[str, Any] = {}
    if order:
        changes["order"] = Plugin(name=_ORDERS.get(order, order))
    if backfill:
        # Who names a policy means that of the textbooks, in which every waiting job counts.
        changes |= {"backfill": backfill, "backfill_depth": _ALL}
    if changes:
        config = config.of_profile(DEFAULT_PROFILE)  # it is for everybody
    return config.model_copy(update={"scheduler": config.scheduler.model_copy(update=changes)})


def planned_by(policy: Policy, estimate: str) -> Policy:
    """The same policy with plans that count on limits or on predictions."""
    config = policy.config
    if not estimate or estimate == config.backfill.estimate:
        return policy
    changed = config.backfill.model_copy(update={"estimate": estimate})
    name = policy.name + PREDICTED if estimate == "predicted" else policy.name.removesuffix(PREDICTED)
    return Policy(name, config.model_copy(update={"backfill": changed}))


def profile_of(config: Config, name: str) -> Config:
    """The configuration with one profile's policy for everybody, on all nodes."""
    if name != DEFAULT_PROFILE and name not in config.profiles:
        known = nearest(name, [*config.profiles, DEFAULT_PROFILE])
        raise SimulationRefused(f"there is no profile {name!r}", known)
    return config.of_profile(name)


def name_of(config: Config) -> str:
    """The policy that a configuration amounts to for jobs of one priority, else its order and backfill."""
    if config.profiles:
        return "profiles"
    order, backfill = config.scheduler.order.name, config.scheduler.backfill
    plain = "fifo" if order == "priority" else order
    found = [name for name, both in _POLICIES.items() if both == (plain, backfill)]
    return found[0] if found else f"{order}+{backfill}"


@dataclass(frozen=True, slots=True)
class Task:
    """Everything a run depends on; small enough to hand to another process."""

    policy: Policy
    cluster: Cluster
    work: list[Work]
    clairvoyant: bool = False
    same_second: SameSecond = SameSecond.HOUSE
    keep_lives: bool = False
    """Whether the outcome has every job's life: several times as much as its rows."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job by the number the log gave it."""

    job: int
    submit: float
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run, and what it was; `cpu_s` is what the simulation itself took."""

    policy: str
    order: str
    backfill: str
    estimate: str
    clairvoyant: bool
    same_second: str
    cluster: str
    figures: Figures
    rows: list[JobRow]
    refused: dict[str, int]
    """Jobs that the engine did not accept, by what it said."""
    cpu_s: float
    lives: list[Life]
    """Of all jobs, if the task said to keep them."""


def run(task: Task, progress: Progress | None = None) -> Outcome:
    """Run it."""
    before = time.process_time()
    with _few_collections():
        simulation, lives = simulate(task, progress)
    taken = time.process_time() - before
    ran, section = lives.ran(), task.policy.config.scheduler
    several = len(task.policy.config.profiles) > 0
    return Outcome(
        task.policy.name,
        "by profile" if several else section.order.name,
        "by profile" if several else section.backfill,
        task.policy.config.backfill.estimate,
        task.clairvoyant,
        task.same_second.value,
        str(task.cluster),
        figures_of(ran, task.cluster),
        [_row(life) for life in ran],
        Counter(refusal.message for _, refusal in simulation.refused),
        taken,
        [*lives.by_job.values()] if task.keep_lives else [],
    )


@contextmanager
def _few_collections() -> Iterator[None]:
    """What a simulation makes either stays or goes by itself: looking for cycles in it finds next to none."""
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _row(life: Life) -> JobRow:
    assert life.start_s is not None
    assert life.end_s is not None
    return JobRow(life.number, life.submit_s, life.start_s, life.end_s)


def simulate(task: Task, progress: Progress | None = None) -> tuple[Simulation, Lives]:
    """The simulation after its last event, and every job's life."""
    pipeline = build_pipeline(task.policy.config)
    lives = Lives()
    simulation = _simulation(task.same_second, pipeline, lives)
    for name, facts in task.cluster.nodes.items():
        simulation.add_node(name, facts)
    simulation.add_work(map(foreseen, task.work) if task.clairvoyant else task.work)
    state = simulation.engine.state
    for moment, _ in enumerate(iter(simulation.step, False)):
        if progress is not None and not moment % _OFTEN:
            progress(state.next_job - 1 - len(state.jobs))
    for job, life in lives.by_job.items():
        life.number = simulation.numbers[job].number
    return simulation, lives


def _simulation(same_second: SameSecond, pipeline: Pipeline, lives: Lives) -> Simulation:
    kind = OneByOne if same_second is SameSecond.SC15 else Simulation
    # What has ended is kept by `lives`; the engine need not remember it.
    return kind(Engine(pipeline, State(pipeline.order, 0, pipeline.sharing)), lives.witness)


def foreseen(work: Work) -> Work:
    """The same job, its estimate being what it really takes."""
    limit = work.spec.time_limit_s
    runtime = work.runtime_s if limit is None else min(work.runtime_s, limit)
    return replace(work, runtime_s=runtime, spec=replace(work.spec, time_limit_s=runtime or 1.0))
