"""Simulates a job log under one or several policies, from the first submit to the end of the last job."""

from __future__ import annotations

import difflib
import enum
import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from controller.config import Config, Plugin, load, nearest
from controller.core.accounting.cluster_accounting import ClusterAccounting
from controller.core.accounting.reports import PROJECT, USER, fairness, waste
from controller.core.engine import Engine
from controller.core.framework.profiles import DEFAULT_PROFILE
from controller.core.pipeline.pipeline import Pipeline
from controller.core.queue.order import service_order
from controller.core.state.state import State
from controller.registry import build_pipeline
from controller.sim.cluster import CapacityChange, Cluster
from controller.sim.errors import SimulationRefused
from controller.sim.job_results import SimulatedJob, SimulatedJobs
from controller.sim.logs.sc15_order import Sc15Simulation
from controller.sim.metrics import Figures, figures_of
from controller.sim.parallel import run_in_processes
from controller.sim.simulation import Simulation
from controller.sim.story.story import StoryOutcome, StoryRun, StoryStep
from controller.sim.trace_job import TraceJob
from wire.agent.reports import NodeFacts
from wire.api.service.reports import FairnessReport, WasteReport

Progress = Callable[[int], None]
"""A function that is called from time to time with the number of ended jobs."""
_OFTEN = 500
_ALL = 1_000_000
SHORTEST_STEP_S, LONGEST_STEP_S, STEPS = 1.0, 1_800.0, 500
"""The causes of idle GPUs are sampled at about STEPS times between the first and the last submit. The time
between two samples is at least SHORTEST_STEP_S and at most LONGEST_STEP_S seconds.
"""
PREDICTED = "+predicted"
"""Suffix of the name of a policy in which backfill uses predicted run times instead of time limits."""
_ORDERS = {"sjf": "shortest"}
_POLICIES = {
    "fcfs": ("fifo", "none"),
    "sjf": ("shortest", "none"),
    "easy": ("fifo", "easy"),
    "easy-sjbf": ("fifo", "easy-sjbf"),
    "conservative": ("fifo", "conservative"),
    "aggressive": ("fifo", "aggressive"),
    "greedy": ("fifo", "greedy"),
    "attained-service": ("attained-service", "none"),
    "expected-remaining": ("expected-remaining", "none"),
}
_ORDERS_OF_LITERATURE = {order for order, _ in _POLICIES.values()}


class SameSecond(enum.StrEnum):
    """The order of events with the same time."""

    HOUSE = "house"
    """Jobs end, then jobs arrive, then one scheduling cycle follows."""
    SC15 = "sc15"
    """Jobs arrive, then jobs end. A scheduling cycle follows every event."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A scheduling policy: a configuration, and its name in the results."""

    name: str
    config: Config


def policy_of(name: str, config: Config) -> Policy:
    """Return the policy with this name: the name of a built-in policy, or the path of a scheduler.toml. The
    suffix PREDICTED may follow. Raise SimulationRefused for an unknown name.

    A built-in policy changes only some settings; `config` has the other settings.
    """
    if name.endswith(PREDICTED):
        return with_estimate(policy_of(name.removesuffix(PREDICTED), config), "predicted")
    if name in _POLICIES:
        return Policy(name, with_order_and_backfill(config, *_POLICIES[name]))
    if name.endswith(".toml") or Path(name).is_file():
        return Policy(Path(name).stem, load(Path(name)))
    close = difflib.get_close_matches(name, _POLICIES, n=1)
    meant = f"Did you mean {close[0]!r}? " if close else ""
    known = f"{meant}Name one of {', '.join(_POLICIES)}, or a scheduler.toml."
    raise SimulationRefused(f"there is no policy {name!r}", known)


def with_order_and_backfill(config: Config, order: str, backfill: str) -> Config:
    """Return the configuration with another queue order or kind of backfill. An empty string leaves a setting
    unchanged.
    """
    changes: dict[str, Any] = {}
    if order:
        name = _ORDERS.get(order, order)
        changes["order"] = Plugin(name=name)
        if name in _ORDERS_OF_LITERATURE:
            # Do not let a gang that has waited for long overtake earlier jobs, because the policies in the
            # literature have no such rule.
            changes["gang_after_s"] = 0.0
    if backfill:
        # Let backfill consider all waiting jobs, as EASY and conservative backfill do in the literature.
        changes |= {"backfill": backfill, "backfill_depth": _ALL}
    if changes:
        # Remove the scheduler profiles, because the order and backfill must apply to all jobs.
        config = config.of_profile(DEFAULT_PROFILE)
    return config.model_copy(update={"scheduler": config.scheduler.model_copy(update=changes)})


def with_estimate(policy: Policy, estimate: str) -> Policy:
    """Return a policy whose backfill plans with time limits ("limit") or predicted run times
    ("predicted")."""
    config = policy.config
    if not estimate or estimate == config.backfill.estimate:
        return policy
    changed = config.backfill.model_copy(update={"estimate": estimate})
    name = policy.name + PREDICTED if estimate == "predicted" else policy.name.removesuffix(PREDICTED)
    return Policy(name, config.model_copy(update={"backfill": changed}))


