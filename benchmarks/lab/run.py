"""Runs the scheduling engine on weeks of the lab in virtual time, and records what happens.

Algorithm of `run`
1. Connect the nodes of the configuration, and schedule all submits and the commands of the admin.
2. Between two steps of the simulation, take a sample for each half hour that has passed. Nothing changes
   between two steps, so the sample shows the state after the last scheduling cycle.
3. After the last day, record its end as the end of the attempts that still run, and compute the figures.

Cost: that of the engine, plus about a millisecond for each sample with idle GPUs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from benchmarks.lab import measures
from benchmarks.lab.admin import admin_story
from benchmarks.lab.history import History
from benchmarks.lab.measures import STEP_S, Record, Sample
from benchmarks.lab.workload import HOUR_S, START_S, lab_jobs
from controller.config import Config
from controller.core.accounting.idle_causes import IdleSampler
from controller.core.engine import Engine
from controller.core.model.decision.decision import Accepted
from controller.core.model.inputs import job_inputs, policy_inputs
from controller.core.model.inputs.input import Requester
from controller.core.rebalance.rebalancer import AUTO
from controller.core.state.state import State
from controller.registry import build_pipeline
from controller.sim.cluster import cluster_of_config
from controller.sim.errors import SimulationRefused
from controller.sim.simulation import REBALANCE, REQUEST, Simulation
from controller.sim.story.story import StoryRun
from controller.sim.trace_job import TraceJob
from controller.sim.virtual_agents import PlannedRun
from wire.job.spec import JobSpec
from wire.job.start_conditions import RestartWhen

_OPTIONAL = ("priority", "preemptible", "queue", "deadline_at")
"""Fields of a JobSpec. If the configuration refuses a job because of one of them, the job is submitted again
without it.
"""
_DEFAULTS = JobSpec(command=())


@dataclass(frozen=True, slots=True)
class LabTask:
    """The settings of one run. The object can be pickled, because several runs are done in other
    processes.
    """

    name: str
    """The name of the configuration."""
    config: Config
    mix: str
    load: float
    seed: int
    days: float
    admin: bool = True
    """Whether the admin drains and reserves nodes."""
    alone: str = ""
    """If not empty, the jobs of all other projects are left out, except services and jobs with deadlines."""


@dataclass(frozen=True, slots=True)
class LabResult:
    """The figures of one run. Percentages are of all GPU-hours of the cluster."""

    config: str
    mix: str
    load: float
    seed: int
    days: float
    jobs: int
    refused: dict[str, int]
    """Number of jobs that the engine refused, by message."""
    projects: list[measures.Deviation]
    worst_week: measures.Deviation | None
    users: list[measures.Deviation]
    """The deviations of users, only for projects in which several users often wait (measures.OFTEN)."""
    wasted_percent: float
    idle_hours: dict[str, float]
    gangs_never_started: int
    gangs: int
    longest_gang_wait_h: float
    longest_narrow_wait_h: float
    used_percent: float
    deadlines_met: int
    deadlines: int
    interactive_p95_minutes: float
    lost_percent: float
    cpu_s: float


class LabRun:
    def __init__(self, task: LabTask) -> None:
        self._task = task
        self._cluster = cluster_of_config(task.config)
        pipeline = build_pipeline(task.config)
        self.history = History()
        self._idle = IdleSampler()
        engine = Engine(pipeline, State(pipeline.order, 0, pipeline.sharing))
        self._simulation = Simulation(engine, self.history.observe)
        self._models = {name: facts.gpus[0].model for name, facts in self._cluster.nodes.items()}
        self._admin = admin_story(list(self._cluster.nodes), task.days) if task.admin else ()
        self._refused: Counter[str] = Counter()
        self._samples: list[Sample] = []

    def figures(self, progress: Callable[[int], None] | None = None) -> LabResult:
        """Run until the last day has ended, and return the figures. `progress` is called with the number of
        samples taken so far.
        """
        task, history = self._task, self.history
        begun = time.process_time()
        self._schedule_all()
        ends_at = START_S + task.days * 24 * HOUR_S
        self._run_until(ends_at, progress)
        history.close(ends_at)
        self._check_story()
        cpu_s = time.process_time() - begun
        for job, work in self._simulation.trace_jobs.items():
            history.jobs[job].run_s = work.runtime_s
        return self._result(
            Record(
                list(history.jobs.values()),
                self._samples,
                START_S,
                ends_at,
                self._cluster.gpus,
                self._gpus_of(),
                self._simulation.engine.pipeline.sharing.weights,
            ),
            cpu_s,
        )

    def _schedule_all(self) -> None:
        """Connect the nodes. Schedule the submits, the commands of the admin and automatic rebalancing."""
        task, simulation = self._task, self._simulation
        simulation.now = START_S
        for name, facts in self._cluster.nodes.items():
            simulation.add_node(name, facts)
        for work in lab_jobs(task.seed, task.days, task.load, task.mix, self._cluster.gpus):
            if task.alone not in ("", work.spec.project) and not _fixed(work):
                continue
            simulation.schedule(work.submit_s, REQUEST, partial(self._submit, work))
        self._story = StoryRun(simulation, self._admin)
        if simulation.engine.pipeline.rebalance.mode == "auto":
            self._rebalance(START_S)

    def _check_story(self) -> None:
        refused = next((each for each in self._story.outcomes if each.refused), None)
        if refused is not None:
            raise SimulationRefused(f"the admin's command was refused: {refused.words}: {refused.text}")

    def _rebalance(self, now: float) -> None:
        simulation = self._simulation
        if now > START_S:
            simulation.tell(policy_inputs.Rebalance(AUTO))
        interval_s = simulation.engine.pipeline.rebalance.interval_s
        simulation.schedule(now + interval_s, REBALANCE, self._rebalance)

    def _submit(self, work: TraceJob, now: float) -> None:
        """Submit a job as its user, and not as an operator, so that the configured limits on priorities and
        the members of projects apply.

        If the job is refused because of an optional field (see _OPTIONAL), submit the job without the field,
        as a user would.
        """
        simulation = self._simulation
        reply = simulation.tell(job_inputs.Submit(work.spec, work.user, asker=Requester(work.user))).reply
        if isinstance(reply, Accepted):
            for job in reply.jobs:
                simulation.trace_jobs[job] = work
                simulation.planned_runs[job] = PlannedRun(work.runtime_s, work.code)
        elif reply.where in _OPTIONAL and getattr(work.spec, reply.where) != getattr(_DEFAULTS, reply.where):
            plain: dict[str, Any] = {reply.where: getattr(_DEFAULTS, reply.where)}
            self._submit(replace(work, spec=replace(work.spec, **plain)), now)
        else:
            self._refused[reply.message] += 1

    def _run_until(self, ends_at: float, progress: Callable[[int], None] | None) -> None:
        simulation, sample_at = self._simulation, START_S + STEP_S
        while sample_at <= ends_at:
            due = min(simulation.next_at, ends_at + 1)
            while sample_at < due and sample_at <= ends_at:
                self._sample(sample_at)
                if progress is not None:
                    progress(len(self._samples))
                sample_at += STEP_S
            if not simulation.step():
                break

    def _sample(self, now: float) -> None:
        idle = self._idle.sample(self._simulation.engine, now)
        waiting = frozenset(pair for pair, count in self.history.waiting_of.items() if count)
        self._samples.append(Sample({cause.value: gpus for cause, gpus in idle.items()}, waiting))

    def _gpus_of(self) -> dict[tuple[str, ...], float]:
        """Return the number of GPUs of the cluster for each tuple of GPU models that a job of the run
        accepts.
        """
        nodes = self._cluster.nodes
        return {
            models: float(
                sum(
                    len(nodes[name].gpus)
                    for name, model in self._models.items()
                    if any(each in model for each in models)
                )
            )
            for models in {job.spec.gpu_models for job in self.history.jobs.values()}
            if models
        }

    def _result(self, record: Record, cpu_s: float) -> LabResult:
        task = self._task
        never, gangs = measures.gangs_never_started(record)
        met, due = measures.deadlines_met(record)
        return LabResult(
            config=task.name,
            mix=task.mix,
            load=task.load,
            seed=task.seed,
            days=task.days,
            jobs=len(record.jobs),
            refused=dict(self._refused),
            projects=measures.project_deviations(record),
            worst_week=measures.worst_week(record),
            users=measures.user_deviations(record),
            wasted_percent=measures.wasted_percent(record),
            idle_hours=measures.idle_hours(record),
            gangs_never_started=never,
            gangs=gangs,
            longest_gang_wait_h=measures.longest_gang_wait_h(record),
            longest_narrow_wait_h=measures.longest_narrow_wait_h(record),
            used_percent=measures.used_percent(record),
            deadlines_met=met,
            deadlines=due,
            interactive_p95_minutes=measures.interactive_p95_minutes(record),
            lost_percent=measures.lost_percent(record),
            cpu_s=cpu_s,
        )


def _fixed(work: TraceJob) -> bool:
    """Return whether the job has a fixed time: it is a service, or has a deadline."""
    return work.spec.deadline_at is not None or work.spec.restart.when is RestartWhen.ALWAYS


def run(task: LabTask, progress: Callable[[int], None] | None = None) -> LabResult:
    """Run the task and return its figures. `progress` is called with the number of samples taken so far."""
    return LabRun(task).figures(progress)
