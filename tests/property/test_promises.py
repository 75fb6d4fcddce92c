"""No reserved start is delayed: random jobs that all run to their limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.framework.interfaces import Backfill
from controller.plugins.backfill.kinds import Conservative, Easy, EasySjbf
from tests.engine_harness import PIPELINE, EngineHarness, spec
from tests.examples import examples
from wire.job.placement.gpu_requirements import Topology
from wire.job.placement.job_affinity import parse_job_term
from wire.job.spec import JobSpec

RACKS = {"a": "r1", "b": "r1", "c": "r2", "d": "r2"}
"""Four nodes of four GPUs."""
COMPANY = [
    parse_job_term("app=x on node", None),
    parse_job_term("app=x on rack", None),
    parse_job_term("app=y on rack", 1),
    parse_job_term("app=x on rack=2", 0),
]
LABELS = st.sampled_from([{}, {}, {"app": "x"}, {"app": "y"}])
LIMITS = st.sampled_from([10.0, 20.0, 35.0, 50.0, 100.0, 400.0])
LEAST_LIMITS = st.sampled_from([None, None, 10.0])
GRACES = st.sampled_from([0.0, 0.0, 15.0, 120.0])
"""Every job uses its whole grace: it ends when limit and grace are over."""
SPECS = st.builds(
    spec,
    gpus=st.sampled_from([0, 0.5, 1, 2, 3, 4]),
    cpu_milli=st.sampled_from([500, 20_000]),
    time_limit_s=LIMITS,
    time_min_s=LEAST_LIMITS,
    grace_s=GRACES,
    labels=LABELS,
    company=st.sampled_from([(), (), *((each,) for each in COMPANY)]),
) | st.builds(
    spec,
    gpus=st.sampled_from([0, 2, 4, 8]),
    nodes=st.just(2),
    time_limit_s=LIMITS,
    time_min_s=LEAST_LIMITS,
    grace_s=GRACES,
    labels=LABELS,
    topology=st.sampled_from([None, Topology("rack"), Topology("rack", 2)]),
    company=st.sampled_from([(), (), *((each,) for each in COMPANY[:2])]),
)
STEPS = st.lists(st.tuples(SPECS, st.sampled_from([0.0, 0.0, 5.0, 30.0])), min_size=3, max_size=25)


@dataclass
class Run:
    """Jobs are submitted one by one. Each ends at its time limit."""

    harness: EngineHarness
    promised: dict[int, float] = field(default_factory=dict)
    """The earliest reserved start of each job so far."""

    def tick(self) -> None:
        """Run one cycle. Every job with a reservation starts by its reserved time."""
        harness = self.harness
        harness.tick()
        for job, at in self.promised.items():
            assert harness.job(job).attempt or harness.now < at, (job, at, harness.now)
        shadow = harness.engine.cycle.first_reservation(harness.now)
        if shadow is not None:
            known = self.promised.setdefault(shadow.job, shadow.starts_at)
            assert shadow.starts_at <= known, (shadow.job, known, shadow.starts_at)


def pass_time(
    harness: EngineHarness,
    until: float,
    tick: Callable[[], None],
    between: Callable[[], object] | None = None,
) -> None:
    """End each job at its own end, up to this time. `between` is called after the end of each member."""
    state = harness.state
    while state.releases and state.releases[0][0] <= until:
        harness.now = state.releases[0][0]
        for job in [job for end, job in state.releases if end <= harness.now]:
            for node in [""] if between is None else harness.nodes_of(job):
                harness.exit(job, node=node)
                if between is not None:
                    between()
        tick()
    harness.now = max(harness.now, until)


@settings(max_examples=examples(225))
@given(steps=STEPS, backfill=st.sampled_from([Easy(), EasySjbf()]))
def test_backfilled_jobs_never_delay_the_first_job(
    steps: list[tuple[JobSpec, float]], backfill: Backfill
) -> None:
    run = Run(EngineHarness(replace(PIPELINE, backfill=backfill)))
    for node, rack in RACKS.items():
        run.harness.join(node, gpus=4, cpus=40, labels={"rack": rack})
    for asked, pause in steps:
        run.harness.submit(asked)
        run.tick()
        pass_time(run.harness, run.harness.now + pause, run.tick)
    pass_time(run.harness, 1e6, run.tick)


@settings(max_examples=examples(180))
@given(steps=STEPS, depth=st.sampled_from([None, 1, 2, 4]))
def test_conservative_reservation_only_moves_earlier(
    steps: list[tuple[JobSpec, float]], depth: int | None
) -> None:
    """Jobs without job affinity, because the jobs near a reservation cannot be predicted. Jobs behind the
    depth start without reservations, and delay none.
    """
    harness = EngineHarness(replace(PIPELINE, backfill=Conservative(depth=depth)))
    promised: dict[int, float] = {}

    def tick() -> None:
        harness.tick()
        for job, at in promised.items():
            assert harness.job(job).attempt or harness.now < at, (job, at, harness.now)
        for job, promise in harness.engine.cycle.reservations.by_job.items():
            assert promise.starts_at <= promised.setdefault(job, promise.starts_at)

    for node, rack in RACKS.items():
        harness.join(node, gpus=4, cpus=40, labels={"rack": rack})
    for asked, pause in steps:
        harness.submit(replace(asked, labels={}, company=()))
        tick()
        pass_time(harness, harness.now + pause, tick)
    pass_time(harness, 1e6, tick)
    assert not len(harness.state.queue)


@settings(max_examples=examples(90))
@given(steps=STEPS)
def test_depth_changes_nothing_for_shorter_queues(steps: list[tuple[JobSpec, float]]) -> None:
    def starts(depth: int | None) -> list[tuple[int, float]]:
        harness, found = EngineHarness(replace(PIPELINE, backfill=Conservative(depth=depth))), []

        def tick() -> None:
            found.extend((start.job, harness.now) for start in harness.tick())

        for node, rack in RACKS.items():
            harness.join(node, gpus=4, cpus=40, labels={"rack": rack})
        for asked, pause in steps:
            harness.submit(asked)
            tick()
            pass_time(harness, harness.now + pause, tick)
        pass_time(harness, 1e6, tick)
        return found

    assert starts(len(steps) + 1) == starts(None)


@settings(max_examples=examples(900))
@given(steps=STEPS)
def test_members_that_end_one_by_one_delay_no_start_of_the_first(
    steps: list[tuple[JobSpec, float]],
) -> None:
    """A pass after each ended member starts nothing on resources that are reserved for the first waiting
    job.
    """
    harness = EngineHarness(replace(PIPELINE, backfill=Conservative()))
    promised: dict[int, float] = {}

    def tick() -> None:
        harness.tick()
        for job, at in promised.items():
            assert harness.job(job).attempt or harness.now < at, (job, at, harness.now)
        first = min((entry for lane in harness.state.queue for entry in lane), default=None)
        promise = None if first is None else harness.engine.cycle.reservations.by_job.get(first[1])
        if first is not None and promise is not None:
            assert promise.starts_at <= promised.setdefault(first[1], promise.starts_at)

    for node, rack in RACKS.items():
        harness.join(node, gpus=4, cpus=40, labels={"rack": rack})
    for asked, pause in steps:
        harness.submit(replace(asked, labels={}, company=()))
        tick()
        pass_time(harness, harness.now + pause, tick, harness.tick)
    pass_time(harness, 1e6, tick, harness.tick)
    assert not len(harness.state.queue)


@settings(max_examples=examples(90))
@given(steps=STEPS, early=st.lists(st.booleans(), max_size=10))
def test_reservations_are_looked_at_again_only_when_one_may_start_sooner(
    steps: list[tuple[JobSpec, float]], early: list[bool]
) -> None:
    """Every job starts at the same time as if every reservation was examined after every end."""

    def starts(*, always: bool) -> dict[int, float | None]:
        harness = EngineHarness(replace(PIPELINE, backfill=Conservative()))
        if always:
            vars(harness.engine.cycle.reservations)["_may_gain"] = lambda _order: True
        for node, rack in RACKS.items():
            harness.join(node, gpus=4, cpus=40, labels={"rack": rack})
        for (asked, pause), soon in zip(steps, [*early, *[False] * len(steps)], strict=False):
            harness.submit(replace(asked, labels={}, company=()))
            harness.tick()
            if soon and harness.state.releases:
                harness.exit(harness.state.releases[0][1])
                harness.tick()
            pass_time(harness, harness.now + pause, harness.tick)
        pass_time(harness, 1e6, harness.tick)
        return {job.id: job.placed_at for job in harness.state.jobs.values()}

    assert starts(always=False) == starts(always=True)
