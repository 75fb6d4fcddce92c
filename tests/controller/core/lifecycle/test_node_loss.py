"""Silent nodes: which jobs wait, which are requeued, and when that is safe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.lifecycle.node_loss import NodeLossPolicy
from controller.core.model.decision.decision import Accepted, Refusal
from controller.core.model.inputs import agent_inputs, job_inputs, node_inputs
from controller.core.model.inputs.input import Input
from tests.engine_harness import PIPELINE, EngineHarness, facts, spec
from wire.agent.orders import Settle, Start
from wire.agent.reports import AttemptStatus, Hello
from wire.job.start_conditions import OnNodeLost, Restart, RestartWhen
from wire.names import JobState, NodeState, Reason

WAIT, REQUEUE, MANUAL = OnNodeLost.WAIT, OnNodeLost.REQUEUE, OnNodeLost.MANUAL
LOSSES = NodeLossPolicy(WAIT, lease_s=100.0, margin_s=20.0, down_after_s=60.0)
NO_EXECUTE = node_inputs.MarkNode("a", "root", {}, {"broken:NoExecute": ""})
SAFE_S = 100 + 10 + 20
"""Lease, the default grace, margin."""


def cluster(*names: str, losses: NodeLossPolicy = LOSSES) -> EngineHarness:
    harness = EngineHarness(replace(PIPELINE, losses=losses))
    for name in names:
        harness.join(name)
    return harness


def running(harness: EngineHarness, **more: Any) -> int:
    """A job on node a."""
    job = harness.submit(spec(gpus=8, **{"grace_s": 10.0, **more}))
    harness.tick()
    for node in harness.job(job).members:
        harness.tell(agent_inputs.AgentReported(node, AttemptStatus(job, 1, 7, harness.now)))
    assert "a" in harness.job(job).members
    return job


def lose(harness: EngineHarness, *names: str) -> None:
    for name in names:
        harness.tell(agent_inputs.LinkWentDown(name, "cable"))


def silent(harness: EngineHarness, name: str, for_s: float) -> None:
    harness.tell(agent_inputs.NodeSilent(name, for_s))
    harness.tick()


def state_of(harness: EngineHarness, name: str) -> NodeState:
    return harness.state.nodes.by_name[name].state


def test_node_goes_up_suspect_down_and_up_again() -> None:
    harness = cluster("a")
    silent(harness, "a", 1_000.0)  # The agent has connected while the report of the silence was in the inbox.
    assert state_of(harness, "a") is NodeState.UP
    lose(harness, "a")
    assert state_of(harness, "a") is NodeState.SUSPECT
    silent(harness, "a", 59)
    assert state_of(harness, "a") is NodeState.SUSPECT
    silent(harness, "a", 60)
    assert state_of(harness, "a") is NodeState.DOWN
    harness.join("a")
    assert state_of(harness, "a") is NodeState.UP
    silent(harness, "a", 1_000)  # silence measured before the node returned
    assert state_of(harness, "a") is NodeState.UP


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
def test_job_on_a_silent_node_by_policy_and_time(
    policy: OnNodeLost | None, for_s: float, becomes: JobState
) -> None:
    harness = cluster("a", "b")
    job = running(harness, on_node_lost=policy)
    lose(harness, "a")
    silent(harness, "a", for_s)
    assert harness.job(job).state is becomes
    if becomes is JobState.SCHEDULED:
        assert (list(harness.job(job).members), harness.job(job).attempt) == (["b"], 2)


def test_a_longer_grace_makes_the_wait_longer() -> None:
    harness = cluster("a", "b")
    job = running(harness, on_node_lost=REQUEUE, grace_s=1_000.0)
    lose(harness, "a")
    silent(harness, "a", SAFE_S + 989)
    assert harness.job(job).state is JobState.RUNNING
    silent(harness, "a", SAFE_S + 990)
    assert harness.job(job).attempt == 2


def test_start_order_carries_the_lease() -> None:
    harness = cluster("a", losses=replace(LOSSES, policy=REQUEUE))
    leases = {}
    for policy in (None, WAIT, REQUEUE, MANUAL):
        job = harness.submit(spec(gpus=1, on_node_lost=policy, lease_s=7.0))
        leases[policy] = job
    harness.tick()
    sent = {each.frame.job: each.frame.lease_s for each in harness.sent if isinstance(each.frame, Start)}
    assert [sent[leases[policy]] for policy in (None, WAIT, REQUEUE, MANUAL)] == [100.0, None, 100.0, None]


def test_a_job_goes_on_when_its_node_is_back_in_time() -> None:
    harness = cluster("a", "b")
    job = running(harness, on_node_lost=REQUEUE)
    lose(harness, "a")
    silent(harness, "a", SAFE_S - 1)
    harness.join("a", (AttemptStatus(job, 1, 7, 1.0),))
    silent(harness, "a", SAFE_S)
    assert (harness.job(job).state, harness.job(job).attempt) == (JobState.RUNNING, 1)


def test_a_job_is_requeued_at_once_when_its_supervisor_reports_the_end() -> None:
    harness = cluster("a", "b")
    job = running(harness, on_node_lost=REQUEUE)
    lose(harness, "a")
    harness.join(
        "a", (AttemptStatus(job, 1, 7, 1.0, 101.0, signal=15, why="node_lost: no word for the lease"),)
    )
    assert (harness.job(job).state, harness.job(job).reason) == (JobState.QUEUED, Reason.NODE_LOST)
    harness.tick()
    assert harness.job(job).attempt == 2


def test_a_report_of_a_lost_attempt_is_settled_and_changes_nothing() -> None:
    harness = cluster("a", "b")
    job = running(harness, on_node_lost=REQUEUE)
    lose(harness, "a")
    silent(harness, "a", SAFE_S)
    harness.sent.clear()
    harness.join("a", (AttemptStatus(job, 1, 7, 1.0, 101.0, code=0),))
    assert [each.frame for each in harness.sent] == [Settle(job, 1)]
    assert (harness.job(job).state, harness.job(job).attempt) == (JobState.SCHEDULED, 2)


def test_a_gang_waits_until_its_last_member_is_over() -> None:
    harness = cluster("a", "b", "c", "d")
    job = harness.submit(spec(gpus=16, nodes=2, on_node_lost=REQUEUE))
    harness.tick()
    for node in ("a", "b"):
        harness.tell(agent_inputs.AgentReported(node, AttemptStatus(job, 1, 7, harness.now)))
    lose(harness, "a")
    silent(harness, "a", SAFE_S)
    assert (harness.job(job).state, harness.job(job).stopping) == (JobState.RUNNING, Reason.MEMBER_FAILED)
    over = AttemptStatus(job, 1, 7, 1.0, harness.now, signal=15, why="member_failed")
    harness.tell(agent_inputs.AgentReported("b", over))
    harness.tick()
    assert (harness.job(job).state, harness.job(job).attempt) == (JobState.SCHEDULED, 2)
    assert "a" not in harness.job(job).members


@pytest.mark.parametrize(
    ("policy", "state", "attempt"),
    [(WAIT, JobState.FAILED, 1), (MANUAL, JobState.SCHEDULED, 2), (REQUEUE, JobState.SCHEDULED, 2)],
)
def test_operator_declares_a_node_lost(policy: OnNodeLost, state: JobState, attempt: int) -> None:
    harness = cluster("a", "b")
    job = running(harness, on_node_lost=policy)
    refused = harness.tell(node_inputs.DeclareLost("a", "root")).reply
    assert isinstance(refused, Refusal)
    assert "node a is up" in refused.message
    lose(harness, "a")
    busy = harness.tell(node_inputs.RemoveNode("a", "root")).reply
    assert isinstance(busy, Refusal)
    assert "first run 'corral nodes lost a'" in busy.hint
    assert isinstance(harness.tell(node_inputs.DeclareLost("a", "root")).reply, Accepted)
    harness.tick()
    assert (harness.job(job).state, harness.job(job).attempt) == (state, attempt)
    assert state_of(harness, "a") is NodeState.DOWN
    assert harness.state.nodes.by_name["a"].why == "declared lost by root"
    assert isinstance(harness.tell(node_inputs.RemoveNode("a", "root")).reply, Accepted)


def test_a_restart_policy_applies_when_the_loss_policy_is_wait() -> None:
    harness = cluster("a", "b")
    job = running(harness, on_node_lost=WAIT, restart=Restart(RestartWhen.ON_FAILURE, delay_s=0.0))
    lose(harness, "a")
    harness.tell(node_inputs.DeclareLost("a", "root"))
    harness.tick()
    assert harness.job(job).attempt == 2


def test_a_cancelled_job_on_a_lost_node_is_not_requeued() -> None:
    harness = cluster("a", "b")
    job = running(harness, on_node_lost=REQUEUE)
    lose(harness, "a")
    harness.tell(job_inputs.Cancel(job, "ada"))
    silent(harness, "a", SAFE_S)
    assert harness.job(job).state is JobState.CANCELLED


def test_a_reboot_counts_as_a_loss() -> None:
    harness = cluster("a", "b")
    requeued, lost = running(harness, on_node_lost=REQUEUE), harness.submit(spec(gpus=8))
    harness.tick()
    assert list(harness.job(lost).members) == ["b"]
    harness.join("a", boot="b2")
    harness.join("b", boot="b2")
    assert harness.job(requeued).state is JobState.QUEUED
    assert (harness.job(lost).state, harness.job(lost).reason) == (JobState.FAILED, Reason.NODE_LOST)


LOST = {
    "reboot": lambda harness: harness.join("a", boot="b2"),
    "lease": lambda harness: silent_now(harness, agent_inputs.NodeSilent("a", 1e6)),
    "declared lost": lambda harness: silent_now(harness, node_inputs.DeclareLost("a", "root")),
    "supervisor lost": lambda harness: harness.exit(1, None, why="supervisor_lost: killed"),
}
EVICTING = {
    "preempted": lambda harness, job: harness.tell(job_inputs.Preempt(job, "root")),
    "evicted": lambda harness, _: harness.tell(NO_EXECUTE),
}


def silent_now(harness: EngineHarness, given: Input) -> None:
    lose(harness, "a")
    harness.tell(given)


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("eviction", EVICTING)
@pytest.mark.parametrize("policy", [WAIT, MANUAL, REQUEUE], ids=lambda each: each.value)
def test_a_lost_job_that_was_stopped_for_a_requeue_is_requeued(
    policy: OnNodeLost, eviction: str, lost: str
) -> None:
    """Whatever its policy for lost nodes, and although its restarts are used up: a requeue is no restart."""
    if lost == "lease" and policy is not REQUEUE:
        return  # silence alone does not end jobs without a lease
    harness = cluster("a")
    job = running(harness, on_node_lost=policy, restart=Restart(RestartWhen.ON_FAILURE, 1, delay_s=0.0))
    harness.exit(job, 1)
    harness.tick()
    harness.start(job)
    assert harness.job(job).wait.restarts == 1
    EVICTING[eviction](harness, job)
    assert harness.stops() == [("a", job)]
    LOST[lost](harness)
    assert (harness.job(job).state, harness.job(job).wait.restarts) == (JobState.QUEUED, 1)


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (WAIT, "was on a, which is silent: it waits for a"),
        (MANUAL, "it waits for a, or for 'corral nodes lost a'"),
        (REQUEUE, "it is queued again when a has been silent for 2m10s"),
    ],
)
def test_explain_of_a_job_on_a_silent_node(policy: OnNodeLost, sentence: str) -> None:
    harness = cluster("a")
    job = running(harness, on_node_lost=policy)
    lose(harness, "a")
    assert sentence in harness.engine.explain(harness.job(job), harness.now).sentence


def test_explain_of_a_job_whose_restarts_are_used_up_when_its_node_is_lost() -> None:
    harness = cluster("a")
    job = running(harness, on_node_lost=REQUEUE, restart=Restart(RestartWhen.ON_FAILURE, 1, delay_s=0.0))
    harness.exit(job, 1)
    harness.tick()
    harness.start(job)
    lose(harness, "a")
    assert "it fails when a has been silent for 2m10s" in harness.why(job).sentence
    silent(harness, "a", SAFE_S)
    assert harness.job(job).state is JobState.FAILED


def test_job_on_a_node_without_leases_is_never_lost_by_silence() -> None:
    """Nothing on such a node ends the job when its lease is over, so the job may still run."""
    harness = cluster()
    hello = Hello("a", "0", "b1", "i", replace(facts("a"), leases=False))
    harness.tell(agent_inputs.AgentSaidHello("a", hello))
    job = running(harness, on_node_lost=REQUEUE)
    lose(harness, "a")
    silent(harness, "a", 1e6)
    assert state_of(harness, "a") is NodeState.DOWN
    assert harness.job(job).state is JobState.RUNNING
    assert "it waits for a" in harness.why(job).sentence
