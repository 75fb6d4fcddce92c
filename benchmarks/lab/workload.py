"""Generates the jobs of a university lab: a pure function of seed, days, load and mix.

Algorithm of `lab_jobs`
1. Each stream (sweeps of one user, gangs of a team, notebooks, …) draws its submits from a separate random
   generator. The submit times are in hours and are not scaled yet.
2. Divide the submit times of the streams by a scale. With this scale, the demanded GPU-hours are `load` times
   the GPU-hours of the cluster. Jobs with fixed times (service, deadline) are not scaled.
3. Keep the submits within the days, sorted by time.

Invariant: submit number n of a stream is the same job for every load, so two loads differ only in the submit
times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random

from controller.sim.errors import SimulationRefused
from controller.sim.trace_job import TraceJob
from wire.job.spec import JobSpec
from wire.job.start_conditions import Restart, RestartWhen
from wire.names import PRIORITIES

START_S = 1_699_833_600.0
"""The start of the run, a Monday at 00:00 UTC, in seconds since 1970."""
HOUR_S = 3_600.0
WEEK_H = 168.0
GPUS = 48
"""The GPUs of examples/lab.toml."""
GPUS_PER_NODE = 8
PROJECTS = ("llm", "vision", "speech", "students", "serving")
"""The projects of the lab. In the mix `flood`, one user also submits jobs to projects that the user has
invented.
"""
FLOOD = "flood"
"""The tenant that stands for all invented projects of the mix `flood` together."""
GANG, NOTEBOOK, SCAVENGER, DEADLINE = "gang", "notebook", "scavenger", "deadline"
_LARGEST_SCALE = 6.0
_WORKDAY_H, _WORKDAYS, _FIRST_HOUR = 9.0, 5, 9.0
_H100, _A100 = ("H100",), ("A100",)


@dataclass(frozen=True, slots=True)
class Request:
    """A job before it is submitted: the hour of its submit, its user, its run time in hours and its spec."""

    at_h: float
    user: str
    run_h: float
    spec: JobSpec

    @property
    def gpu_hours(self) -> float:
        """Return the GPU-hours that the job uses if it is not preempted: it ends at its time limit at the
        latest.
        """
        limit_s = self.spec.time_limit_s
        return self.spec.gpus * (self.run_h if limit_s is None else min(self.run_h, limit_s / HOUR_S))


Batch = Callable[[Random, float], list[Request]]
"""A function that draws the jobs of one submit. Its arguments are the random generator and the hour of the
submit.
"""


@dataclass(frozen=True, slots=True)
class Stream:
    """One source of jobs, such as the sweeps of one user. The hours between two submits are random, with a
    uniform distribution from `least_gap_h` to `most_gap_h`.
    """

    first_h: float
    least_gap_h: float
    most_gap_h: float
    batch: Batch
    by_day: bool = False
    """If true, hours are counted only during working time, from 9:00 to 18:00 on Monday to Friday."""

    def requests(self, dice: Random, rate: float, until_h: float) -> Iterator[list[Request]]:
        """Yield the jobs of each submit until the hour `until_h`. With a larger `rate` there are more
        submits: the hours between two of them are divided by `rate`.
        """
        at_h = self.first_h / rate
        while at_h < until_h:
            yield self.batch(dice, at_h)
            at_h += dice.uniform(self.least_gap_h, self.most_gap_h) / rate


def _job(
    at_h: float,
    user: str,
    project: str,
    queue: str,
    gpus: int,
    run_h: float,
    limit_h: float | None,
    name: str,
    *,
    priority: str = "NORMAL",
    saves: bool = False,
    nodes: int | None = None,
    models: tuple[str, ...] = (),
) -> Request:
    spec = JobSpec(
        command=("train", name),
        name=name,
        project=project,
        queue=queue,
        gpus=gpus,
        nodes=nodes,
        gpu_models=models,
        priority=PRIORITIES[priority],
        time_limit_s=None if limit_h is None else limit_h * HOUR_S,
        checkpoint_signal="USR1" if saves else "",
    )
    return Request(at_h, user, run_h, spec)


def _queue_for(limit_h: float) -> str:
    return "short" if limit_h <= 4 else "long"


def _sweep(user: str, project: str) -> Batch:
    """Return a function that draws a sweep of 8 to 30 jobs with one GPU each. The time limit of 15 % of the
    sweeps is too short.
    """

    def batch(dice: Random, at_h: float) -> list[Request]:
        run_h, short = dice.uniform(1, 5), dice.random() < 0.15
        limit_h = run_h * (0.8 if short else dice.uniform(1.3, 4))
        return [
            _job(
                at_h, user, project, _queue_for(limit_h), 1, run_h * dice.uniform(0.8, 1.1), limit_h, "sweep"
            )
            for _ in range(dice.randint(8, 30))
        ]

    return batch


def _gang(project: str, users: tuple[str, ...], sizes: tuple[int, ...], models: tuple[str, ...]) -> Batch:
    """Return a function that draws a gang on whole nodes, which saves checkpoints. The number of nodes is
    drawn from `sizes`.
    """

    def batch(dice: Random, at_h: float) -> list[Request]:
        nodes, run_h, user = dice.choice(sizes), dice.uniform(8, 30), dice.choice(users)
        limit_h, gpus = min(72.0, run_h * 1.6), nodes * GPUS_PER_NODE
        return [
            _job(
                at_h,
                user,
                project,
                "long",
                gpus,
                run_h,
                limit_h,
                GANG,
                saves=True,
                nodes=nodes,
                models=models,
            )
        ]

    return batch


def _training(
    project: str, users: Mapping[str, tuple[int, ...]], run_h: tuple[float, float], saving: float
) -> Batch:
    """Return a function that draws a job on one node.

    `users` has the numbers of GPUs from which the job of each user is drawn. `run_h` is the range of run
    times in hours. `saving` is the part of the jobs, from 0 to 1, that saves checkpoints.
    """

    def batch(dice: Random, at_h: float) -> list[Request]:
        user = dice.choice(tuple(users))
        gpus, takes_h = dice.choice(users[user]), dice.uniform(*run_h)
        limit_h = min(72.0, takes_h * dice.uniform(1.2, 3))
        saves = dice.random() < saving
        return [_job(at_h, user, project, "long", gpus, takes_h, limit_h, "training", saves=saves)]

    return batch


def _scavenger(dice: Random, at_h: float) -> list[Request]:
    run_h = dice.uniform(4, 8)
    return [
        _job(at_h, "cy", "students", "scavenge", 1, run_h, 12, SCAVENGER, priority="SCAVENGER", saves=True)
    ]


def _notebook(dice: Random, at_h: float) -> list[Request]:
    user, project = dice.choice((("nora", "students"), ("sam", "speech"), ("viv", "vision")))
    return [_job(at_h, user, project, "interactive", 1, dice.uniform(0.7, 6), 8, NOTEBOOK)]


def _wide_user(user: str, project: str, gpus: int) -> Batch:
    def batch(dice: Random, at_h: float) -> list[Request]:
        run_h = dice.uniform(0.5, 8)
        return [_job(at_h, user, project, "long", gpus, run_h, 1.5 * run_h, "training")]

    return batch


_STREAMS: Mapping[str, Stream] = {
    "sweeps of dee": Stream(0.0, 5, 9, _sweep("dee", "students")),
    "sweeps of cy": Stream(2.0, 10, 18, _sweep("cy", "students")),
    "sweeps of bo": Stream(1.0, 14, 24, _sweep("bo", "speech")),
    "llm gangs": Stream(1.0, 16, 28, _gang("llm", ("lea", "lin"), (2, 2, 3, 4), _H100)),
    "vision gangs": Stream(3.0, 16, 28, _gang("vision", ("ada",), (2,), ())),
    "vision": Stream(0.5, 3, 5, _training("vision", {"viv": (2, 4), "ada": (8, 8)}, (3, 14), 0.5)),
    "speech": Stream(0.7, 2, 4, _training("speech", {"sam": (1, 2, 4), "bo": (1, 2, 4)}, (2, 9), 0.0)),
    "scavengers": Stream(3.0, 1.0, 2.4, _scavenger),
    "notebooks": Stream(0.0, 0.5, 1.6, _notebook, by_day=True),
} | {
    # Choose the rates so that each user of `widths` demands the same number of GPU-hours.
    f"{project} with {gpus} GPUs": Stream(
        0.0, 0.5 * gpus, 1.5 * gpus, _wide_user(f"{project}-{gpus}", project, gpus)
    )
    for project in ("llm", "vision", "speech", "students")
    for gpus in (1, 4, 8)
}
_LAB = {name: 1.0 for name in _STREAMS if name != "vision gangs" and "with" not in name}


@dataclass(frozen=True, slots=True)
class Mix:
    """A kind of workload: a factor for the number of submits of each stream (`rates`), and special jobs."""

    rates: Mapping[str, float]
    deadlines: bool = True
    service: bool = True
    """If false, no inference service runs."""
    limits: bool = True
    """If false, no job has a time limit."""
    flood: bool = False
    """If true, one user also submits 5,000 jobs to 50 invented projects."""


MIXES: Mapping[str, Mix] = {
    "lab": Mix(_LAB),
    "narrow": Mix(_LAB | {"sweeps of dee": 2.5, "sweeps of cy": 2.5, "llm gangs": 0.2, "vision": 0.4}),
    "wide": Mix(
        {name: 0.5 * rate for name, rate in _LAB.items()}
        | {"llm gangs": 1.2, "vision gangs": 0.8, "notebooks": 1.0}
    ),
    "small": Mix(
        {name: rate for name, rate in _LAB.items() if name not in ("llm gangs", "scavengers")},
        deadlines=False,
        service=False,
    ),
    "widths": Mix({name: 1.0 for name in _STREAMS if "with" in name}, deadlines=False),
    "nolimits": Mix(_LAB, limits=False),
    "flood": Mix(_LAB, flood=True),
}


def lab_jobs(seed: int, days: float, load: float, mix: str, gpus: int = GPUS) -> list[TraceJob]:
    """Return the jobs of the mix on `days` days, in the order of their submits. Together they demand `load`
    times the GPU-hours of a cluster with `gpus` GPUs; the jobs of the flood are added to this demand.

    Raise SimulationRefused if the load is too large for the mix.
    """
    chosen, until_h = MIXES[mix], 24 * days
    service = _service(until_h) if chosen.service else []
    fixed = [*service, *(_deadlines(until_h) if chosen.deadlines else [])]
    drawn: list[tuple[float, bool, list[Request]]] = []
    for name, rate in chosen.rates.items():
        stream = _STREAMS[name]
        span_h = _work_hours(until_h) if stream.by_day else until_h
        batches = stream.requests(Random(f"{seed}/{name}"), rate, _LARGEST_SCALE * span_h)
        drawn += [(batch[0].at_h, stream.by_day, batch) for batch in batches]
    if not chosen.limits:
        fixed = _without_limits(fixed)
        drawn = [(unscaled_h, by_day, _without_limits(batch)) for unscaled_h, by_day, batch in drawn]
    wanted = load * gpus * until_h - sum(each.gpu_hours for each in fixed)
    scale = _scale(drawn, wanted, until_h)
    requests = fixed + [
        replace(each, at_h=at_h)
        for unscaled_h, by_day, batch in drawn
        if (at_h := _submit_hour(unscaled_h / scale, by_day=by_day)) < until_h
        for each in batch
    ]
    if chosen.flood:
        requests += _flood()
    requests.sort(key=lambda each: each.at_h)  # At equal hours, the order of the streams remains.
    return [
        TraceJob(number, START_S + each.at_h * HOUR_S, each.spec, each.run_h * HOUR_S, each.user)
        for number, each in enumerate(requests, 1)
    ]


def _without_limits(requests: list[Request]) -> list[Request]:
    return [replace(each, spec=replace(each.spec, time_limit_s=None)) for each in requests]


def _scale(drawn: list[tuple[float, bool, list[Request]]], wanted: float, until_h: float) -> float:
    """Return the number by which to divide the submit times, so that the jobs submitted before the hour
    `until_h` demand `wanted` GPU-hours. The number is found by bisection.
    """
    amounts = [
        (unscaled_h, by_day, sum(each.gpu_hours for each in batch)) for unscaled_h, by_day, batch in drawn
    ]

    def demanded(scale: float) -> float:
        return sum(
            amount
            for unscaled_h, by_day, amount in amounts
            if _submit_hour(unscaled_h / scale, by_day=by_day) < until_h
        )

    least, most = 0.0, _LARGEST_SCALE
    if demanded(most) < wanted:
        raise SimulationRefused("the load is too large for this mix", "Use a smaller --loads.")
    for _ in range(30):
        middle = (least + most) / 2
        least, most = (middle, most) if demanded(middle) < wanted else (least, middle)
    return most


def _submit_hour(hour: float, *, by_day: bool) -> float:
    """Convert an hour of a stream to an hour of the run. If `by_day` is true, the stream counts working hours
    only.
    """
    if not by_day:
        return hour
    day, within = divmod(hour, _WORKDAY_H)
    week, weekday = divmod(day, _WORKDAYS)
    return week * WEEK_H + weekday * 24 + _FIRST_HOUR + within


def _work_hours(until_h: float) -> float:
    return _WORKDAY_H * _WORKDAYS * math.ceil(until_h / WEEK_H)


def _service(until_h: float) -> list[Request]:
    """Return the job of the inference service, which runs from the hour 0 to the hour `until_h`."""
    request = _job(0.0, "svc", "serving", "service", 2, until_h, None, "service", models=_A100)
    restart = Restart(RestartWhen.ALWAYS)
    return [replace(request, spec=replace(request.spec, preemptible=False, restart=restart))]


def _deadlines(until_h: float) -> list[Request]:
    """Return the urgent jobs of a principal investigator. They are submitted each Thursday at 12:00, and
    their deadline is 30 h later.
    """
    found: list[Request] = []
    for week in range(int(until_h // WEEK_H)):
        at_h = week * WEEK_H + 84
        jobs = [(16, 20.0, 24.0, 2, True), *[(1, 5.0, 8.0, None, False)] * 8]
        for gpus, run_h, limit_h, nodes, saves in jobs:
            request = _job(
                at_h,
                "pi",
                "vision",
                "urgent",
                gpus,
                run_h,
                limit_h,
                DEADLINE,
                priority="HIGH",
                saves=saves,
                nodes=nodes,
            )
            due = replace(request.spec, deadline_at=START_S + (at_h + 30) * HOUR_S)
            found.append(replace(request, spec=due))
    return found


def _flood() -> list[Request]:
    return [
        _job(30.0, "mal", f"idea-{number % 50:02}", "short", 1, 1.0, 1.0, FLOOD) for number in range(5_000)
    ]
