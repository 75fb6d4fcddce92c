"""Fair share: decay, windows, the tree, and the factor for orders."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.explain.blockers import share_free_at
from controller.core.explain.why_pending import reason_of
from controller.core.fairshare.share_tree import ShareTree
from controller.core.fairshare.usage import DecayedUsage, FairshareConfig, WindowedUsage
from controller.core.forecast.forecast import forecast, fork
from controller.core.framework.interfaces import Backfill, PreemptionGuards
from controller.core.model.decision.decision import Accepted
from controller.core.model.inputs import controller_inputs, policy_inputs
from controller.core.state.note_rows import all_notes, changed_notes, load_notes
from controller.core.state.notes.tenants import USAGE
from controller.core.state.state import State
from controller.plugins.backfill.kinds import Conservative, Easy
from controller.plugins.preemption.by_priority import PriorityStrategy
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.job.gangs import Gang
from wire.names import Reason
from wire.text import duration

HOUR = 3600.0
DAY = 24 * HOUR


def test_use_one_half_life_ago_counts_half() -> None:
    usage = DecayedUsage(half_life_s=DAY)
    usage.change(8.0, 0.0)
    usage.change(-8.0, HOUR)
    after = usage.total(HOUR)
    assert after == pytest.approx(8.0, rel=0.02)  # eight GPUs for an hour, a little of it faded already
    assert usage.total(HOUR + DAY) == pytest.approx(after / 2)
    assert usage.total(HOUR + 2 * DAY) == pytest.approx(after / 4)


def test_steady_use_converges() -> None:
    usage = DecayedUsage(half_life_s=DAY)
    usage.change(2.0, 0.0)
    assert usage.total(100 * DAY) == pytest.approx(2.0 * usage.longest_h)


def test_a_window_counts_use_within_in_full_and_older_use_not() -> None:
    usage = WindowedUsage(window_s=10 * HOUR)
    usage.change(4.0, 0.0)
    usage.change(-4.0, HOUR)
    assert usage.total(5 * HOUR) == pytest.approx(4.0)
    assert usage.total(10 * HOUR) == pytest.approx(4.0)
    assert usage.total(10.5 * HOUR) == pytest.approx(2.0)
    assert usage.total(11 * HOUR) == 0.0


@given(
    st.lists(st.tuples(st.floats(0.01, 1e5), st.floats(0, 64)), max_size=20),
    st.sampled_from([DecayedUsage(DAY), WindowedUsage(DAY)]),
)
def test_reading_changes_nothing_and_a_row_restores_the_usage(
    steps: list[tuple[float, float]], kind: DecayedUsage | WindowedUsage
) -> None:
    def fresh() -> DecayedUsage | WindowedUsage:
        return DecayedUsage(DAY) if isinstance(kind, DecayedUsage) else WindowedUsage(DAY)

    usage, now = fresh(), 0.0
    for wait, rate in steps:
        now += wait
        usage.change(rate - usage.rate, now)
        assert usage.total(now + 77.0) == usage.total(now + 77.0)
        again = fresh().load(usage.dump())
        assert again == usage
        assert again.total(now + HOUR) == usage.total(now + HOUR)
    assert usage.total(now) <= sum(wait for wait, _ in steps) / HOUR * 64 + 1e-9


TREE = FairshareConfig(
    organisations={"lab": ("vision", "speech")},
    weights={"lab": 2, "vision": 3, "vision/ada": 4, "solo/bo": 0.5},
)


def test_the_tree_names_and_weighs_its_accounts() -> None:
    shares = ShareTree(TREE)
    ada, chen, bo = shares.path("vision", "ada"), shares.path("speech", "chen"), shares.path("solo", "bo")
    assert (ada, chen, bo) == (("lab", "vision", "ada"), ("lab", "speech", "chen"), ("solo", "bo"))
    for path in (ada, chen, bo):
        shares.add(path)
    assert [shares.name(path) for path in (ada[:1], ada[:2], ada, bo[:1], bo)] == [
        "lab", "vision", "vision/ada", "solo", "solo/bo",
    ]  # fmt: skip
    weights = {shares.name(path): account.weight for path, account in shares.accounts.items() if path}
    assert weights == {
        "lab": 2, "vision": 3, "vision/ada": 4, "speech": 1, "speech/chen": 1, "solo": 1, "solo/bo": 0.5,
    }  # fmt: skip
    assert shares.accounts[()].weights == 3
    assert shares.accounts["lab",].weights == 4
    shares.set_weight("speech", 9)
    assert shares.accounts["lab",].weights == 12


def test_a_fair_share_used_halves_the_factor_at_its_level() -> None:
    shares = ShareTree(FairshareConfig(held_hours=0.0))
    ada, bo = ("vision", "ada"), ("speech", "bo")
    shares.add(ada)
    shares.add(bo)
    usage = shares.accounts["vision",].usage
    half_the_cluster = 16 * usage.longest_h / 2
    assert isinstance(usage, DecayedUsage)
    usage.amount = half_the_cluster  # all that is fair for one of two equal projects
    assert shares.factor(ada, 16, 0.0) == pytest.approx(0.5)
    assert shares.factor(bo, 16, 0.0) == 1.0
    shares.set_weight("vision", 3)  # three quarters are fair now
    assert shares.factor(ada, 16, 0.0) == pytest.approx(0.5 ** (0.5 / 0.75))


def test_factor_compares_a_user_with_its_part_of_the_project() -> None:
    shares = ShareTree(FairshareConfig(held_hours=0.0))
    ann, bob = ("vision", "ann"), ("vision", "bob")
    for each in (ann, bob):
        shares.add_job(each)
    for path, amount in ((("vision",), 400.0), (ann, 300.0), (bob, 100.0)):
        usage = shares.accounts[path].usage
        assert isinstance(usage, DecayedUsage)
        usage.amount = amount
    # One hour of the 16 GPUs is added to the use of the project, and half of it is the part of each user.
    assert shares.part_of_project(ann, 16, 0.0) == pytest.approx(300 / 208)
    assert shares.part_of_project(bob, 16, 0.0) == pytest.approx(100 / 208)
    ratio = shares.factor(bob, 16, 0.0) / shares.factor(ann, 16, 0.0)
    assert ratio == pytest.approx(2 ** (0.3 * 200 / 208))
    shares.set_weight("vision/ann", 3)
    assert shares.part_of_project(ann, 16, 0.0) == pytest.approx(300 / 312)


def sharing_world(**how: Any) -> EngineHarness:
    """A harness with these fair-share settings."""
    others = {name: how.pop(name) for name in ("backfill", "strategies", "guards") if name in how}
    return EngineHarness(replace(PIPELINE, sharing=FairshareConfig(**how), **others))


# Names as NVML gives them, and units per hour of one GPU by this billing.
BILLING = {"gpu": 1.0, "gpu.H100": 4.0, "gpu.H100 80GB": 5.0, "gpu.A100-SXM4-40GB": 2.0, "gpu.A10": 0.5}
PRICES = [
    ("NVIDIA H100 80GB HBM3", 5.0),
    ("NVIDIA H100 PCIe", 4.0),
    ("NVIDIA GH200 480GB", 1.0),
    ("NVIDIA A100-SXM4-40GB", 2.0),
    ("NVIDIA A100-SXM4-80GB", 1.0),
    ("NVIDIA A10", 0.5),
    ("NVIDIA A10G", 1.0),
    ("Tesla V100-SXM2-16GB", 1.0),
]


@pytest.mark.parametrize(("model", "price"), PRICES)
def test_gpu_price_is_that_of_the_most_specific_billing_key(model: str, price: float) -> None:
    harness = sharing_world(billing=BILLING, held_hours=0.0)
    harness.join("gpu01", model=model)
    harness.submit(spec(2, project="vision"))
    harness.tick()
    assert harness.state.shares.accounts[("vision", "ada")].usage.rate == pytest.approx(2 * price)
    assert harness.state.capacity == pytest.approx(8 * price)


def test_gpu_models_without_a_price_are_free_when_no_general_price_is_set() -> None:
    assert FairshareConfig(billing={"gpu.H100": 2.0}).dearest(0, 0, 1_000, ["NVIDIA A10"]) == 0.0


@pytest.mark.parametrize(
    ("how", "rate"),
    [
        ({}, 2.0),
        ({"billing": {"gpu": 1.0, "cpu": 0.25, "memory": 0.01}}, 2.0 + 4 * 0.25 + 16 * 0.01),
        ({"billing": {"gpu": 1.0, "cpu": 0.75}, "dominant": True}, 3.0),
        ({"billing": {"gpu": 1.0, "gpu.H100": 2.5}}, 5.0),
        ({"billing": {"gpu": 1.0, "gpu.A100": 2.5}}, 2.0),
    ],
)
def test_a_tenant_is_charged_for_its_jobs_until_they_end(how: dict[str, object], rate: float) -> None:
    harness = sharing_world(held_hours=0.0, **how)
    harness.join("gpu01")
    job = harness.submit(spec(2, cpu_milli=4000, memory_mib=16 * 1024, project="vision"))
    harness.tick()
    shares, tenant = harness.state.shares, ("vision", "ada")
    assert [shares.accounts[tenant[:depth]].usage.rate for depth in range(3)] == [pytest.approx(rate)] * 3
    harness.now += HOUR
    harness.start(job)
    harness.exit(job)
    assert shares.accounts[tenant].usage.rate == 0.0
    assert shares.used(tenant, harness.now) == pytest.approx(rate, rel=0.02)


def test_usage_and_settings_survive_a_restart() -> None:
    harness = sharing_world()
    harness.join("gpu01")
    harness.submit(spec(2, project="vision"), user="ada")
    harness.submit(spec(1, project="speech"), user="bo")
    harness.tick()
    reply = harness.tell(policy_inputs.SetShare("vision", 5.0, "root")).reply
    assert isinstance(reply, Accepted)
    restored = State(PIPELINE.order, sharing=harness.pipeline.sharing)
    load_notes(restored, all_notes(harness.state))
    assert restored.shares.accounts == harness.state.shares.accounts
    assert restored.shares.set_weights == {"vision": 5.0}


def test_usage_row_is_written_when_an_elastic_job_grows() -> None:
    harness = sharing_world()
    harness.join("gpu01")
    job = harness.submit(spec(16, nodes=2, gang=Gang(1, elastic=True)))
    harness.tick()
    harness.start(job)
    harness.join("gpu02")
    grown = harness.tell(controller_inputs.Tick()).events
    noted_of = {note.name for note in changed_notes(harness.state, grown) if note.kind == USAGE}
    assert noted_of == {"[]", '["default"]', '["default","ada"]'}


@pytest.mark.parametrize(
    ("share", "how", "where"),
    [
        ("vision", {"weight": 0}, "weight"),
        ("vision", {"weight": math.inf}, "weight"),
        ("vision", {"weight": math.nan}, "weight"),
        ("vision", {"weight": None}, "weight"),
        ("vision", {"weight": 1, "soft": -2}, "soft"),
        ("vision", {"weight": None, "hard": math.nan}, "hard"),
        ("", {"weight": 1}, "share"),
        ("a/b/c", {"weight": 1}, "share"),
        ("a/", {"weight": None, "hard": 5}, "share"),
    ],
)
def test_an_invalid_share_is_refused(share: str, how: dict[str, Any], where: str) -> None:
    assert EngineHarness().refuse(policy_inputs.SetShare(share, by="root", **how)).where == where


COUNTED: list[dict[str, Any]] = [{"half_life_s": DAY}, {"window_s": DAY}]


def stopped(harness: EngineHarness, job: int) -> str:
    """The waiting reason of a job whose share is at its hard limit."""
    why = harness.why(job)
    assert why.reason is Reason.SHARE
    assert reason_of(harness.state, harness.job(job)) is Reason.SHARE
    return why.sentence


@pytest.mark.parametrize("backfill", [Easy(), Conservative()])
@pytest.mark.parametrize("counted", COUNTED)
def test_a_share_at_its_hard_limit_starts_no_job_until_its_usage_decays(
    counted: dict[str, Any], backfill: Backfill
) -> None:
    """The share has used eight of eight GPU-hours. Jobs of other shares pass and reserve nothing for it."""
    harness = sharing_world(held_hours=0.0, hard={"vision": 7.5}, backfill=backfill, **counted)
    harness.join("gpu01")
    first = harness.submit(spec(8, project="vision"))
    assert len(harness.tick()) == 1
    harness.start(first)
    harness.now += HOUR
    harness.exit(first)
    waits = harness.submit(spec(1, project="vision", time_limit_s=HOUR), user="bo")
    other = harness.submit(spec(8, project="speech"))
    assert [start.job for start in harness.tick()] == [other]
    harness.tick()
    assert stopped(harness, waits).startswith("share 'vision' has used ")
    harness.start(other)
    harness.exit(other)
    assert harness.tick() == []  # GPUs are free, but the share is at its limit
    limit = harness.state.shares.at_hard_limit(("vision", "bo"), harness.now)
    assert limit is not None
    assert limit.until == pytest.approx(harness.engine.next_at)
    foreseen = forecast(fork(harness.engine), harness.now).starts[waits].at
    assert foreseen == limit.until
    assert harness.now + 60 < limit.until < harness.now + DAY
    assert f"for another {duration(limit.until - harness.now)} at most" in stopped(harness, waits)
    assert harness.tick_at(limit.until - 60) == []
    assert [start.job for start in harness.tick_at(limit.until)] == [waits]


@pytest.mark.parametrize("counted", COUNTED)
def test_running_jobs_continue_when_their_share_reaches_its_hard_limit(counted: dict[str, Any]) -> None:
    """Running jobs count too: the forecast uses their time limits."""
    harness = sharing_world(held_hours=1.0, hard={"vision": 3.0}, **counted)
    harness.join("gpu01")
    first = harness.submit(spec(4, project="vision", time_limit_s=2 * HOUR))
    second = harness.submit(spec(1, project="vision", time_limit_s=HOUR))
    assert [start.job for start in harness.tick()] == [first]
    harness.start(first)
    assert "4 of 3 units" in stopped(harness, second)
    limited = harness.state.shares.at_hard_limit(("vision", "ada"), harness.now)
    assert limited is not None
    assert limited.until == math.inf  # four more an hour: not while it runs
    foreseen = share_free_at(harness.state, limited, harness.now)
    assert foreseen > harness.now + 2 * HOUR
    assert forecast(fork(harness.engine), harness.now).starts[second].at == pytest.approx(foreseen)
    harness.now += HOUR
    harness.exit(first)  # sooner than it might have
    assert harness.tick() == []
    assert harness.engine.next_at < foreseen


def test_a_hard_limit_covers_accounts_below_it_and_can_be_set_and_removed_live() -> None:
    harness = sharing_world(organisations={"lab": ("vision", "speech")})
    harness.join("gpu01")
    jobs = [harness.submit(spec(1, project=name), user=user) for name, user in
            (("vision", "ada"), ("speech", "bo"), ("other", "cy"))]  # fmt: skip
    harness.tell(policy_inputs.SetShare("lab", None, "root", hard=0.0))
    assert [start.job for start in harness.tick()] == [jobs[2]]
    assert "'lab' has used 0 of 0 units: none of its jobs starts until its hard limit is raised" in stopped(
        harness, jobs[0]
    )
    assert harness.engine.next_at == math.inf
    again = harness.restarted()
    again.join("gpu01")
    assert again.state.shares.hard == {"lab": 0.0}
    assert "'lab'" in stopped(again, jobs[1]) if not again.tick() else False
    harness.tell(policy_inputs.SetShare("lab", 2.0, "root", hard=1.5))
    assert [start.job for start in harness.tick()] == [jobs[0], jobs[1]]
    more = harness.submit(spec(1, project="vision"))
    assert harness.tick() == []
    harness.tell(policy_inputs.SetShare("lab", None, "root", hard=-1))
    assert [start.job for start in harness.tick()] == [more]
    assert harness.state.shares.hard == {}


def test_a_share_at_its_limit_preempts_no_job_and_does_not_grow() -> None:
    """A share that may not start jobs makes no other job leave."""
    harness = sharing_world(
        hard={"vision": 1.0}, strategies=(PriorityStrategy(),), guards=PreemptionGuards(min_runtime_s=0.0)
    )
    harness.join("gpu01")
    low = harness.submit(spec(8, project="speech", priority=10))
    harness.tick()
    harness.start(low)
    harness.tell(policy_inputs.SetShare("vision", None, "root", hard=0.0))
    high = harness.submit(spec(8, project="vision", priority=90))
    harness.tick()
    assert not harness.job(low).stopping
    assert "'vision'" in stopped(harness, high)
    harness.tell(policy_inputs.SetShare("vision", None, "root", hard=1.0))
    harness.tick()
    assert harness.job(low).stopping is Reason.PREEMPTED
    harness.tell(policy_inputs.SetShare("vision", None, "root", hard=0.0))
    harness.exit(low, code=None, signal=15, why="preempted")
    assert [start.job for start in harness.tick()] == [low]  # the claim was let go


@pytest.mark.parametrize("usage", [DecayedUsage(DAY), WindowedUsage(DAY)])
@given(
    steps=st.lists(st.tuples(st.floats(0, 3e4), st.floats(0, 8)), min_size=1, max_size=8),
    part=st.floats(0.05, 0.95),
)
def test_the_forecast_time_is_when_use_is_below_the_limit(
    usage: DecayedUsage | WindowedUsage, steps: list[tuple[float, float]], part: float
) -> None:
    counted: DecayedUsage | WindowedUsage = (
        DecayedUsage(DAY) if isinstance(usage, DecayedUsage) else WindowedUsage(DAY)
    )
    now = 0.0
    for wait, rate in steps:
        now += wait
        counted.change(rate - counted.rate, now)
    target = counted.total(now) * part
    at = counted.falls_to(target, now)
    if at == math.inf:
        assert all(counted.total(now + DAY * n / 97) > target for n in range(97 * 3))
    else:
        assert counted.total(at) == pytest.approx(target, abs=1e-6)
        assert all(counted.total(now + (at - now) * n / 97) >= target - 1e-6 for n in range(97))
