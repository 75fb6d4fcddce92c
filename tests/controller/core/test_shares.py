"""Who used how much: fading, windows, the tree, and the factor that orders are made of."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core import inputs
from controller.core.explain import reason_of
from controller.core.forecast import forecast, fork
from controller.core.inputs import Accepted
from controller.core.notes import USAGE, noted, notes_of, recall
from controller.core.obstacles import ends_of
from controller.core.plugin import Backfill, Guards
from controller.core.shares import Shares, Sharing
from controller.core.state import State
from controller.core.usage import Fading, Windowed
from controller.plugins.preemption.priority import Priority
from tests.worlds import PIPELINE, World, spec
from wire.gangs import Gang
from wire.text import duration
from wire.words import Reason

HOUR = 3600.0
DAY = 24 * HOUR


def test_what_was_used_a_half_life_ago_counts_half() -> None:
    usage = Fading(half_life_s=DAY)
    usage.change(8.0, 0.0)
    usage.change(-8.0, HOUR)
    after = usage.total(HOUR)
    assert after == pytest.approx(8.0, rel=0.02)  # eight GPUs for an hour, a little of it faded already
    assert usage.total(HOUR + DAY) == pytest.approx(after / 2)
    assert usage.total(HOUR + 2 * DAY) == pytest.approx(after / 4)


def test_steady_use_settles_where_fading_takes_as_much_as_comes() -> None:
    usage = Fading(half_life_s=DAY)
    usage.change(2.0, 0.0)
    assert usage.total(100 * DAY) == pytest.approx(2.0 * usage.longest_h)


def test_a_window_counts_whole_what_lies_within_and_nothing_older() -> None:
    usage = Windowed(window_s=10 * HOUR)
    usage.change(4.0, 0.0)
    usage.change(-4.0, HOUR)
    assert usage.total(5 * HOUR) == pytest.approx(4.0)
    assert usage.total(10 * HOUR) == pytest.approx(4.0)
    assert usage.total(10.5 * HOUR) == pytest.approx(2.0)
    assert usage.total(11 * HOUR) == 0.0


@given(
    st.lists(st.tuples(st.floats(0.01, 1e5), st.floats(0, 64)), max_size=20),
    st.sampled_from([Fading(DAY), Windowed(DAY)]),
)
def test_looking_changes_nothing_and_a_row_keeps_all(
    steps: list[tuple[float, float]], kind: Fading | Windowed
) -> None:
    def fresh() -> Fading | Windowed:
        return Fading(DAY) if isinstance(kind, Fading) else Windowed(DAY)

    usage, now = fresh(), 0.0
    for wait, rate in steps:
        now += wait
        usage.change(rate - usage.rate, now)
        assert usage.total(now + 77.0) == usage.total(now + 77.0)
        again = fresh().load(usage.dump())
        assert again == usage
        assert again.total(now + HOUR) == usage.total(now + HOUR)
    assert usage.total(now) <= sum(wait for wait, _ in steps) / HOUR * 64 + 1e-9


TREE = Sharing(
    organisations={"lab": ("vision", "speech")},
    weights={"lab": 2, "vision": 3, "vision/ada": 4, "solo/bo": 0.5},
)


def test_the_tree_names_and_weighs_its_accounts() -> None:
    shares = Shares(TREE)
    ada, chen, bo = shares.path("vision", "ada"), shares.path("speech", "chen"), shares.path("solo", "bo")
    assert (ada, chen, bo) == (("lab", "vision", "ada"), ("lab", "speech", "chen"), ("solo", "bo"))
    for path in (ada, chen, bo):
        shares.open(path)
    assert [shares.name(path) for path in (ada[:1], ada[:2], ada, bo[:1], bo)] == [
        "lab", "vision", "vision/ada", "solo", "solo/bo",
    ]  # fmt: skip
    weights = {shares.name(path): account.weight for path, account in shares.accounts.items() if path}
    assert weights == {
        "lab": 2, "vision": 3, "vision/ada": 4, "speech": 1, "speech/chen": 1, "solo": 1, "solo/bo": 0.5,
    }  # fmt: skip
    assert shares.accounts[()].weights == 3
    assert shares.accounts["lab",].weights == 4
    shares.reweigh("speech", 9)
    assert shares.accounts["lab",].weights == 12


def test_a_fair_share_used_halves_the_factor_at_its_level() -> None:
    shares = Shares(Sharing(held_hours=0.0))
    ada, bo = ("vision", "ada"), ("speech", "bo")
    shares.open(ada)
    shares.open(bo)
    usage = shares.accounts["vision",].usage
    half_the_cluster = 16 * usage.longest_h / 2
    assert isinstance(usage, Fading)
    usage.amount = half_the_cluster  # all that is fair for one of two equal projects
    assert shares.factor(ada, 16, 0.0) == pytest.approx(0.5)
    assert shares.factor(bo, 16, 0.0) == 1.0
    shares.reweigh("vision", 3)  # three quarters are fair now
    assert shares.factor(ada, 16, 0.0) == pytest.approx(0.5 ** (0.5 / 0.75))


def sharing_world(**how: Any) -> World:
    """A pipeline whose use is counted like this."""
    others = {name: how.pop(name) for name in ("backfill", "strategies", "guards") if name in how}
    return World(replace(PIPELINE, sharing=Sharing(**how), **others))


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
def test_a_tenant_pays_for_what_its_jobs_hold_until_they_are_over(
    how: dict[str, object], rate: float
) -> None:
    world = sharing_world(held_hours=0.0, **how)
    world.join("gpu01")
    job = world.submit(spec(2, cpu_milli=4000, memory_mib=16 * 1024, project="vision"))
    world.tick()
    shares, tenant = world.state.shares, ("vision", "ada")
    assert [shares.accounts[tenant[:depth]].usage.rate for depth in range(3)] == [pytest.approx(rate)] * 3
    world.now += HOUR
    world.start(job)
    world.exit(job)
    assert shares.accounts[tenant].usage.rate == 0.0
    assert shares.used(tenant, world.now) == pytest.approx(rate, rel=0.02)


def test_what_is_used_and_set_survives_in_rows() -> None:
    world = sharing_world()
    world.join("gpu01")
    world.submit(spec(2, project="vision"), user="ada")
    world.submit(spec(1, project="speech"), user="bo")
    world.tick()
    reply = world.tell(inputs.SetShare("vision", 5.0, "root")).reply
    assert isinstance(reply, Accepted)
    restored = State(PIPELINE.order, sharing=world.pipeline.sharing)
    recall(restored, notes_of(world.state))
    assert restored.shares.accounts == world.state.shares.accounts
    assert restored.shares.live == {"vision": 5.0}


def test_what_an_elastic_job_uses_on_nodes_that_it_got_later_is_noted() -> None:
    world = sharing_world()
    world.join("gpu01")
    job = world.submit(spec(16, nodes=2, gang=Gang(1, elastic=True)))
    world.tick()
    world.start(job)
    world.join("gpu02")
    grown = world.tell(inputs.Tick()).events
    noted_of = {note.name for note in noted(world.state, grown) if note.kind == USAGE}
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
def test_a_share_that_means_nothing_is_refused(share: str, how: dict[str, Any], where: str) -> None:
    assert World().refuse(inputs.SetShare(share, by="root", **how)).where == where


COUNTED: list[dict[str, Any]] = [{"half_life_s": DAY}, {"window_s": DAY}]


def stopped(world: World, job: int) -> str:
    """What is said of a job whose share is at its hard limit."""
    why = world.why(job)
    assert why.reason is Reason.SHARE
    assert reason_of(world.state, world.job(job)) is Reason.SHARE
    return why.sentence


@pytest.mark.parametrize("backfill", [Backfill.EASY, Backfill.CONSERVATIVE])
@pytest.mark.parametrize("counted", COUNTED)
def test_at_its_hard_limit_a_share_starts_nothing_until_less_counts(
    counted: dict[str, Any], backfill: Backfill
) -> None:
    """Eight GPU-hours of eight used; others pass, and hold nothing back for it."""
    world = sharing_world(held_hours=0.0, hard={"vision": 7.5}, backfill=backfill, **counted)
    world.join("gpu01")
    first = world.submit(spec(8, project="vision"))
    assert len(world.tick()) == 1
    world.start(first)
    world.now += HOUR
    world.exit(first)
    waits = world.submit(spec(1, project="vision", time_limit_s=HOUR), user="bo")
    other = world.submit(spec(8, project="speech"))
    assert [start.job for start in world.tick()] == [other]
    world.tick()
    assert stopped(world, waits).startswith("share 'vision' has used ")
    world.start(other)
    world.exit(other)
    assert world.tick() == []  # there is room for it, but no use
    told = world.state.shares.stopped(("vision", "bo"), world.now)
    assert told is not None
    assert told.until == pytest.approx(world.engine.next_at)
    foreseen = forecast(fork(world.engine), world.now).starts[waits].at
    assert foreseen == told.until
    assert world.now + 60 < told.until < world.now + DAY
    assert f"for another {duration(told.until - world.now)} at most" in stopped(world, waits)
    assert world.tick_at(told.until - 60) == []
    assert [start.job for start in world.tick_at(told.until)] == [waits]


@pytest.mark.parametrize("counted", COUNTED)
def test_what_runs_goes_on_and_is_waited_for(counted: dict[str, Any]) -> None:
    """What runs counts as well: the end is foretold by the limits of the jobs that run."""
    world = sharing_world(held_hours=1.0, hard={"vision": 3.0}, **counted)
    world.join("gpu01")
    first = world.submit(spec(4, project="vision", time_limit_s=2 * HOUR))
    second = world.submit(spec(1, project="vision", time_limit_s=HOUR))
    assert [start.job for start in world.tick()] == [first]
    world.start(first)
    assert "4 of 3 units" in stopped(world, second)
    limited = world.state.shares.stopped(("vision", "ada"), world.now)
    assert limited is not None
    assert limited.until == math.inf  # four more an hour: not while it runs
    foreseen = ends_of(world.state, limited, world.now)
    assert foreseen > world.now + 2 * HOUR
    assert forecast(fork(world.engine), world.now).starts[second].at == pytest.approx(foreseen)
    world.now += HOUR
    world.exit(first)  # sooner than it might have
    assert world.tick() == []
    assert world.engine.next_at < foreseen


def test_a_hard_limit_holds_for_all_below_it_and_is_set_and_lifted_live() -> None:
    world = sharing_world(organisations={"lab": ("vision", "speech")})
    world.join("gpu01")
    jobs = [world.submit(spec(1, project=name), user=user) for name, user in
            (("vision", "ada"), ("speech", "bo"), ("other", "cy"))]  # fmt: skip
    world.tell(inputs.SetShare("lab", None, "root", hard=0.0))
    assert [start.job for start in world.tick()] == [jobs[2]]
    assert "'lab' has used 0 of 0 units: nothing of it starts until its hard limit is raised" in stopped(
        world, jobs[0]
    )
    assert world.engine.next_at == math.inf
    again = world.restarted()
    again.join("gpu01")
    assert again.state.shares.hard == {"lab": 0.0}
    assert "'lab'" in stopped(again, jobs[1]) if not again.tick() else False
    world.tell(inputs.SetShare("lab", 2.0, "root", hard=1.5))
    assert [start.job for start in world.tick()] == [jobs[0], jobs[1]]
    more = world.submit(spec(1, project="vision"))
    assert world.tick() == []
    world.tell(inputs.SetShare("lab", None, "root", hard=-1))
    assert [start.job for start in world.tick()] == [more]
    assert world.state.shares.hard == {}


def test_whoever_is_stopped_has_nobody_ended_and_grows_no_more() -> None:
    """Room that others would have to make is not made for a share that may not start anything."""
    world = sharing_world(hard={"vision": 1.0}, strategies=(Priority(),), guards=Guards(min_runtime_s=0.0))
    world.join("gpu01")
    low = world.submit(spec(8, project="speech", priority=10))
    world.tick()
    world.start(low)
    world.tell(inputs.SetShare("vision", None, "root", hard=0.0))
    high = world.submit(spec(8, project="vision", priority=90))
    world.tick()
    assert not world.job(low).stopping
    assert "'vision'" in stopped(world, high)
    world.tell(inputs.SetShare("vision", None, "root", hard=1.0))
    world.tick()
    assert world.job(low).stopping is Reason.PREEMPTED
    world.tell(inputs.SetShare("vision", None, "root", hard=0.0))
    world.exit(low, code=None, signal=15, why="preempted")
    assert [start.job for start in world.tick()] == [low]  # the claim was let go


@pytest.mark.parametrize("usage", [Fading(DAY), Windowed(DAY)])
@given(
    steps=st.lists(st.tuples(st.floats(0, 3e4), st.floats(0, 8)), min_size=1, max_size=8),
    part=st.floats(0.05, 0.95),
)
def test_the_moment_foretold_is_when_use_has_come_down(
    usage: Fading | Windowed, steps: list[tuple[float, float]], part: float
) -> None:
    counted: Fading | Windowed = Fading(DAY) if isinstance(usage, Fading) else Windowed(DAY)
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
