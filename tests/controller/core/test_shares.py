"""Who used how much: fading, windows, the tree, and the factor that orders are made of."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core import inputs
from controller.core.inputs import Accepted
from controller.core.notes import notes_of, recall
from controller.core.plugin import Pipeline
from controller.core.shares import Shares, Sharing
from controller.core.state import State
from controller.core.usage import Fading, Windowed
from tests.worlds import PIPELINE, World, spec

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


def sharing_world(**how: object) -> World:
    """A pipeline whose use is counted like this."""
    return World(Pipeline(PIPELINE.order, PIPELINE.filters, PIPELINE.scorers, PIPELINE.picker,
                          sharing=Sharing(**how)))  # type: ignore[arg-type]  # fmt: skip


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


@pytest.mark.parametrize(
    ("share", "weight", "where"),
    [("vision", 0, "weight"), ("vision", math.inf, "weight"), ("vision", math.nan, "weight"),
     ("", 1, "share"), ("a/b/c", 1, "share"), ("a/", 1, "share")],
)  # fmt: skip
def test_a_weight_that_means_nothing_is_refused(share: str, weight: float, where: str) -> None:
    assert World().refuse(inputs.SetShare(share, weight, "root")).where == where
