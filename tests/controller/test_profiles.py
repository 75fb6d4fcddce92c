"""[profiles]: inherited settings, own settings, and mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.config import Config, ConfigRefused, load, render
from controller.core.framework.interfaces import PreemptionGuards
from controller.core.framework.profiles import Profile
from controller.plugins.backfill.kinds import Aggressive, Conservative, NoBackfill
from controller.registry import build_pipeline
from tests.engine_harness import EngineHarness, spec

EXAMPLE = Path(__file__).parents[2] / "examples" / "profiles.toml"

TOP = """
[scheduler]
order = "priority"
then = "fair"
backfill = "conservative"
backfill_depth = 7
[preemption]
strategies = ["priority"]
rate = 3
"""


def written(directory: Path, text: str) -> Path:
    path = directory / "scheduler.toml"
    path.write_text(text)
    return path


def profiles(directory: Path, text: str) -> dict[str, Profile]:
    pipeline = build_pipeline(load(written(directory, TOP + text)))
    return {each.name: each for each in pipeline.profiles}


def test_profile_inherits_omitted_settings(tmp_path: Path) -> None:
    found = profiles(tmp_path, "[profiles.same]\n[profiles.other]\nbackfill = 'none'\n")
    top = build_pipeline(load(written(tmp_path, TOP)))
    assert list(found) == ["same", "other", "default"]
    same, other = found["same"].policy, found["other"].policy
    assert (same.order, same.filters, same.scorers, same.strategies) == (
        top.order,
        top.filters,
        top.scorers,
        top.strategies,
    )
    assert (same.backfill, same.guards) == (Conservative(depth=7), PreemptionGuards(rate=3))
    assert (other.backfill, other.order) == (NoBackfill(), top.order)
    assert found["default"].policy == same


def test_profile_sets_every_key(tmp_path: Path) -> None:
    text = """