def with_depth(policy: Policy, depth: int) -> Policy:
    """Return a policy in which conservative backfill makes reservations for at most `depth` waiting jobs."""
    config = policy.config
    scheduler = config.scheduler.model_copy(update={"backfill_depth": depth})
    profiles = {
        name: each.model_copy(update={"backfill_depth": depth}) for name, each in config.profiles.items()
    }
    return Policy(policy.name, config.model_copy(update={"scheduler": scheduler, "profiles": profiles}))


def with_slices(policy: Policy, slice_s: float) -> Policy:
    """Return a policy in which a running job that can save its state may give way to a waiting job after
    `slice_s` seconds. Return the policy unchanged if its queue order cannot compare running jobs with waiting
    jobs.
    """
    if service_order(build_pipeline(policy.config).order) is None:
        return policy
    scheduler = policy.config.scheduler.model_copy(update={"slice_s": slice_s})
    return Policy(policy.name, policy.config.model_copy(update={"scheduler": scheduler}))


def profile_of(config: Config, name: str) -> Config:
    """Return a configuration that applies the policy of one scheduler profile to all jobs on all nodes."""
    if name != DEFAULT_PROFILE and name not in config.profiles:
        known = nearest(name, [*config.profiles, DEFAULT_PROFILE])
        raise SimulationRefused(f"there is no profile {name!r}", known)
    return config.of_profile(name)


def name_of(config: Config) -> str:
    """Return the name of the built-in policy, such as `easy-sjbf`, that has the same effect as this
    configuration if all jobs have the same priority, and no gang waits longer than `gang_after_s`.

    If no built-in policy has the same effect, return the names of the order and of the kind of backfill, such
    as `fair+easy`. Return `profiles` if there are scheduler profiles.
    """
    if config.profiles:
        return "profiles"
    order, backfill = config.scheduler.order.name, config.scheduler.backfill
    plain = "fifo" if order == "priority" else order
    found = [name for name, both in _POLICIES.items() if both == (plain, backfill)]
    return found[0] if found else f"{order}+{backfill}"


@dataclass(frozen=True, slots=True)
class RunTask:
    """All settings of one simulation run. The object is pickled and sent to another process."""

    policy: Policy
    cluster: Cluster
    work: list[TraceJob]
    clairvoyant: bool = False
    same_second: SameSecond = SameSecond.HOUSE
    story: tuple[StoryStep, ...] = ()
    """The commands that a simulated operator gives while the jobs run."""
    keep_records: bool = False
    """True if the result must contain a SimulatedJob for each job. These objects take several times the
    memory of `RunResult.rows`.
    """
    count_gpu_hours: bool = False
    """True if the result must contain the reports on fairness and idle GPU-hours. Counting GPU-hours costs
    CPU time at each input of the engine.
    """


@dataclass(frozen=True, slots=True)
class JobTimes:
    """The submit, start and end of one job in seconds, with its number in the log."""

    job: int
    submit: float
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """The settings of a run, and its figures, such as the mean wait. `cpu_s` is the CPU time that the
    simulation itself took."""

    policy: str
    order: str
    backfill: str
    estimate: str
    clairvoyant: bool
    same_second: str
    cluster: str
    figures: Figures
    rows: list[JobTimes]
    refused: dict[str, int]
    """Number of jobs whose submit the engine refused, by error message."""
    cpu_s: float
    records: list[SimulatedJob]
    """The SimulatedJob of every job; empty if `keep_records` of the task is False."""
    accounted: AccountedReports | None = None
    """The reports on fairness and idle GPU-hours; None if `count_gpu_hours` of the task is False, or if the
    cluster has no GPUs.
    """
    never_started: int = 0
    """Number of jobs that ended without a start, such as cancelled jobs."""
    story: tuple[StoryOutcome, ...] = ()
    """The outcome of each line of the story (the commands of a simulated operator)."""
    capacity_changes: tuple[CapacityChange, ...] = ()
    """The changes of the capacity by nodes that the story added or removed, each with its time."""
    added_nodes: Mapping[str, NodeFacts] = field(default_factory=dict)
    """The nodes that the story added."""

    def every_node(self, cluster: Cluster) -> Cluster:
        """Return the cluster including the nodes that the story added."""
        return replace(cluster, nodes={**cluster.nodes, **self.added_nodes})


@dataclass(frozen=True, slots=True)
class AccountedReports:
    """The reports of `corral report fairness` and `corral report waste` on a whole run."""

    projects: FairnessReport
    users: FairnessReport
    waste: WasteReport


