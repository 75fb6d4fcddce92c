"""The jobs themselves: sessions of users, one job after the other, until the wish is met."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from controller.sim.cluster import Cluster
from controller.sim.generate.dice import Dice, Odds
from controller.sim.generate.hours import DAY_S, arrival
from controller.sim.generate.people import LONGEST, SIZES, Habit, User, people

MOST = 1_000_000
"""More jobs than this are a slip of the hand."""

SAMPLE = 10_000
"""After so many jobs one can tell how many there will be."""

MISSES = 1_000
"""So many sessions in a row without a job that the rest of the load has room for: there is none."""

CODES = Odds([(1, 60.0), (137, 14.0), (139, 8.0), (2, 8.0), (134, 5.0), (255, 5.0)])
"""How failing programs exit."""


class TooMany(ValueError):
    """The wish comes to more than MOST jobs."""


@dataclass(frozen=True, slots=True)
class Room:
    """What jobs can count on: so many nodes, each with at least this."""

    nodes: int
    gpus: int
    cores: int
    memory_mib: int

    def spread(self, gpus: float) -> int | None:
        """The fewest nodes so many GPUs can be divided over evenly, None if there is no way."""
        if gpus <= self.gpus:
            return 1
        return next((n for n in range(2, self.nodes + 1) if gpus % n == 0 and gpus / n <= self.gpus), None)

    def sizes(self) -> list[float]:
        """What people ask for: half of all at most, if half is anything."""
        most = max(1.0, self.nodes * self.gpus / 2)
        return [size for size, _ in SIZES if size <= most and self.spread(size) is not None]


def room_of(cluster: Cluster) -> Room:
    """The room on the nodes that have GPUs."""
    nodes = [facts for facts in cluster.nodes.values() if facts.gpus]
    return Room(
        len(nodes),
        min(len(facts.gpus) for facts in nodes),
        min(facts.cpu_milli for facts in nodes) // 1_000,
        min(facts.memory_mib for facts in nodes),
    )


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted. Of jobs, days and load (1.0: all GPUs, always) one is None, and follows."""

    cluster: Cluster
    seed: int = 1
    users: int = 20
    jobs: int | None = None
    days: float | None = None
    load: float | None = None
    models: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One job, as a line of the file says it; `cpu` (cores) and `memory` (MiB) are of each node."""

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
        """What it takes of the GPUs: a job that outlives its estimate is stopped then."""
        return self.gpus * min(self.duration, self.estimate)


@dataclass(frozen=True, slots=True)
class Workload:
    """The jobs in the order they come, within a span of time that begins on a Monday at 00:00."""

    rows: Sequence[Row]
    span_s: float
    cluster: Cluster

    @property
    def load(self) -> float:
        """What the jobs ask for, as part of what the GPUs can give in that span."""
        return sum(row.gpu_s for row in self.rows) / (self.cluster.gpus * self.span_s)


Session = list[Row]
"""Jobs of one sitting; their submits count from its beginning."""


def generate(wish: Wish) -> Workload:
    """The workload that was wished for. The same wish gives the same jobs, on every machine."""
    sessions, span_s = _sessions_and_span(wish)
    dice = Dice(wish.seed, "arrivals")
    rows: list[Row] = []
    for session in sessions:
        begin = arrival(dice, max(span_s - session[-1].submit, 1.0))
        rows += [replace(row, submit=int(min(begin + row.submit, span_s))) for row in session]
    rows.sort(key=lambda row: row.submit)
    return Workload(rows, span_s, wish.cluster)


def _sessions_and_span(wish: Wish) -> tuple[list[Session], float]:
    gpus = wish.cluster.gpus
    if wish.jobs is None:
        assert wish.days is not None, "of jobs, days and load two are given"
        assert wish.load is not None
        span_s = wish.days * DAY_S
        return [*_loaded(wish, gpus * wish.load * span_s)], span_s
    sessions = [*_counted(wish, wish.jobs)]
    if wish.days is not None:
        return sessions, wish.days * DAY_S
    assert wish.load is not None
    asked = sum(row.gpu_s for session in sessions for row in session)
    return sessions, asked / (gpus * wish.load)


def _counted(wish: Wish, jobs: int) -> Iterator[Session]:
    """Sessions of so many jobs together."""
    for session in _sessions(wish):
        yield session[:jobs]
        jobs -= len(session)
        if jobs <= 0:
            return


def _loaded(wish: Wish, gpu_s: float) -> Iterator[Session]:
    """Sessions of so much work together, to half a percent if there is anything small enough.

    A job that would overshoot is left out, or one long and wide one would decide the load of a short log.
    """
    rest, jobs, misses = gpu_s, 0, 0
    for session in _sessions(wish):
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
        if jobs > MOST or (jobs > SAMPLE and jobs * gpu_s > 2 * MOST * done):
            raise TooMany(f"{wish.days:g} days of this load are more than {MOST:,} jobs")
        if rest <= gpu_s * 0.005 or misses >= MISSES:
            return


def _sessions(wish: Wish) -> Iterator[Session]:
    """Sittings without end, of users as busy as they are."""
    room = room_of(wish.cluster)
    users = people(wish.seed, wish.users, room.sizes(), wish.models)
    dice = Dice(wish.seed, "jobs")
    while True:
        user = users.draw(dice)
        yield _session(dice, user, user.habits.draw(dice), room)


def _session(dice: Dice, user: User, habit: Habit, room: Room) -> Session:
    """A sweep comes within seconds; else each job follows a look at the one before."""
    count = int(dice.between(2, 5.5) ** 2) if habit.sweeps else dice.count(2.5)
    # Tried out small first: now and then a job has half the GPUs of its kind.
    gpus = habit.gpus / 2 if not habit.sweeps and habit.gpus >= 1 and dice.chance(0.12) else habit.gpus
    jobs: Session = []
    moment = 0.0
    for _ in range(count):
        row = _job(dice, user, habit, gpus, room, int(moment))
        jobs.append(row)
        if habit.sweeps:
            moment += dice.between(0, 4)
        elif row.code and row.duration < 900:
            moment += row.duration + dice.lognormal(150, 0.6)  # the crash was seen, and mended
        else:
            moment += dice.lognormal(500, 1.0)
    return jobs


def _job(dice: Dice, user: User, habit: Habit, gpus: float, room: Room, submit: int) -> Row:
    duration = min(dice.lognormal(habit.median_s, habit.sigma), LONGEST)
    code = 0
    if dice.chance(habit.failing):
        code = CODES.draw(dice)
        # Most failures come early; the others anywhere on the way.
        duration = min(duration, dice.lognormal(75, 1.2)) if dice.chance(0.8) else duration * dice.roll()
    nodes = room.spread(gpus)
    assert nodes is not None, "only sizes that can be spread are asked for"
    here = gpus / nodes
    return Row(
        submit=submit,
        duration=max(1, round(duration)),
        estimate=int(user.guess(habit)),
        user=user.name,
        gpus=gpus,
        nodes=nodes,
        cpu=max(1, int(here * min(habit.cores, room.cores / room.gpus))),
        memory=max(1, int(here * min(1024 * habit.memory_gib, room.memory_mib / room.gpus))),
        model=habit.model,
        name=habit.name,
        code=code,
    )
