"""Reclaim by fair shares and of lent quotas, and that it comes to an end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.fairshare.usage import FairshareConfig
from controller.core.forecast.forecast import forecast, fork
from controller.core.framework.circuit_breaker import CircuitBreaker
from controller.core.framework.interfaces import Backfill, PreemptionGuards, Strategy
from controller.core.model.events.nominations import PreemptionPlanned
from controller.core.model.inputs import job_inputs, policy_inputs
from controller.core.quota.quota_config import QuotaConfig
from controller.plugins.backfill.kinds import Conservative, Easy
from controller.plugins.isolation import isolated
from controller.plugins.preemption.reclaim_strategies import FairShareStrategy, QuotaReclaimStrategy
from controller.plugins.quotas.local import BorrowTable, LocalQuotas, ProjectQuotaTable, QuotaAmounts
from tests.engine_harness import PIPELINE, EngineHarness, spec
from tests.examples import examples
from wire.names import JobState, Reason

HOUR = 3600.0
UNGUARDED = PreemptionGuards(min_runtime_s=0.0, cooldown_s=0.0)
ORGANISATIONS = {"lab": ("vision", "speech"), "shop": ("web",)}


def harness_of(strategy: Strategy, nodes: int = 1, **more: Any) -> EngineHarness:
    harness = EngineHarness(replace(PIPELINE, **{"strategies": (strategy,), "guards": UNGUARDED, **more}))
    for number in range(nodes):
        harness.join(f"n{number}")
    return harness


def submit(harness: EngineHarness, tenant: str, gpus: float, **more: Any) -> int:
    """Submits a job of tenant `project/user` with these GPUs."""
    project, user = tenant.split("/")
    return harness.submit(spec(gpus, project=project, **more), user=user)


def fill(harness: EngineHarness, held: Held) -> list[int]:
    """Starts jobs of (project/user, GPUs, hours run by the end of this call)."""
    begin, jobs = harness.now, []
    for tenant, gpus, hours in held:
        harness.now = begin + (10 - hours) * HOUR
        jobs.append(submit(harness, tenant, gpus))
        harness.tick()
        harness.start(jobs[-1])
    harness.now = begin + 10 * HOUR
    return jobs


def plans(harness: EngineHarness) -> list[tuple[int, list[int]]]:
    """(preemptor, victims) of every plan so far."""
    return [
        (event.job, [victim.job for victim in event.victims])
        for event in harness.events
        if isinstance(event, PreemptionPlanned)
    ]


def leave(harness: EngineHarness) -> None:
    """Victims end, and jobs that fit start."""
    for job in [job for job in harness.state.live() if job.stopping is not None]:
        harness.exit(job.id, None, signal=15, why="preempted")
    for start in harness.tick():
        harness.start(start.job)


Held = list[tuple[str, float, float]]
"""(project/user, GPUs, hours it has run)."""

# (case, options, weights, jobs held on a node of eight GPUs, the tenant that asks and its GPUs, the victims)
FAIR: list[tuple[str, dict[str, Any], dict[str, float], Held, tuple[str, float], list[int] | None]] = [
    ("half of all is due to one of two", {}, {}, [("v/a", 8, 1)], ("s/b", 4), [1]),
    ("but no more than half", {}, {}, [("v/a", 8, 1)], ("s/b", 5), None),
    ("what is held already counts", {}, {}, [("v/a", 5, 1), ("s/b", 3, 1)], ("s/b", 2), None),
    ("a little above is not far above", {}, {}, [("v/a", 5, 1), ("s/b", 3, 1)], ("s/b", 1), None),
    ("or it is", {"threshold": 1.0}, {}, [("v/a", 5, 1), ("s/b", 3, 1)], ("s/b", 1), [1]),
    ("the victim with the least loss", {}, {}, [("v/a", 4, 3), ("v/c", 4, 1)], ("s/b", 4), [2]),
    ("a third is due to one of three", {}, {}, [("v/a", 4, 2), ("w/c", 4, 1)], ("s/b", 2), [2]),
    ("only from tenants above their share", {}, {}, [("v/a", 6, 9), ("w/c", 2, 1)], ("s/b", 2), [1]),
    ("weights decide what is fair", {}, {"v": 3}, [("v/a", 8, 1)], ("s/b", 3), None),
    ("and what is far above it", {}, {"v": 3}, [("v/a", 8, 1)], ("s/b", 2), [1]),
    ("or not", {"threshold": 1.4}, {"v": 3}, [("v/a", 8, 1)], ("s/b", 2), None),
    ("between users of one project", {}, {}, [("v/a", 4, 2), ("v/a", 4, 1)], ("v/b", 4), [2]),
    ("not between jobs of one user", {}, {}, [("v/a", 8, 1)], ("v/a", 1), None),
    ("organisations first", {}, {}, [("vision/a", 4, 2), ("speech/a", 4, 1)], ("web/b", 4), [2]),
    ("inside one, projects", {}, {}, [("vision/a", 4, 1), ("web/b", 4, 1)], ("speech/a", 2), [1]),
    ("nobody above the ceiling", {"most": 49}, {}, [("v/a", 8, 1)], ("s/b", 4), None),
    ("nobody in vain", {}, {}, [("v/a", 4, 1), ("x/a", 2, 1), ("y/a", 2, 1)], ("s/b", 8), None),
]


@pytest.mark.parametrize(
    ("options", "weights", "held", "asks", "ended"),
    [row[1:] for row in FAIR],
    ids=[row[0] for row in FAIR],
)
def test_tenants_above_their_share_give_back_to_tenants_below(
    options: dict[str, Any],
    weights: dict[str, float],
    held: Held,
    asks: tuple[str, float],
    ended: list[int] | None,
) -> None:
    harness = harness_of(
        FairShareStrategy(**options), sharing=FairshareConfig(weights=weights, organisations=ORGANISATIONS)
    )
    fill(harness, held)
    asker = submit(harness, *asks)
    harness.tick()
    assert plans(harness) == ([] if ended is None else [(asker, ended)])


def test_a_victim_that_still_runs_counts_as_gone() -> None:
    """Of sixteen GPUs eight are the fair share, and ten are still below the threshold: the tenant's jobs ask
    in turn until they hold ten.
    """
    harness = harness_of(FairShareStrategy(), nodes=2)
    fill(harness, [("v/a", 2, 1)] * 8)
    for _ in range(4):
        submit(harness, "s/b", 2)
        harness.tick()  # no victim has ended yet
    assert len(plans(harness)) == 3
    leave(harness)
    assert harness.state.shares.accounts["v",].usage.rate == 10.0
    assert harness.state.shares.accounts["s",].usage.rate == 6.0
    for _ in range(5):
        leave(harness)
    assert len(plans(harness)) == 3


def test_a_preempted_job_does_not_preempt_in_return() -> None:
    """Two tenants each want all GPUs. The victim is first in the queue again, and waits."""
    harness = harness_of(FairShareStrategy(threshold=1.0))
    first = fill(harness, [("v/a", 4, 2), ("v/a", 4, 1)])
    other = submit(harness, "s/b", 4)
    harness.tick()
    leave(harness)
    assert plans(harness) == [(other, [first[1]])]
    assert (harness.job(other).state, harness.job(first[1]).state) == (JobState.RUNNING, JobState.QUEUED)
    for _ in range(10):
        harness.now += HOUR
        leave(harness)
    assert len(plans(harness)) == 1
    assert harness.job(first[1]).reason is Reason.PREEMPTED
    harness.tell(
        policy_inputs.SetShare("v", 9.0, "root")
    )  # seven of eight are fair now, and the four of speech are not
    harness.tick()
    assert plans(harness)[1:] == []  # with its four v would hold eight
    more = submit(harness, "v/a", 2, priority=60)
    harness.tick()
    assert plans(harness)[1:] == [(more, [other])]


@pytest.mark.parametrize("backfill", [Easy(), Conservative()])
def test_guards_apply_to_fair_share_reclaim(backfill: Backfill) -> None:
    harness = harness_of(
        FairShareStrategy(), guards=PreemptionGuards(min_runtime_s=HOUR, grace_s=7.0), backfill=backfill
    )
    job = submit(harness, "v/a", 8)
    harness.tick()
    harness.start(job)
    asker = submit(harness, "s/b", 4)
    harness.tick()
    assert plans(harness) == []
    assert forecast(fork(harness.engine), harness.now).starts[asker].at == harness.now + HOUR + 7.0
    harness.now = harness.engine.next_at
    harness.tick()
    assert plans(harness) == [(asker, [job])]
    assert harness.job(job).stop_by == harness.now + 7.0


TENANTS = st.sampled_from(["vision/a", "vision/b", "speech/a", "web/c", "other/d"])


@settings(max_examples=examples(120))
@given(
    threshold=st.sampled_from([1.0, 1.25, 2.0]),
    organised=st.booleans(),
    jobs=st.lists(st.tuples(TENANTS, st.sampled_from([0.5, 1, 2, 3, 4, 8])), min_size=4, max_size=24),
    late=st.lists(st.tuples(TENANTS, st.sampled_from([1, 2, 4])), max_size=8),
)
def test_fair_share_reclaim_terminates(
    threshold: float, organised: bool, jobs: list[tuple[str, float]], late: list[tuple[str, float]]
) -> None:
    """No job ends by itself: each plan starts a job that no job of its level preempts again."""
    sharing = FairshareConfig(organisations=ORGANISATIONS if organised else {})
    guards = replace(UNGUARDED, max_per_job=1_000, rate=1_000)
    harness = harness_of(FairShareStrategy(threshold), nodes=2, sharing=sharing, guards=guards)
    for tenant, gpus in (*jobs, *late):
        submit(harness, tenant, gpus)
        harness.tick()
    quiet = before = 0
    for _ in range(4 * len(harness.state.jobs)):
        harness.now += 60.0
        leave(harness)
        quiet, before = (quiet + 1 if len(plans(harness)) == before else 0), len(plans(harness))
    assert quiet > 2
    taken = [victim for _, victims in plans(harness) for victim in victims]
    given_room = [job for job, _ in plans(harness)]
    if not organised and len({*[tenant for tenant, _ in (*jobs, *late)]} & {"vision/a", "vision/b"}) < 2:
        assert not {*taken} & {*given_room}
    assert len(given_room) <= len(harness.state.jobs) * 3


def lending(reclaim: bool = True, **projects: ProjectQuotaTable) -> EngineHarness:
    """Eight GPUs: vision has two and may borrow six, speech has six; `projects` adds or replaces tables."""
    tables = {
        "vision": ProjectQuotaTable(gpus=2, borrow=BorrowTable(gpus=6)),
        "speech": ProjectQuotaTable(gpus=6),
        **projects,
    }
    strategies = (QuotaReclaimStrategy(),) if reclaim else ()
    rules = QuotaConfig({}, LocalQuotas(projects=tables))
    guards = replace(UNGUARDED, max_per_job=1_000, rate=1_000)
    made = EngineHarness(replace(PIPELINE, rules=rules, strategies=strategies, guards=guards))
    made.join("a")
    return made


# (case, held, the tenant that asks and its GPUs, the victims)
LENT: list[tuple[str, Held, tuple[str, float], list[int] | None]] = [
    ("what was borrowed comes back", [("vision/a", 4, 2), ("vision/a", 4, 1)], ("speech/b", 4), [2]),
    (
        "the victim with the least loss, not the latest",
        [("vision/a", 4, 1), ("vision/a", 4, 2)],
        ("speech/b", 4),
        [1],
    ),
    ("up to all that is lent", [("vision/a", 2, 2)] * 4, ("speech/b", 6), [1, 2, 3]),
    ("not for a tenant that would borrow itself", [("vision/a", 8, 1)], ("speech/b", 7), None),
    ("not for a tenant that lends nothing", [("vision/a", 8, 1)], ("other/b", 1), None),
    (
        "not from a tenant that borrowed nothing",
        [("vision/a", 2, 1), ("other/b", 6, 1)],
        ("speech/b", 4),
        None,
    ),
    ("nobody in vain", [("vision/a", 4, 1), ("other/b", 4, 1)], ("speech/b", 6), None),
]


@pytest.mark.parametrize(("held", "asks", "ended"), [row[1:] for row in LENT], ids=[row[0] for row in LENT])
def test_borrowed_quota_is_reclaimed(held: Held, asks: tuple[str, float], ended: list[int] | None) -> None:
    for reclaim in (True, False):
        more = {"speech": ProjectQuotaTable(gpus=6, borrow=BorrowTable(gpus=2))} if asks[1] > 6 else {}
        harness = lending(reclaim, **more)
        fill(harness, held)
        asker = submit(harness, *asks)
        harness.tick()
        assert plans(harness) == ([(asker, ended)] if ended and reclaim else [])


def test_a_borrower_keeps_its_own_quota_and_borrows_nothing_while_the_lender_waits() -> None:
    harness = lending()
    jobs = fill(harness, [("vision/a", 1, hours) for hours in (8, 7, 6, 5, 4, 3, 2, 1)])
    mine = [submit(harness, "speech/b", 2) for _ in range(4)]
    for _ in range(8):
        leave(harness)
    assert sorted(job for _, victims in plans(harness) for job in victims) == jobs[2:]
    assert [harness.job(job).state for job in mine] == [JobState.RUNNING] * 3 + [JobState.QUEUED]
    assert "'speech' on GPUs: 6 of 6" in harness.why(mine[3]).sentence  # it borrows nothing
    for _ in range(5):
        harness.now += HOUR
        leave(harness)
    assert len(plans(harness)) == 3
    harness.exit(mine[0])  # its other job is next: the project is within its own quota again
    leave(harness)
    assert harness.job(mine[3]).state is JobState.RUNNING
    harness.exit(mine[1])
    leave(harness)
    assert len([job for job in jobs if harness.job(job).state is JobState.RUNNING]) == 4  # two are lent again


def test_a_borrower_that_is_only_a_soft_limit_beyond_keeps_its_room() -> None:
    harness = lending(other=ProjectQuotaTable(soft=QuotaAmounts(gpus=1)))
    fill(harness, [("other/c", 8, 1)])
    submit(harness, "speech/b", 4)
    harness.tick()
    assert plans(harness) == []


SMALL = st.tuples(st.sampled_from(["vision/a", "speech/b", "third/c"]), st.sampled_from([1, 2, 3, 4]))


@settings(max_examples=examples(120))
@given(jobs=st.lists(SMALL, min_size=4, max_size=20))
def test_quota_reclaim_terminates(jobs: list[tuple[str, float]]) -> None:
    """No job ends by itself, and no guard blocks a preemption."""
    harness = lending(third=ProjectQuotaTable(gpus=2, borrow=BorrowTable(gpus=2)))
    for tenant, gpus in jobs:
        project, user = tenant.split("/")
        harness.tell(job_inputs.Submit(spec(gpus, project=project), user))
        harness.tick()
    for _ in range(2 * len(jobs)):
        harness.now += 60.0
        leave(harness)
    before = plans(harness)
    for _ in range(3):
        harness.now += HOUR
        leave(harness)
    assert plans(harness) == before


@pytest.mark.parametrize("threshold", [0.5, -1.0, float("nan")])
def test_a_threshold_below_one_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        FairShareStrategy(threshold)


def test_a_reclaim_strategy_of_a_site_stops_the_same_jobs_as_without_isolation() -> None:
    """The wrapper must call every method that ReclaimStrategy declares by the name declared there."""
    harness = harness_of(isolated("preemption", FairShareStrategy(), CircuitBreaker()))
    fill(harness, [("v/a", 8, 1)])
    asker = submit(harness, "s/b", 4)
    harness.tick()
    assert plans(harness) == [(asker, [1])]
