"""EASY never delays a start it has promised: jobs at random, each of which takes as long as it may."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.jobs import NEVER
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

    def wait(self, until: float) -> None:
        """Everything that is over by then ends when it does."""
        state = self.world.state
        while state.releases and state.releases[0][0] <= until:
            self.world.now = state.releases[0][0]
            for job in [job for end, job in state.releases if end <= self.world.now]:
                self.world.exit(job)
            self.tick()
        self.world.now = min(until, max(self.world.now, until)) if until < NEVER else self.world.now


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, backfill=st.sampled_from([Backfill.EASY, Backfill.EASY_SJBF]))
def test_nobody_who_passes_delays_the_first(steps: list[tuple[JobSpec, float]], backfill: Backfill) -> None:
    run = Run(World(replace(PIPELINE, backfill=backfill)))
    for node, rack in RACKS.items():
        run.world.join(node, gpus=4, cpus=40, labels={"rack": rack})
    for asked, pause in steps:
        run.world.submit(asked)
        run.tick()
        run.wait(run.world.now + pause)
    run.wait(1e6)