def run(task: RunTask, progress: Progress | None = None) -> RunResult:
    """Simulate the job log of the task under its policy, and compute the results, such as the mean wait and
    the utilisation."""
    before = time.process_time()
    with _few_collections():
        simulation, records, story = simulate(task, progress)
    taken = time.process_time() - before
    ran, section = records.ran(), task.policy.config.scheduler
    several = len(task.policy.config.profiles) > 0
    return RunResult(
        task.policy.name,
        "by profile" if several else section.order.name,
        "by profile" if several else section.backfill,
        task.policy.config.backfill.estimate,
        task.clairvoyant,
        task.same_second.value,
        str(task.cluster),
        figures_of(ran, task.cluster, story.capacity),
        [_row(record) for record in ran],
        _refused(simulation),
        taken,
        [*records.by_job.values()] if task.keep_records else [],
        _accounted(simulation),
        sum(each.start_s is None and each.end_s is not None for each in records.by_job.values()),
        tuple(story.outcomes),
        tuple(story.capacity),
        story.added,
    )


def _accounted(simulation: Simulation) -> AccountedReports | None:
    accounting, engine = simulation.accounting, simulation.engine
    if accounting is None:
        return None
    now = accounting.last_input_at
    accounting.close_until(engine, now)
    periods = accounting.periods
    return AccountedReports(
        fairness(periods, engine.state, PROJECT, 0.0, now),
        fairness(periods, engine.state, USER, 0.0, now),
        waste(periods, 0.0, now),
    )


def _refused(simulation: Simulation) -> dict[str, int]:
    found: Counter[str] = Counter()
    for work, refusal in simulation.refused:
        found[refusal.message] += work.count
    return found


@contextmanager
def _few_collections() -> Iterator[None]:
    """Let Python's garbage collector run less often inside the `with` block. A simulation makes many objects
    but few reference cycles, so frequent collections would only take time.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _row(job: SimulatedJob) -> JobTimes:
    assert job.start_s is not None
    assert job.end_s is not None
    return JobTimes(job.number, job.submit_s, job.start_s, job.end_s)


def simulate(task: RunTask, progress: Progress | None = None) -> tuple[Simulation, SimulatedJobs, StoryRun]:
    """Simulate the job log of the task to the end. Return the simulation, the results of all jobs of the log,
    and the story with the outcomes of its commands.
    """
    pipeline = build_pipeline(task.policy.config)
    records = SimulatedJobs()
    simulation = _simulation(task, pipeline, records)
    for name, facts in task.cluster.nodes.items():
        simulation.add_node(name, facts)
    simulation.add_work(map(with_exact_estimate, task.work) if task.clairvoyant else task.work)
    story = StoryRun(simulation, task.story)
    for moment, _ in enumerate(iter(simulation.step, False)):
        if progress is not None and not moment % _OFTEN:
            # Read the state again, because a story may have replaced it since the last step.
            state = simulation.engine.state
            progress(state.next_job - 1 - len(state.jobs))
    # Leave out replicas of services, because they are not in the log and never end.
    records.by_job = {job: each for job, each in records.by_job.items() if job in simulation.trace_jobs}
    for number, record in records.by_job.items():
        record.number = simulation.trace_jobs[number].number
        # Add the start overhead that was spent again, because the events contain only the work that was not
        # saved.
        record.lost_gpu_s += record.gpus * simulation.repeated_overhead_s.get(number, 0.0)
    return simulation, records, story


def _simulation(task: RunTask, pipeline: Pipeline, records: SimulatedJobs) -> Simulation:
    kind = Sc15Simulation if task.same_second is SameSecond.SC15 else Simulation
    accounting = None
    if task.count_gpu_hours and task.cluster.gpus:
        submits = [work.submit_s for work in task.work] or [0.0]
        step_s = max(SHORTEST_STEP_S, min(LONGEST_STEP_S, (max(submits) - min(submits)) / STEPS))
        accounting = ClusterAccounting(step_s, kept_days=_ALL, starts_at=min(submits))
    # Keep ended jobs in the engine only if jobs depend on them. The results of all jobs are in SimulatedJobs.
    keep_ended = _ALL if any(job.spec.after for job in task.work) else 0
    engine = Engine(pipeline, State(pipeline.order, keep_ended, pipeline.sharing))
    return kind(engine, records.observe, accounting)


def with_exact_estimate(work: TraceJob) -> TraceJob:
    """Return the same job with its actual run time, including its start overhead, as its time limit. If its
    old time limit is shorter, the job keeps this limit, and runs until this limit.
    """
    limit, overhead = work.spec.time_limit_s, work.start_overhead_s
    held = overhead + work.runtime_s if limit is None else min(overhead + work.runtime_s, limit)
    runtime = max(0.0, held - overhead)
    return replace(work, runtime_s=runtime, spec=replace(work.spec, time_limit_s=held or 1.0))


def run_policies(
    tasks: Sequence[RunTask], progress: Progress | None = None, cores: int | None = None
) -> list[RunResult]:
    """Simulate several policies, each in its own process. The results are in the order of the tasks.

    `progress` is called with the number of ended jobs, added up over all runs. Raise RunFailed if a run
    fails.
    """
    return run_in_processes(run, {task.policy.name: task for task in tasks}, progress, cores)
