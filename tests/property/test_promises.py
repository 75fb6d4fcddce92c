"""Nobody's promised start is delayed: jobs at random, each of which takes as long as it may."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.plugin import Backfill
from tests.worlds import PIPELINE, World, spec
from wire.company import job_term_of
from wire.gpuwish import Topology
from wire.spec import JobSpec

RACKS = {"a": "r1", "b": "r1", "c": "r2", "d": "r2"}
"""Four nodes of four GPUs."""
COMPANY = [
    job_term_of("app=x on node", None),
    job_term_of("app=x on rack", None),
    job_term_of("app=y on rack", 1),
    job_term_of("app=x on rack=2", 0),
]
LABELS = st.sampled_from([{}, {}, {"app": "x"}, {"app": "y"}])
LIMITS = st.sampled_from([10.0, 20.0, 35.0, 50.0, 100.0, 400.0])
SPECS = st.builds(
    spec,
    gpus=st.sampled_from([0, 0.5, 1, 2, 3, 4]),
    cpu_milli=st.sampled_from([500, 20_000]),
    time_limit_s=LIMITS,
    labels=LABELS,
    company=st.sampled_from([(), (), *((each,) for each in COMPANY)]),
) | st.builds(
    spec,
    gpus=st.sampled_from([0, 2, 4, 8]),
    nodes=st.just(2),
    time_limit_s=LIMITS,
    labels=LABELS,
    topology=st.sampled_from([None, Topology("rack"), Topology("rack", 2)]),
    company=st.sampled_from([(), (), *((each,) for each in COMPANY[:2])]),
)
STEPS = st.lists(st.tuples(SPECS, st.sampled_from([0.0, 0.0, 5.0, 30.0])), min_size=3, max_size=25)


@dataclass
class Run:
    """Jobs come one by one; each ends when its time is up."""

    world: World
    promised: dict[int, float] = field(default_factory=dict)
    """By job: the earliest start it was ever promised."""

    def tick(self) -> None:
        """One cycle; whoever has a promise starts by then."""
        world = self.world
        world.tick()
        for job, at in self.promised.items():
            assert world.job(job).attempt or world.now < at, (job, at, world.now)
        shadow = world.engine.cycle.promise(world.now)
        if shadow is not None:
            known = self.promised.setdefault(shadow.job, shadow.at)
            assert shadow.at <= known, (shadow.job, known, shadow.at)


def pass_time(world: World, until: float, tick: Callable[[], None]) -> None:
    """Everything that is over by then ends when it does."""
    state = world.state
    while state.releases and state.releases[0][0] <= until:
        world.now = state.releases[0][0]
        for job in [job for end, job in state.releases if end <= world.now]:
            world.exit(job)
        tick()
    world.now = max(world.now, until)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, backfill=st.sampled_from([Backfill.EASY, Backfill.EASY_SJBF]))
def test_nobody_who_passes_delays_the_first(steps: list[tuple[JobSpec, float]], backfill: Backfill) -> None:
    run = Run(World(replace(PIPELINE, backfill=backfill)))
    for node, rack in RACKS.items():
        run.world.join(node, gpus=4, cpus=40, labels={"rack": rack})
    for asked, pause in steps:
        run.world.submit(asked)
        run.tick()
        pass_time(run.world, run.world.now + pause, run.tick)
    pass_time(run.world, 1e6, run.tick)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_a_conservative_promise_moves_only_forward(steps: list[tuple[JobSpec, float]]) -> None:
    """Of jobs to which it does not matter who is near; what company there will be nobody can promise."""
    world = World(replace(PIPELINE, backfill=Backfill.CONSERVATIVE))
    promised: dict[int, float] = {}

    def tick() -> None:
        world.tick()
        for job, at in promised.items():
            assert world.job(job).attempt or world.now < at, (job, at, world.now)
        for job, promise in world.engine.cycle.plan.promises.items():
            assert promise.start <= promised.setdefault(job, promise.start)

    for node, rack in RACKS.items():
        world.join(node, gpus=4, cpus=40, labels={"rack": rack})
    for asked, pause in steps:
        world.submit(replace(asked, labels={}, company=()))
        tick()
        pass_time(world, world.now + pause, tick)
    pass_time(world, 1e6, tick)
    assert not len(world.state.queue)
