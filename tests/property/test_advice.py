"""Advice of explain has the stated effect when it is carried out at once and alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.explain.why_no_preemption import why_no_preemption
from controller.core.forecast.forecast import forecast, fork, with_run_times
from controller.core.forecast.smallest_change import suggestions
from controller.core.framework.interfaces import DeadlinePolicy, PreemptionGuards
from controller.core.framework.profiles import Profile
from controller.core.model.decision.decision import Refusal
from controller.core.model.inputs import job_inputs, node_inputs, policy_inputs
from controller.core.model.job import NEVER
from controller.core.pipeline.pipeline import Pipeline
from controller.core.quota.quota_config import QuotaConfig
from controller.plugins.backfill.kinds import Conservative, Easy
from controller.plugins.orders.fair import FairShareOrder
from controller.plugins.preemption.by_priority import PriorityStrategy
from tests.engine_harness import BACKFILLS, EngineHarness, carry_out, default_pipeline, spec
from tests.examples import SEARCH
from wire.cluster.quota import Limits, Quota
from wire.cluster.reservation import ReservationSpec
from wire.job.gangs import Gang
from wire.job.placement.affinity import Effect, Taint, Toleration, parse_term
from wire.job.placement.gpu_requirements import GpuWish, Topology
from wire.job.placement.job_affinity import parse_job_term
from wire.job.spec import JobSpec
from wire.names import JobState

HOUR = 3600.0
EXAMPLES = 3_000 if SEARCH else 50

BASE = replace(default_pipeline(), rules=QuotaConfig(licences={"matlab": 2}))
PREEMPTING = replace(
    BASE,
    strategies=(PriorityStrategy(),),
    guards=PreemptionGuards(min_runtime_s=0.0, cooldown_s=900.0, rate=3),
)


def profiles_on_shared_nodes(left: Pipeline, right: Pipeline) -> Pipeline:
    """User a has nodes a and b, user b nodes b and c, and user c any node."""
    return replace(
        BASE,
        profiles=(
            Profile("left", left, nodes=(parse_term("node in a,b"),), users=("a",)),
            Profile("right", right, nodes=(parse_term("node in b,c"),), users=("b",)),
            Profile("default", BASE),
        ),
    )


PIPELINES = [
    *(replace(BASE, backfill=mode) for mode in BACKFILLS.values()),
    PREEMPTING,
    replace(PREEMPTING, backfill=Conservative()),
    replace(BASE, order=FairShareOrder()),
    replace(BASE, deadlines=DeadlinePolicy.GUARD),
    replace(BASE, deadlines=DeadlinePolicy.LIFT, backfill=Conservative()),
    profiles_on_shared_nodes(BASE, replace(BASE, backfill=Conservative())),
    profiles_on_shared_nodes(PREEMPTING, replace(BASE, backfill=Easy())),
]
NODES: dict[str, dict[str, Any]] = {
    "a": {"labels": {"rack": "r1"}},
    "b": {"labels": {"rack": "r2"}},
    "c": {"labels": {"rack": "r2"}, "model": "A100"},
}
COMPANY = [
    (),
    (),
    (parse_job_term("app=x on rack", 1),),
    (parse_job_term("app=x on node", None),),
    (parse_job_term("app=x on rack=2", 0),),
]
LIMITS = st.sampled_from([None, 600.0, HOUR, 5 * HOUR])
SINGLES = st.builds(
    spec,
    gpus=st.sampled_from([0, 0.5, 1, 2, 4, 6, 8]),
    cpu_milli=st.sampled_from([1_000, 30_000]),
    memory_mib=st.sampled_from([1_024, 300 * 1_024]),
    priority=st.sampled_from([25, 50, 75]),
    time_limit_s=LIMITS,
    grace_s=st.sampled_from([0.0, 30.0, 300.0]),
    labels=st.sampled_from([{}, {"app": "x"}]),
    company=st.sampled_from(COMPANY),
    selector=st.sampled_from([{}, {}, {"rack": "r1"}]),
    licences=st.sampled_from([{}, {}, {"matlab": 1}, {"matlab": 2}]),
    tolerations=st.sampled_from([(), (), (Toleration("dedicated", "ml"),)]),
    gpu=st.sampled_from([None, None, GpuWish(numa="require")]),
    hold=st.sampled_from([False, False, False, True]),
    preemptible=st.sampled_from([True, True, False]),
)
DATED = st.builds(
    spec,
    gpus=st.sampled_from([2, 8]),
    time_limit_s=st.sampled_from([600.0, HOUR]),
    deadline_at=st.sampled_from([3 * HOUR, 9 * HOUR]),
)
GANGS = st.builds(
    spec,
    gpus=st.sampled_from([8, 16]),
    nodes=st.just(2),
    time_limit_s=LIMITS,
    topology=st.sampled_from([None, Topology("rack")]),
    gang=st.sampled_from(
        [Gang(), Gang(min_nodes=1), Gang(min_nodes=1, elastic=True), Gang(min_nodes=2, assembly_s=60.0)]
    ),
)
JOBS = SINGLES | SINGLES | DATED | GANGS
SITE = st.fixed_dictionaries(
    {
        "quota": st.sampled_from([None, None, Limits(gpus=6), Limits(running=1), Limits(gpu_hours=9)]),
        "soft": st.booleans(),
        "taint": st.sampled_from([None, None, "a", "c"]),
        "drain": st.sampled_from([None, None, None, "b"]),
        "cordon": st.sampled_from([(), (), (("a", 0),), (("a", 0), ("a", 5))]),
        "reserve": st.sampled_from([None, None, ("a",), ("b", "c")]),
        "reserve_in": st.sampled_from([700.0, 2 * HOUR]),
    }
)


def build(
    pipeline: Pipeline, site: Mapping[str, Any], jobs: list[JobSpec], ended: list[int], pause: float
) -> tuple[EngineHarness, list[int]]:
    """A cluster in the middle of its work: some jobs run, some wait, some have just ended."""
    harness = EngineHarness(pipeline)
    for name, host in NODES.items():
        harness.join(name, **host)
    if site["taint"]:
        taint = Taint("dedicated", Effect.NO_SCHEDULE, "ml")
        harness.tell(node_inputs.MarkNode(site["taint"], "root", {}, {"dedicated:NoSchedule": taint.value}))
    if site["drain"]:
        harness.tell_drain(site["drain"])
    for node, gpu in site["cordon"]:
        harness.tell(node_inputs.CordonGpu(node, gpu, "root"))
    if site["reserve"]:
        begins = harness.now + site["reserve_in"]
        harness.tell(
            policy_inputs.Reserve(ReservationSpec("upkeep", begins, HOUR, nodes=site["reserve"]), "root")
        )
    ids = []
    for at, each in enumerate(jobs):
        reply = harness.tell(job_inputs.Submit(each, "abc"[at % 3])).reply
        if not isinstance(reply, Refusal):
            ids.append(reply.jobs[0])
    if site["quota"] is not None:
        limits = Quota(soft=site["quota"]) if site["soft"] else Quota(site["quota"])
        harness.tell(policy_inputs.SetQuota("user", "a", limits, "root"))
    harness.tick()
    for job in ids:
        if harness.job(job).state is JobState.SCHEDULED:
            harness.start(job)
    harness.now += pause
    for job in {ids[at % len(ids)] for at in ended} if ids else ():
        if harness.job(job).state is JobState.RUNNING:
            harness.exit(job)
    harness.tick()
    return harness, [job for job in ids if harness.job(job).state is JobState.QUEUED]


STATES: dict[str, Any] = {
    "pipeline": st.sampled_from(PIPELINES),
    "site": SITE,
    "jobs": st.lists(JOBS, min_size=2, max_size=14),
    "ended": st.lists(st.integers(0, 13), max_size=4),
    "pause": st.sampled_from([1.0, 400.0]),
    "which": st.integers(0, 13),
}


@settings(max_examples=EXAMPLES, deadline=None)
@given(**STATES, shuffled=st.integers(0, 5))
def test_advised_change_starts_the_job(
    pipeline: Pipeline,
    site: Mapping[str, Any],
    jobs: list[JobSpec],
    ended: list[int],
    pause: float,
    which: int,
    shuffled: int,
) -> None:
    harness, waiting = build(pipeline, site, jobs, ended, pause)
    if not waiting:
        return
    job = waiting[which % len(waiting)]
    found = suggestions(fork(harness.engine), job, harness.now)
    if found:
        advice = found[shuffled % len(found)]
        carry_out(harness, job, advice, shuffled)
        assert harness.job(job).state is not JobState.QUEUED, advice


@settings(max_examples=EXAMPLES, deadline=None)
@given(**STATES)
def test_latest_start_estimate_is_kept(
    pipeline: Pipeline,
    site: Mapping[str, Any],
    jobs: list[JobSpec],
    ended: list[int],
    pause: float,
    which: int,
) -> None:
    """Every job uses its limit and its grace; then the job starts at its latest start."""
    harness, waiting = build(pipeline, site, jobs, ended, pause)
    waiting = [each for each in waiting if not harness.job(each).held]
    if not waiting:
        return
    job = waiting[which % len(waiting)]
    start = forecast(with_run_times(fork(harness.engine), predicted=False), harness.now, (), job).starts.get(
        job
    )
    if start is None:
        return
    _pass_time(harness, job, start.at)
    assert harness.job(job).attempt, (start, harness.now)
    assert harness.job(job).placed_at == start.at


def _pass_time(harness: EngineHarness, job: int, until: float) -> None:
    """Advance the time to the start of the job, or a little beyond."""
    state, engine = harness.state, harness.engine
    for _ in range(500):
        for other in [state.jobs[number] for number in state.elastic]:
            for member in [each for each in other.running if each.leaving]:
                harness.exit(other.id, None, member.allocation.node, signal=15, why="shrunk")
        harness.tick()
        for other in list(state.live()):
            if other.state is JobState.SCHEDULED:
                harness.start(other.id)
        if harness.job(job).attempt or harness.now > until:
            return
        ends = state.releases[0][0] if state.releases else NEVER
        harness.now = max(harness.now, min(ends, engine.next_at))
        for number in [each for end, each in state.releases if end <= harness.now]:
            other = state.jobs[number]
            if other.limit == NEVER and (other.stop_by is None or other.stop_by > harness.now):
                continue  # Nothing ends a job without a time limit at its planned end.
            preempted = other.stopping is not None and other.stop_by == other.expected_end
            harness.exit(
                number, None if preempted else 0, **({"signal": 15, "why": "preempted"} if preempted else {})
            )


@settings(max_examples=EXAMPLES // 3, deadline=None)
@given(**STATES)
def test_no_job_is_preempted_when_explain_says_that_none_can_be(
    pipeline: Pipeline,
    site: Mapping[str, Any],
    jobs: list[JobSpec],
    ended: list[int],
    pause: float,
    which: int,
) -> None:
    harness, waiting = build(pipeline, site, jobs, ended, pause)
    waiting = [each for each in waiting if harness.job(each).ready]
    if not waiting or not pipeline.strategies:
        return
    job = waiting[which % len(waiting)]
    cycle = harness.engine.profile_cycles.of(harness.job(job))
    told = why_no_preemption(cycle, harness.job(job), harness.now)
    assert told
    harness.tick()
    assert (
        not harness.job(job).claim or told == "jobs can be preempted for it once it is the first waiting job"
    )
