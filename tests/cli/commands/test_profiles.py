"""The output of corral profiles."""

from __future__ import annotations

from dataclasses import replace

from cli.commands.policy.profiles import facts_of, profile_table
from wire.api.policy.profiles import ProfileView

VIEW = ProfileView(
    name="inference",
    queues=("online", "urgent"),
    projects=("serving",),
    users=(),
    terms=("pool in fast", "disk exists"),
    nodes=("a", "b"),
    gpus=16,
    shared=(),
    queued=3,
    running=1,
    policy={
        "order": "priority",
        "then": {"name": "fair"},
        "backfill": "aggressive",
        "backfill_delay_s": 60.0,
        "backfill_depth": 7,
        "filters": ["available", "gpu"],
        "scorers": {"pack": 100.0, "cost": {"weight": 10.0, "unit": 2.0}},
        "picker": "tightest",
    },
    preemption={"strategies": [{"name": "priority", "gap": 25}], "grace_s": 30.0, "rate": 5},
)


def test_profile_table_shows_scope_nodes_and_policy() -> None:
    everybody = replace(VIEW, name="default", queues=(), projects=(), shared=("inference",), terms=())
    _, first, second = profile_table().lines([VIEW, everybody], None)
    assert first.split("  ")[0] == "inference"
    assert "queue online or urgent, project serving" in first
    assert " -  " in first
    assert " all " in second
    assert second.split()[-2:] == ["3", "1"]


def test_failing_plugins_are_listed_with_the_error() -> None:
    whys = ("filter rack: KeyError: 'zone'", "scorer cost: ValueError: no price; it is not called again")
    assert dict(facts_of(replace(VIEW, failing=whys)))["failing"] == "\n".join(whys)
    assert dict(facts_of(VIEW))["failing"] == "", "a row without text is left out"


def test_profile_facts_show_its_whole_policy() -> None:
    facts = dict(facts_of(VIEW))
    assert facts["order"] == "priority, then fair"
    assert facts["backfill"] == "aggressive, by 60 s at most"
    assert facts["only nodes"] == "pool in fast\ndisk exists"
    assert facts["scorers"] == "100 pack\n10 cost (unit 2.0)"
    assert facts["preempts by"] == "priority (gap 25)"
    assert facts["protects"] == "grace_s 30, rate 5"
