"""Generates the jobs of a workload until the requested number of jobs, or the requested load, is reached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from controller.sim.cluster import Cluster
from controller.sim.generate.arrival_hours import DAY_S, draw_arrival
from controller.sim.generate.random_numbers import RandomStream, WeightedChoice
from controller.sim.generate.users import LONGEST_LIMIT, SIZES, JobTemplate, User, draw_users

MAX_JOBS = 1_000_000
"""The greatest number of jobs of a workload. A request for more is refused, because it is probably a mistake.
"""

SAMPLE = 10_000
"""After this number of jobs, the generator estimates whether the workload would exceed MAX_JOBS."""

MISSES = 1_000
"""The generator stops if, in this many successive sessions (series of jobs of one user), every job would
exceed the requested load.
"""

CODES = WeightedChoice([(1, 60.0), (137, 14.0), (139, 8.0), (2, 8.0), (134, 5.0), (255, 5.0)])
"""Exit codes of failing programs, and how often each occurs relative to the others."""


class TooMany(ValueError):
    """Raised if the workload would have more than MAX_JOBS jobs."""


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """The capacity that generated jobs may use: the number of nodes with GPUs, and, per node, the GPUs, cores
    and memory that each of these nodes has at least.
    """

    nodes: int
    gpus: int
    cores: int
    memory_mib: int

    def spread(self, gpus: float) -> int | None:
        """Return the smallest number of nodes among which `gpus` GPUs can be divided equally; None if no
        number of nodes can hold the GPUs in this way.
        """
        if gpus <= self.gpus:
            return 1
        return next((n for n in range(2, self.nodes + 1) if gpus % n == 0 and gpus / n <= self.gpus), None)

    def sizes(self) -> list[float]:
        """Return the numbers of GPUs that generated jobs may request. A job must fit on the nodes, and may
        use at most half of all GPUs.
        """
        most = max(1.0, self.nodes * self.gpus / 2)
        return [size for size, _ in SIZES if size <= most and self.spread(size) is not None]


def capacity_of(cluster: Cluster) -> NodeCapacity:
    """Return the capacity that generated jobs may use on this cluster."""
    nodes = [facts for facts in cluster.nodes.values() if facts.gpus]
    return NodeCapacity(
        len(nodes),
        min(len(facts.gpus) for facts in nodes),
        min(facts.cpu_milli for facts in nodes) // 1_000,
        min(facts.memory_mib for facts in nodes),
    )


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """The workload that the user requests.

    The user sets two of `jobs`, `days` and `load`. The third is None and is computed from the other two. A
    load of 1.0 uses all GPUs all the time.
    """

    cluster: Cluster
    seed: int = 1
    users: int = 20
    jobs: int | None = None
    days: float | None = None
    load: float | None = None
    models: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class GeneratedJob:
    """One generated job, in the form of the workload file. `cpu` (cores) and `memory` (MiB) are per node."""

    submit: int
    duration: int
    estimate: int
    user: str
    gpus: float
    nodes: int
    cpu: int
    memory: int
    model: str
    name: str
    code: int

    @property
    def gpu_s(self) -> float:
        """Return the GPU-seconds that the job uses until it ends or reaches its time limit `estimate`."""
        return self.gpus * min(self.duration, self.estimate)


@dataclass(frozen=True, slots=True)
class Workload:
    """Generated jobs in submit order. They are submitted within `span_s` seconds from Monday, 00:00."""

    rows: Sequence[GeneratedJob]
    span_s: float
    cluster: Cluster

    @property
    def load(self) -> float:
        """Return the GPU-seconds of all jobs divided by the GPU-seconds that the cluster has in the time
        span."""
        return sum(row.gpu_s for row in self.rows) / (self.cluster.gpus * self.span_s)


Session = list[GeneratedJob]
"""The jobs that one user submits in one session. Submit times count from the beginning of the session."""


def generate(request: WorkloadRequest) -> Workload:
    """Generate a workload. The same request gives the same jobs on every machine.

    1. Draw sessions (jobs that one user submits one after the other) until the number of jobs or the load is
       reached.
    2. Draw the start of each session from the arrival rates.
    3. Sort all jobs by submit time.
    """
    sessions, span_s = _sessions_and_span(request)
    rng = RandomStream(request.seed, "arrivals")
    rows: list[GeneratedJob] = []
    for session in sessions:
        begin = draw_arrival(rng, max(span_s - session[-1].submit, 1.0))
        rows += [replace(row, submit=int(min(begin + row.submit, span_s))) for row in session]
    rows.sort(key=lambda row: row.submit)
    return Workload(rows, span_s, request.cluster)


def _sessions_and_span(request: WorkloadRequest) -> tuple[list[Session], float]:
    gpus = request.cluster.gpus
    if request.jobs is None:
        assert request.days is not None, "of jobs, days and load two are given"
        assert request.load is not None
        span_s = request.days * DAY_S
        return [*_loaded(request, gpus * request.load * span_s)], span_s
    sessions = [*_counted(request, request.jobs)]
    if request.days is not None:
        return sessions, request.days * DAY_S
    assert request.load is not None
    asked = sum(row.gpu_s for session in sessions for row in session)
    return sessions, asked / (gpus * request.load)


def _counted(request: WorkloadRequest, jobs: int) -> Iterator[Session]:
    """Yield sessions (the jobs that a user submits in a row) until the sessions contain `jobs` jobs."""
    for session in _sessions(request):
        yield session[:jobs]
        jobs -= len(session)
        if jobs <= 0:
            return


def _loaded(request: WorkloadRequest, gpu_s: float) -> Iterator[Session]:
    """Yield sessions (the jobs that a user submits in a row). All yielded jobs together use at most `gpu_s`
    GPU-seconds, and, if possible, at least 99.5 % of them.

    A job with which the sum would exceed `gpu_s` is left out, because one long job on many GPUs could use far
    more than `gpu_s`.
    """
    rest, jobs, misses = gpu_s, 0, 0
    for session in _sessions(request):
        fitting: Session = []
        for row in session:
            if row.gpu_s <= rest:
                fitting.append(row)
                rest -= row.gpu_s
        jobs += len(fitting)
        misses = 0 if fitting else misses + 1
        if fitting:
            yield fitting
        done = gpu_s - rest
        if jobs > MAX_JOBS or (jobs > SAMPLE and jobs * gpu_s > 2 * MAX_JOBS * done):
            raise TooMany(f"{request.days:g} days of this load are more than {MAX_JOBS:,} jobs")
        if rest <= gpu_s * 0.005 or misses >= MISSES:
            return


def _sessions(request: WorkloadRequest) -> Iterator[Session]:
    """Yield random sessions (the jobs that a user submits in a row) of random users, without end."""
    room = capacity_of(request.cluster)
    users = draw_users(request.seed, request.users, room.sizes(), request.models)
    rng = RandomStream(request.seed, "jobs")
    while True:
        user = users.draw(rng)
        yield _session(rng, user, user.templates.draw(rng), room)


def _session(rng: RandomStream, user: User, template: JobTemplate, room: NodeCapacity) -> Session:
    """Return the jobs of one kind (`template`) that one user submits in a row (a session).

    The jobs of a parameter sweep are submitted seconds apart, other jobs minutes apart. After a job that
    fails early, the next job is submitted shortly after its end.
    """
    count = int(rng.between(2, 5.5) ** 2) if template.sweeps else rng.count(2.5)
    # In some sessions, let the user request only half of the GPUs, as real users do for a first try.
    gpus = (
        template.gpus / 2
        if not template.sweeps and template.gpus >= 1 and rng.chance(0.12)
        else template.gpus
    )
    jobs: Session = []
    moment = 0.0
    for _ in range(count):
        row = _job(rng, user, template, gpus, room, int(moment))
        jobs.append(row)
        if template.sweeps:
            moment += rng.between(0, 4)
        elif row.code and row.duration < 900:
            # Submit the next job shortly after the end of a failed job, as if the user had corrected an
            # error.
            moment += row.duration + rng.lognormal(150, 0.6)
        else:
            moment += rng.lognormal(500, 1.0)
    return jobs


def _job(
    rng: RandomStream, user: User, template: JobTemplate, gpus: float, room: NodeCapacity, submit: int
) -> GeneratedJob:
    duration = min(rng.lognormal(template.median_s, template.sigma), LONGEST_LIMIT)
    code = 0
    if rng.chance(template.failing):
        code = CODES.draw(rng)
        # Let most failing jobs fail early, and the others at any time of their run.
        duration = min(duration, rng.lognormal(75, 1.2)) if rng.chance(0.8) else duration * rng.uniform()
    nodes = room.spread(gpus)
    assert nodes is not None, "only sizes that can be spread are asked for"
    here = gpus / nodes
    return GeneratedJob(
        submit=submit,
        duration=max(1, round(duration)),
        estimate=int(user.time_limit_of(template)),
        user=user.name,
        gpus=gpus,
        nodes=nodes,
        cpu=max(1, int(here * min(template.cores, room.cores / room.gpus))),
        memory=max(1, int(here * min(1024 * template.memory_gib, room.memory_mib / room.gpus))),
        model=template.model,
        name=template.name,
        code=code,
    )