[profiles.fast]
queues = ["online"]
nodes = ["a", "b"]
select = { pool = "x" }
affinity = ["disk exists"]
order = "fifo"
strategy = "pack"
backfill = "aggressive"
backfill_delay_s = 5.0
filters = ["gpu", "capacity", "available"]
[profiles.fast.preemption]
strategies = [{ name = "priority", gap = 5 }]
grace_s = 1.0
"""
    fast = profiles(tmp_path, text)["fast"]
    assert (fast.queues, list(map(str, fast.nodes))) == (
        ("online",),
        ["node in a,b", "pool in x", "disk exists"],
    )
    policy = fast.policy
    assert (policy.order.name, policy.backfill) == ("fifo", Aggressive(max_delay_s=5.0))
    assert [each.name for each in policy.filters] == ["gpu", "capacity", "available"]
    assert (policy.scorers[0].scorer.name, policy.picker.name) == ("pack", "tightest")
    assert policy.guards == PreemptionGuards(grace_s=1.0, rate=3)
    assert getattr(policy.strategies[0], "gap") == 5  # noqa: B009 - a strategy need not have one


def test_default_profile_may_have_nodes_and_a_policy_but_no_scope(tmp_path: Path) -> None:
    found = profiles(
        tmp_path, "[profiles.default]\nselect = { pool = 'rest' }\n[profiles.a]\nusers = ['ada']\n"
    )
    assert list(found) == ["a", "default"]
    assert str(found["default"].nodes[0]) == "pool in rest"


BROKEN = [
    ("backfil = 'none'", "profiles.x.backfil: there is no such key. Did you mean 'backfill'?"),
    ("order = 'fif'", "profiles.x.order: there is no order 'fif'. Did you mean 'fifo'?"),
    ("then = { name = 'fair', no = 1 }", "profiles.x.then.no: there is no such key."),
    (
        "filters = ['gpu', 'gpuu', 'available', 'capacity']",
        "profiles.x.filters[1]: there is no filter 'gpuu'",
    ),
    ("filters = ['gpu']", "the required filter available, capacity is missing"),
    ("scorers = { pakc = 1 }", "profiles.x.scorers.pakc: there is no scorer 'pakc'. Did you mean 'pack'?"),
    ("picker = 'none'", "profiles.x.picker: there is no picker 'none'"),
    ("affinity = ['pool is x']", "profiles.x.affinity[0]: cannot read 'pool is x'"),
    ("nodes = ['a b']", "profiles.x.nodes[0]"),
    ("queues = 'online'", "profiles.x.queues: must be a list"),
    ("preemption = { strategies = ['prio'] }", "profiles.x.preemption.strategies[0]: there is no preemption"),
    (
        "preemption = { grace = 1 }",
        "profiles.x.preemption.grace: there is no such key. Did you mean 'grace_s'?",
    ),
    ("strategy = 'pakc'", "profiles.x.strategy: must be 'thrift'"),
]


@pytest.mark.parametrize(("line", "message"), BROKEN)
def test_invalid_profile_is_refused_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path, f"[profiles.x]\n{line}\n")
    with pytest.raises(ConfigRefused) as caught:
        build_pipeline(load(path))
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"{path}:2: ")
    assert message in str(problem)


def test_invalid_scopes_are_refused(tmp_path: Path) -> None:
    text = (
        "[queues.online]\n[profiles.x]\nqueues = ['default', 'onlin']\n[profiles.default]\nusers = ['ada']\n"
    )
    with pytest.raises(ConfigRefused) as caught:
        build_pipeline(load(written(tmp_path, text)))
    queue, default = map(str, caught.value.problems)
    assert ":3: profiles.x.queues[1]: there is no queue 'onlin'. Did you mean 'online'?" in queue
    assert (
        ":5: profiles.default.users: the default profile is for all jobs without another profile" in default
    )


def test_rebalancing_is_refused_with_several_profiles(tmp_path: Path) -> None:
    with pytest.raises(ConfigRefused) as caught:
        build_pipeline(load(written(tmp_path, "[profiles.x]\n[rebalance]\nmode = 'auto'\n")))
    assert ":3: rebalance.mode: rebalancing does not work together with [profiles]" in str(caught.value)


def test_what_is_rendered_loads_as_the_same(tmp_path: Path) -> None:
    config = load(EXAMPLE)
    again = load(written(tmp_path, render(config)))
    assert again == config
    assert build_pipeline(again) == build_pipeline(config)


def test_one_profile_alone() -> None:
    alone = load(EXAMPLE).of_profile("training")
    assert build_pipeline(alone).order.name == "fair"
    assert (alone.profiles, alone.preemption.min_runtime_s) == ({}, 1_800.0)
    assert Config().of_profile("default") == Config()


# --- a story, on the cluster of examples/profiles.toml ---


def example() -> EngineHarness:
    """Its nodes, joined."""
    config = load(EXAMPLE)
    harness = EngineHarness(build_pipeline(config))
    for name, node in config.nodes.items():
        harness.join(name, labels=node.labels)
    return harness


def test_two_kinds_of_jobs_on_one_cluster() -> None:
    harness = example()
    serving = [harness.submit(spec(2, queue="online"), "serving") for _ in range(6)]
    training = [harness.submit(spec(8, time_limit_s=7_200.0)) for _ in range(4)]
    harness.tick()
    # Packed: one host for inference is filled before the next is touched.
    assert [harness.nodes_of(job) for job in serving] == [["inf1"]] * 4 + [["inf2"]] * 2
    # Training has the shared host and its own.
    assert [harness.nodes_of(job) for job in training] == [["shared1"], ["train1"], ["train2"], ["train3"]]
    why = harness.why(harness.submit(spec(8)))
    assert (why.position, why.losses[0].message) == (1, "outside profile training")
    assert why.losses[0].examples == ("inf1", "inf2")


def test_an_urgent_request_has_training_ended_on_the_shared_host_after_half_an_hour() -> None:
    harness = example()
    training = [harness.submit(spec(8, priority=25)) for _ in range(4)]
    harness.tick()
    busy = [harness.submit(spec(8, queue="online", priority=80), "serving") for _ in range(2)]
    harness.tick()
    for job in (*training, *busy):
        harness.start(job)
    assert sorted(harness.nodes_of(job)[0] for job in busy) == ["inf1", "inf2"]
    (shared,) = [job for job in training if harness.nodes_of(job) == ["shared1"]]
    urgent = harness.submit(spec(4, queue="online", priority=100), "serving")
    harness.tick()
    harness.tick_at(harness.now + 1_799.0)
    assert harness.stops() == []
    harness.tick_at(harness.now + 1.0)
    assert harness.stops() == [("shared1", shared)]
    harness.exit(shared, code=None, signal=15, why="preempted")
    harness.tick()
    assert harness.nodes_of(urgent) == ["shared1"]
