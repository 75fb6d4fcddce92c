"""Replicas of services: their number, restarts, replacements, health, and crashes of the controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from controller.core.lifecycle.idle_gpus import IdleAction, IdlePolicy
from controller.core.model.inputs import (
    agent_inputs,
    controller_inputs,
    job_inputs,
    node_inputs,
    policy_inputs,
)
from controller.core.model.services import MOVE_BEFORE_S, Service
from tests.controller.core.services.services import (
    HEALTH,
    act,
    pipeline_with,
    reconnect,
    replicas,
    running_on,
    service,
    settle,
)
from tests.engine_harness import EngineHarness, spec
from wire.cluster.reservation import ReservationSpec
from wire.names import JobState, Reason


def running(*services: Service, nodes: int = 3) -> EngineHarness:
    harness = EngineHarness(pipeline_with(*services))
    for number in range(nodes):
        harness.join(f"gpu{number}")
    settle(harness)
    return harness


def ready(harness: EngineHarness) -> int:
    return sum(job.state is JobState.RUNNING and job.stopping is None for job in replicas(harness))


def test_replicas_run_on_different_nodes_and_know_their_number() -> None:
    harness = running(service(replicas=3))
    jobs = replicas(harness)
    assert sorted(harness.nodes_of(job.id)[0] for job in jobs) == ["gpu0", "gpu1", "gpu2"]
    assert [job.name for job in jobs] == ["web.0", "web.1", "web.2"]
    assert [job.spec.env["CORRAL_REPLICA"] for job in jobs] == ["0", "1", "2"]
    assert {job.user for job in jobs} == {"ada"}


def test_an_idle_service_needs_no_more_scheduling_passes() -> None:
    harness = running(service(replicas=2))
    assert harness.engine.services.next_at == float("inf")
    before = len(harness.events)
    harness.tick_at(harness.now + 3_600)
    assert harness.events[before:] == []


def test_a_cancelled_replica_is_queued_again_as_another_job_in_its_place() -> None:
    harness = running(service(replicas=2))
    first = replicas(harness)[0]
    node = harness.nodes_of(first.id)
    harness.tell(job_inputs.Cancel(first.id, "ada"))
    settle(harness)
    other = replicas(harness)[0]
    assert other.id > first.id
    assert harness.nodes_of(other.id) == node
    assert harness.job(first.id).state is JobState.CANCELLED


def test_a_failed_replica_keeps_its_gpus_and_starts_after_its_delay() -> None:
    harness = running(service(), nodes=1)
    (job,) = replicas(harness)
    gpus = harness.gpus_of(job.id)
    harness.submit(spec(4, time_limit_s=9e6))
    harness.tick()
    harness.exit(job.id, 1)
    waiting = harness.submit(spec(4, time_limit_s=60))
    harness.tick()
    assert (harness.job(waiting).state, job.state) == (JobState.QUEUED, JobState.QUEUED)
    assert harness.why(job.id).reason is Reason.BACKOFF
    (start,) = harness.tick_at(harness.now + 10)
    assert (start.job, start.attempt) == (job.id, 2)
    assert harness.gpus_of(job.id) == gpus


def test_a_replica_does_not_wait_for_the_gpus_of_a_lost_node() -> None:
    harness = running(service(), nodes=2)
    (job,) = replicas(harness)
    (node,) = harness.nodes_of(job.id)
    harness.tell(agent_inputs.LinkWentDown(node, "cut"))
    harness.tell(node_inputs.DeclareLost(node, "root"))
    settle(harness)
    assert harness.nodes_of(job.id) != [node]
    assert job.state is JobState.RUNNING


def test_a_restart_begins_the_next_replica_when_the_one_before_is_ready() -> None:
    harness = running(service(replicas=3, max_unavailable=1))
    old = {job.id for job in replicas(harness)}
    harness.tell(policy_inputs.RestartService("web", "root"))
    least = 3
    harness.tick()
    while act(harness) or harness.engine.next_at < float("inf"):
        least = min(least, ready(harness))
        harness.tick_at(max(harness.now, min(harness.engine.next_at, harness.now + 60)))
    assert least == 2
    jobs = replicas(harness)
    assert len(jobs) == 3
    assert old.isdisjoint(job.id for job in jobs)


def test_a_second_restart_waits_for_the_replica_that_is_still_being_ended() -> None:
    harness = running(service(), nodes=1)
    (first,) = replicas(harness)
    for _ in range(2):
        harness.tell(policy_inputs.RestartService("web", "root"))
        assert harness.tick() == []
    _, last = replicas(harness)
    assert last.id == 3
    assert harness.job(2).state is JobState.CANCELLED
    harness.exit(first.id, None, signal=15, why="cancelled")
    (start,) = harness.tick()
    assert start.job == last.id


def test_replicas_on_nodes_that_do_not_report_are_not_restarted() -> None:
    harness = running(service(replicas=3))
    for node in ("gpu0", "gpu1"):
        harness.tell(agent_inputs.LinkWentDown(node, "the controller has just started"))
    harness.tell(policy_inputs.RestartService("web", "root"))
    settle(harness)
    assert [job.stopping for job in replicas(harness)] == [None, None, None]
    harness.join("gpu0", running_on(harness, "gpu0"))
    settle(harness)
    assert sum(job.id > 3 for job in replicas(harness)) == 0, "two of three replicas would be unready"
    harness.join("gpu1", running_on(harness, "gpu1"))
    settle(harness)
    assert all(job.id > 3 for job in replicas(harness))


def test_max_unavailable_0_starts_each_replacement_first() -> None:
    harness = running(service(replicas=2, max_unavailable=0, health=HEALTH))
    harness.tell(policy_inputs.RestartService("web", "root"))
    harness.tick()
    while act(harness):
        assert sum(job.healthy is True and job.stopping is None for job in replicas(harness)) >= 2
        harness.tick()
    assert [job.replica.number for job in replicas(harness) if job.replica] == [0, 1]
    assert min(job.id for job in replicas(harness)) > 2


def test_a_reload_with_the_same_command_restarts_nothing() -> None:
    harness = running(service(replicas=2))
    jobs = [job.id for job in replicas(harness)]
    other = pipeline_with(service(replicas=2, max_unavailable=2, ready_after_s=1.0))
    harness.tell(controller_inputs.ApplyConfig("other", "root", other))
    settle(harness)
    assert [job.id for job in replicas(harness)] == jobs


def test_larger_replicas_do_not_get_the_gpus_of_the_smaller_ones() -> None:
    harness = running(service(replicas=1), nodes=2)
    (job,) = replicas(harness)
    harness.tell(controller_inputs.ApplyConfig("other", "root", pipeline_with(service(gpus=8))))
    settle(harness)
    (larger,) = replicas(harness)
    assert larger.id != job.id
    assert len(harness.gpus_of(larger.id)) == 8


def test_a_service_that_leaves_scheduler_toml_ends() -> None:
    harness = running(service(replicas=2), service("api"))
    harness.tell(controller_inputs.ApplyConfig("other", "root", pipeline_with(service("api"))))
    settle(harness)
    assert replicas(harness) == []
    assert len(replicas(harness, "api")) == 1
    assert {job.reason for job in harness.state.jobs.values() if job.state.terminal} == {Reason.SERVICE}


def test_scale_lasts_until_scheduler_toml_has_another_number() -> None:
    harness = running(service(replicas=2))
    harness.tell(policy_inputs.ScaleService("web", 3, "root"))
    settle(harness)
    assert len(replicas(harness)) == 3
    harness.tell(
        controller_inputs.ApplyConfig("other", "root", pipeline_with(service(replicas=2, priority=60)))
    )
    settle(harness)
    assert len(replicas(harness)) == 3
    harness.tell(
        controller_inputs.ApplyConfig("again", "root", pipeline_with(service(replicas=1, priority=60)))
    )
    settle(harness)
    assert len(replicas(harness)) == 1
    harness.tell(policy_inputs.ScaleService("web", 0, "root"))
    settle(harness)
    assert replicas(harness) == []
    harness.tell(policy_inputs.ScaleService("web", None, "root"))
    settle(harness)
    assert len(replicas(harness)) == 1
    assert harness.refuse(policy_inputs.ScaleService("wbe", 1, "root")).code == "not_found"
    assert harness.refuse(policy_inputs.ScaleService("web", -1, "root")).where == "replicas"
    assert harness.refuse(policy_inputs.RestartService("wbe", "root")).code == "not_found"


def test_a_service_that_no_node_can_hold_says_why_and_starts_when_one_can() -> None:
    harness = EngineHarness(pipeline_with(service(gpus=8)))
    harness.join("small", gpus=4)
    harness.tick()
    assert replicas(harness) == []
    assert "8 GPUs" in harness.engine.services.refusals["web"].message
    harness.join("large")
    settle(harness)
    assert len(replicas(harness)) == 1
    assert harness.engine.services.refusals == {}


def test_an_unhealthy_replica_restarts_with_its_delay() -> None:
    harness = running(service(health=HEALTH))
    (job,) = replicas(harness)
    harness.tell(agent_inputs.HealthReported(job.id, job.attempt, healthy=False, why="exit code 1"))
    assert job.stopping is Reason.UNHEALTHY
    harness.exit(job.id, 0)  # a server that ends well after the order is unhealthy all the same
    assert (job.state, job.reason) == (JobState.QUEUED, Reason.UNHEALTHY)
    assert job.detail == "restart 1 in 10s: unhealthy: exit code 1"
    settle(harness)
    assert (job.state, job.attempt, job.healthy) == (JobState.RUNNING, 2, True)
    harness.tell(agent_inputs.HealthReported(job.id, 1, healthy=False))
    harness.tell(agent_inputs.HealthReported(job.id, 2, healthy=False, node="gpu9"))
    assert job.healthy is True


def test_a_drained_node_gives_its_replica_to_another_before_it_ends() -> None:
    harness = running(service(replicas=2, health=HEALTH))
    first = replicas(harness)[0]
    (node,) = harness.nodes_of(first.id)
    harness.tell_drain(node)
    harness.tick()
    old, new, _ = replicas(harness)
    assert (old, new.replica.replaces if new.replica else 0) == (first, first.id)
    harness.start(new.id)
    harness.tick()
    assert old.stopping is None
    harness.tell(agent_inputs.HealthReported(new.id, 1, healthy=True))
    harness.tick()
    assert old.stopping is Reason.SERVICE
    settle(harness)
    assert len(replicas(harness)) == 2
    assert harness.state.nodes.by_name[node].held == {}


def test_maintenance_moves_replicas_half_an_hour_before_it_begins() -> None:
    harness = running(service(health=HEALTH), nodes=2)
    (job,) = replicas(harness)
    (node,) = harness.nodes_of(job.id)
    begins = harness.now + 86_400
    harness.tell(policy_inputs.Reserve(ReservationSpec("pdu", begins, 3_600.0, (node,)), "root"))
    settle(harness)
    assert replicas(harness) == [job]
    harness.exit(job.id, 1)
    settle(harness)
    assert harness.nodes_of(job.id) == [node], "until the move it may restart on the node"
    assert harness.engine.next_at == begins - MOVE_BEFORE_S
    harness.now = begins - MOVE_BEFORE_S
    settle(harness)
    (moved,) = replicas(harness)
    assert moved.id != job.id
    assert harness.nodes_of(moved.id) != [node]


def test_a_replica_that_cannot_move_runs_on_and_its_replacement_is_cancelled_after_the_maintenance() -> None:
    harness = running(service(health=HEALTH), nodes=1)
    (job,) = replicas(harness)
    begins = harness.now + MOVE_BEFORE_S
    harness.tell(policy_inputs.Reserve(ReservationSpec("pdu", begins, 3_600.0, ("gpu0",)), "root"))
    settle(harness)
    assert [each.state for each in replicas(harness)] == [JobState.RUNNING, JobState.QUEUED]
    harness.now = begins + 3_600
    settle(harness)
    assert replicas(harness) == [job]


def test_an_idle_replica_is_flagged_and_not_ended() -> None:
    idling = IdlePolicy(60.0, IdleAction.CANCEL, 60.0)
    harness = EngineHarness(replace(pipeline_with(service()), idling=idling))
    harness.join("gpu0")
    settle(harness)
    (job,) = replicas(harness)
    harness.tell(agent_inputs.GpusIdle(job.id, 1, harness.now))
    harness.now += 3_600
    harness.tell(agent_inputs.GpusIdle(job.id, 1, harness.now))
    assert job.idle_since is not None
    assert (job.idle_until, job.stopping) == (None, None)


def test_users_cannot_change_the_request_of_a_replica() -> None:
    harness = running(service())
    (job,) = replicas(harness)
    refused = harness.refuse(job_inputs.Edit(job.id, "ada", {"priority": 1}))
    assert refused.message == f"job {job.id} is a replica of service web"


@pytest.mark.parametrize(
    "change",
    [
        lambda harness: harness.tell(policy_inputs.RestartService("web", "root")),
        lambda harness: harness.tell_drain(harness.nodes_of(replicas(harness)[0].id)[0]),
        lambda harness: harness.exit(replicas(harness)[0].id, 1),
        lambda harness: harness.tell(policy_inputs.ScaleService("web", 3, "root")),
        lambda harness: harness.tell(job_inputs.Cancel(replicas(harness)[0].id, "ada")),
    ],
    ids=["restart", "drain", "failure", "scale", "cancel"],
)
def test_a_controller_killed_after_any_step_neither_loses_nor_doubles_replicas(
    change: Callable[[EngineHarness], object],
) -> None:
    """The controller is killed after step 1, after step 2 and so on; each time the outcome is the same."""
    outcomes = set()
    for killed_at in range(40):
        harness = running(service(replicas=2, health=HEALTH))
        change(harness)
        steps, over = 0, False
        while not over:
            if steps == killed_at:
                harness = reconnect(harness)
            steps += 1
            before = len(harness.events)
            harness.tick()
            over = not act(harness) and len(harness.events) == before and steps > killed_at
            if over and harness.engine.next_at < harness.now + 60:
                harness.now, over = max(harness.now, harness.engine.next_at), False
        jobs = replicas(harness)
        outcomes.add((tuple(job.replica.number for job in jobs if job.replica), harness.state.next_job))
        assert all(job.state is JobState.RUNNING and job.healthy for job in jobs)
    assert len(outcomes) == 1
