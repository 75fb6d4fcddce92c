"""A node is not heard of any more: who waits, who starts anew, and when that is safe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core import inputs
from controller.core.inputs import Accepted, Refusal
from controller.core.losses import Losses
from tests.worlds import PIPELINE, World, spec
from wire.conditions import OnNodeLost, Restart, RestartWhen
from wire.frames import AttemptStatus, Settle, Start
from wire.words import JobState, NodeState, Reason

WAIT, REQUEUE, MANUAL = OnNodeLost.WAIT, OnNodeLost.REQUEUE, OnNodeLost.MANUAL
LOSSES = Losses(WAIT, lease_s=100.0, margin_s=20.0, down_after_s=60.0)
NO_EXECUTE = inputs.MarkNode("a", "root", {}, {"broken:NoExecute": ""})
SAFE_S = 100 + 10 + 20
"""Lease, the default grace, margin."""


def cluster(*names: str, losses: Losses = LOSSES) -> World:
    world = World(replace(PIPELINE, losses=losses))
    for name in names:
        world.join(name)
    return world


def running(world: World, **more: Any) -> int:
    """A job on node a."""
    job = world.submit(spec(gpus=8, **more))
    world.tick()
    for node in world.job(job).members:
        world.tell(inputs.AgentReported(node, AttemptStatus(job, 1, 7, world.now)))
    assert "a" in world.job(job).members
    return job


def lose(world: World, *names: str) -> None:
    for name in names:
        world.tell(inputs.LinkWentDown(name, "cable"))


def silent(world: World, name: str, for_s: float) -> None:
    world.tell(inputs.NodeSilent(name, for_s))
    world.tick()


def state_of(world: World, name: str) -> NodeState:
    return world.state.nodes.by_name[name].state


def test_up_suspect_down_and_up_again() -> None:
    world = cluster("a")
    assert state_of(world, "a") is NodeState.UP
    lose(world, "a")
    assert state_of(world, "a") is NodeState.SUSPECT
    silent(world, "a", 59)
    assert state_of(world, "a") is NodeState.SUSPECT
    silent(world, "a", 60)
    assert state_of(world, "a") is NodeState.DOWN
    world.join("a")
    assert state_of(world, "a") is NodeState.UP
    silent(world, "a", 1_000)  # counted before it came back
    assert state_of(world, "a") is NodeState.UP


@pytest.mark.parametrize(
    ("policy", "for_s", "becomes"),
    [
        (WAIT, 1e9, JobState.RUNNING),
        (None, 1e9, JobState.RUNNING),
        (MANUAL, 1e9, JobState.RUNNING),
        (REQUEUE, SAFE_S - 0.1, JobState.RUNNING),
        (REQUEUE, SAFE_S, JobState.SCHEDULED),
    ],
)
def test_silence(policy: OnNodeLost | None, for_s: float, becomes: JobState) -> None:
    world = cluster("a", "b")
    job = running(world, on_node_lost=policy)
    lose(world, "a")
    silent(world, "a", for_s)
    assert world.job(job).state is becomes
    if becomes is JobState.SCHEDULED:
        assert (list(world.job(job).members), world.job(job).attempt) == (["b"], 2)


def test_a_longer_grace_makes_the_wait_longer() -> None:
    world = cluster("a", "b")
    job = running(world, on_node_lost=REQUEUE, grace_s=1_000.0)
    lose(world, "a")
    silent(world, "a", SAFE_S + 989)
    assert world.job(job).state is JobState.RUNNING
    silent(world, "a", SAFE_S + 990)
    assert world.job(job).attempt == 2


def test_the_order_to_start_carries_the_lease() -> None:
    world = cluster("a", losses=replace(LOSSES, policy=REQUEUE))
    leases = {}
    for policy in (None, WAIT, REQUEUE, MANUAL):
        job = world.submit(spec(gpus=1, on_node_lost=policy, lease_s=7.0))
        leases[policy] = job
    world.tick()
    sent = {each.frame.job: each.frame.lease_s for each in world.sent if isinstance(each.frame, Start)}
    assert [sent[leases[policy]] for policy in (None, WAIT, REQUEUE, MANUAL)] == [100.0, None, 100.0, None]


def test_who_comes_back_in_time_goes_on() -> None:
    world = cluster("a", "b")
    job = running(world, on_node_lost=REQUEUE)
    lose(world, "a")
    silent(world, "a", SAFE_S - 1)
    world.join("a", (AttemptStatus(job, 1, 7, 1.0),))
    silent(world, "a", SAFE_S)
    assert (world.job(job).state, world.job(job).attempt) == (JobState.RUNNING, 1)


def test_a_supervisor_that_ended_it_tells_and_it_starts_anew_at_once() -> None:
    world = cluster("a", "b")
    job = running(world, on_node_lost=REQUEUE)
    lose(world, "a")
    world.join(
        "a", (AttemptStatus(job, 1, 7, 1.0, 101.0, signal=15, why="node_lost: no word for the lease"),)
    )
    assert (world.job(job).state, world.job(job).reason) == (JobState.QUEUED, Reason.NODE_LOST)
    world.tick()
    assert world.job(job).attempt == 2


def test_what_comes_back_too_late_is_put_to_rest_and_changes_nothing() -> None:
    world = cluster("a", "b")
    job = running(world, on_node_lost=REQUEUE)
    lose(world, "a")
    silent(world, "a", SAFE_S)
    world.sent.clear()
    world.join("a", (AttemptStatus(job, 1, 7, 1.0, 101.0, code=0),))
    assert [each.frame for each in world.sent] == [Settle(job, 1)]
    assert (world.job(job).state, world.job(job).attempt) == (JobState.SCHEDULED, 2)


def test_a_gang_waits_until_its_last_member_is_over() -> None:
    world = cluster("a", "b", "c", "d")
    job = world.submit(spec(gpus=16, nodes=2, on_node_lost=REQUEUE))
    world.tick()
    for node in ("a", "b"):
        world.tell(inputs.AgentReported(node, AttemptStatus(job, 1, 7, world.now)))
    lose(world, "a")
    silent(world, "a", SAFE_S)
    assert (world.job(job).state, world.job(job).stopping) == (JobState.RUNNING, Reason.MEMBER_FAILED)
    over = AttemptStatus(job, 1, 7, 1.0, world.now, signal=15, why="member_failed")
    world.tell(inputs.AgentReported("b", over))
    world.tick()
    assert (world.job(job).state, world.job(job).attempt) == (JobState.SCHEDULED, 2)
    assert "a" not in world.job(job).members


@pytest.mark.parametrize(
    ("policy", "state", "attempt"),
    [(WAIT, JobState.FAILED, 1), (MANUAL, JobState.SCHEDULED, 2), (REQUEUE, JobState.SCHEDULED, 2)],
)
def test_an_operator_declares_it_lost(policy: OnNodeLost, state: JobState, attempt: int) -> None:
    world = cluster("a", "b")
    job = running(world, on_node_lost=policy)
    refused = world.tell(inputs.DeclareLost("a", "root")).reply
    assert isinstance(refused, Refusal)
    assert "node a is up" in refused.message
    lose(world, "a")
    busy = world.tell(inputs.RemoveNode("a", "root")).reply
    assert isinstance(busy, Refusal)
    assert "'corral nodes lost a' first" in busy.hint
    assert isinstance(world.tell(inputs.DeclareLost("a", "root")).reply, Accepted)
    world.tick()
    assert (world.job(job).state, world.job(job).attempt) == (state, attempt)
    assert state_of(world, "a") is NodeState.DOWN
    assert world.state.nodes.by_name["a"].why == "declared lost by root"
    assert isinstance(world.tell(inputs.RemoveNode("a", "root")).reply, Accepted)


def test_a_restart_policy_has_its_say_where_waiting_was_the_policy() -> None:
    world = cluster("a", "b")
    job = running(world, on_node_lost=WAIT, restart=Restart(RestartWhen.ON_FAILURE, delay_s=0.0))
    lose(world, "a")
    world.tell(inputs.DeclareLost("a", "root"))
    world.tick()
    assert world.job(job).attempt == 2


def test_who_cancelled_it_gets_it_cancelled() -> None:
    world = cluster("a", "b")
    job = running(world, on_node_lost=REQUEUE)
    lose(world, "a")
    world.tell(inputs.Cancel(job, "ada"))
    silent(world, "a", SAFE_S)
    assert world.job(job).state is JobState.CANCELLED


def test_a_reboot_is_a_loss_as_well() -> None:
    world = cluster("a", "b")
    anew, lost = running(world, on_node_lost=REQUEUE), world.submit(spec(gpus=8))
    world.tick()
    assert list(world.job(lost).members) == ["b"]
    world.join("a", boot="b2")
    world.join("b", boot="b2")
    assert world.job(anew).state is JobState.QUEUED
    assert (world.job(lost).state, world.job(lost).reason) == (JobState.FAILED, Reason.NODE_LOST)


@pytest.mark.parametrize(
    ("policy", "state"), [(REQUEUE, JobState.QUEUED), (WAIT, JobState.FAILED)], ids=lambda each: each.value
)
def test_who_was_to_make_room_when_its_node_was_lost_does_as_it_says(
    policy: OnNodeLost, state: JobState
) -> None:
    for way in (lambda job: inputs.Preempt(job, "root"), lambda _: NO_EXECUTE):
        world = cluster("a")
        job = running(world, on_node_lost=policy)
        world.tell(way(job))
        assert world.stops() == [("a", job)]
        world.join("a", boot="b2")
        assert world.job(job).state is state


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (WAIT, "was on a, which is not heard of: it waits for a"),
        (MANUAL, "it waits for a, or for 'corral nodes lost a'"),
        (REQUEUE, "it starts anew 1m40s after it was lost, if a stays silent"),
    ],
)
def test_explain_tells_what_it_waits_for(policy: OnNodeLost, told: str) -> None:
    world = cluster("a")
    job = running(world, on_node_lost=policy)
    lose(world, "a")
    assert told in world.engine.explain(world.job(job), world.now).sentence
