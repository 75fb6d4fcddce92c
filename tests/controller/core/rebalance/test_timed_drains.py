"""Drains with a time: which jobs still start, which are moved, and which are ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.core.forecast.forecast import forecast, fork
from controller.core.framework.interfaces import Backfill, PreemptionGuards
from controller.core.model.events.attempts import EndWarned
from controller.core.model.events.nodes import DrainBegan
from controller.core.model.events.nominations import MovePlanned
from controller.core.model.inputs import controller_inputs, node_inputs
from controller.core.quota.queue_rules import QueueRule
from controller.core.quota.quota_config import QuotaConfig
from controller.plugins.backfill.kinds import Conservative, Easy
from tests.controller.core.services.services import pipeline_with, replicas, service, settle
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.agent.orders import Note, Stop
from wire.agent.reports import Checkpoint
from wire.job.gangs import Gang
from wire.names import JobState, NodeState, Reason

NOW = 1_000.0
HOUR = 3_600.0
GRACE = 60.0
PLAIN = replace(PIPELINE, guards=PreemptionGuards(grace_s=GRACE))
SAVING = {"checkpoint_signal": "USR1", "checkpoint_s": 40.0}


def harness_of(*nodes: str, backfill: Backfill = Easy(), rules: QuotaConfig | None = None) -> EngineHarness:
    harness = EngineHarness(replace(PLAIN, backfill=backfill, rules=rules or PLAIN.rules))
    for node in nodes:
        harness.join(node)
    return harness


def running(harness: EngineHarness, **asked: object) -> int:
    job = harness.submit(spec(**{"gpus": 8, **asked}))  # type: ignore[arg-type]
    harness.tick()
    harness.start(job)
    return job


def drain(harness: EngineHarness, node: str, after: float = HOUR, why: str = "new fan") -> None:
    harness.tell(node_inputs.Drain(node, "root", why, harness.now + after))


def warnings(harness: EngineHarness) -> list[EndWarned]:
    return [event for event in harness.events if isinstance(event, EndWarned)]


def last_stop(harness: EngineHarness) -> Stop:
    return [sent.frame for sent in harness.sent if isinstance(sent.frame, Stop)][-1]


@pytest.mark.parametrize("backfill", [Easy(), Conservative()])
@pytest.mark.parametrize(
    ("limit", "starts"), [(HOUR - 10, True), (HOUR - 9, False), (None, False)], ids=["before", "over", "none"]
)
def test_only_jobs_that_end_before_the_time_start_on_the_node(
    backfill: Backfill, limit: float | None, starts: bool
) -> None:
    harness = harness_of("a", backfill=backfill)
    drain(harness, "a")
    job = harness.submit(spec(gpus=1, time_limit_s=limit, grace_s=10.0))
    assert bool(harness.tick()) == starts
    if not starts:
        assert harness.why(job).reason is Reason.RESERVATION
        assert "the drain of node a begins in 1h00m" in harness.why(job).sentence
    harness.tell(node_inputs.Resume("a", "root"))
    harness.tick()
    assert harness.job(job).state is JobState.SCHEDULED


def test_job_is_warned_and_moved_so_that_it_has_left_at_the_time() -> None:
    harness = harness_of("a", "b")
    job = running(harness, **SAVING)
    assert harness.nodes_of(job) == ["a"]
    drain(harness, "a")
    at = NOW + HOUR - GRACE - 40.0
    [warned] = [event for event in harness.events if isinstance(event, EndWarned)]
    assert (warned.job, warned.ends_at, warned.reason) == (job, at, Reason.DRAINED)
    [note] = [sent.frame for sent in harness.sent if isinstance(sent.frame, Note)]
    assert note.text == (
        "the drain of node a (new fan): the job is told to stop in 58m20s, and is then moved"
    )
    assert "node a is to be empty in 1h00m (new fan)" in harness.why(job).sentence
    harness.tick_at(at - 1)
    assert harness.stops() == []
    assert harness.engine.next_at == at
    harness.tick_at(at)
    assert harness.stops() == [("a", job)]
    assert (last_stop(harness).grace_s, last_stop(harness).checkpoint_s) == (GRACE, 40.0)
    [move] = [event for event in harness.events if isinstance(event, MovePlanned)]
    assert [each.node for each in move.allocations] == ["b"]
    assert "drain of its node" in harness.why(job).sentence
    saved = Checkpoint("/ckpt/7", 1, at + 10)
    harness.exit(job, None, signal=15, why="preempted", checkpoint=saved)
    [start] = harness.tick()
    assert harness.nodes_of(job) == ["b"]
    assert start.checkpoint == saved
    harness.tick_at(NOW + HOUR)
    node = harness.state.nodes.by_name["a"]
    assert (node.state, node.why, node.timed_drain) == (NodeState.DRAINED, "new fan", None)
    assert sum(isinstance(event, DrainBegan) for event in harness.events) == 1


def test_repeated_drain_warns_only_if_the_time_changes() -> None:
    harness = harness_of("a")
    running(harness)
    for after in (HOUR, HOUR, HOUR + 5.0):
        drain(harness, "a", after)
    assert [each.ends_at for each in warnings(harness)] == [NOW + HOUR - GRACE]
    drain(harness, "a", 2 * HOUR)
    assert [each.ends_at for each in warnings(harness)][1:] == [NOW + 2 * HOUR - GRACE]


def test_gang_is_warned_once_of_the_drains_of_its_nodes() -> None:
    harness = harness_of("a", "b")
    running(harness, nodes=2)
    drain(harness, "a")
    drain(harness, "b")
    assert len(warnings(harness)) == 1


def test_late_drain_warns_once_of_a_stop_that_is_due_now() -> None:
    harness = harness_of("a")
    job = running(harness)
    for after in (10.0, 20.0):
        drain(harness, "a", after)
    harness.tick()
    assert [each.ends_at for each in warnings(harness)] == [NOW]
    assert harness.stops() == [("a", job)]


def test_job_without_free_nodes_elsewhere_waits_in_the_queue() -> None:
    harness = harness_of("a")
    job = running(harness)
    drain(harness, "a")
    harness.tick_at(NOW + HOUR - GRACE)
    assert harness.stops() == [("a", job)]
    harness.exit(job, None, signal=15, why="evicted")
    harness.tick_at(NOW + HOUR)
    assert (harness.job(job).state, harness.job(job).attempt) == (JobState.QUEUED, 1)
    harness.join("b")
    harness.tick()
    assert harness.nodes_of(job) == ["b"]


@pytest.mark.parametrize("by_queue", [False, True])
def test_job_that_may_not_be_preempted_is_ended_with_the_reason(by_queue: bool) -> None:
    rules = QuotaConfig(queues={"fixed": QueueRule(preemptible=False)})
    harness = harness_of("a", "b", rules=rules if by_queue else None)
    job = running(harness, **({"queue": "fixed"} if by_queue else {"preemptible": False}))
    drain(harness, "a")
    node = harness.state.nodes.by_name["a"]
    [leaving] = harness.engine.timed_drains.leaving(node, NOW + HOUR)
    assert (leaving.view.how, leaving.view.at) == ("ended", NOW + HOUR - GRACE)
    harness.tick_at(NOW + HOUR - GRACE)
    assert last_stop(harness).why == "drained"
    harness.exit(job, None, signal=15, why="drained")
    ended = harness.job(job)
    assert (ended.state, ended.reason) == (JobState.CANCELLED, Reason.DRAINED)
    assert ended.detail == "ended by the drain of node a (new fan)"


def test_job_that_ends_before_the_time_is_left_alone() -> None:
    harness = harness_of("a")
    job = running(harness, time_limit_s=HOUR - 1)
    drain(harness, "a")
    assert not any(isinstance(event, EndWarned) for event in harness.events)
    harness.tick_at(NOW + HOUR - 2)
    assert harness.stops() == []
    harness.exit(job)
    harness.tick_at(NOW + HOUR)
    assert harness.state.nodes.by_name["a"].drained


def test_elastic_job_gives_up_only_the_node() -> None:
    harness = harness_of("a", "b")
    job = running(harness, nodes=2, gang=Gang(min_nodes=1, elastic=True))
    assert harness.nodes_of(job) == ["a", "b"]
    drain(harness, "b")
    harness.tick_at(NOW + HOUR - GRACE)
    assert harness.stops() == [("b", job)]
    harness.exit(job, None, "b", signal=15, why="shrunk")
    assert harness.job(job).state is JobState.RUNNING


def test_replica_moves_before_the_time() -> None:
    harness = EngineHarness(replace(pipeline_with(service()), guards=PLAIN.guards))
    harness.join("a")
    settle(harness)
    [first] = replicas(harness)
    drain(harness, "a")
    harness.join("b")
    harness.tick_at(NOW + HOUR - 1_700)
    settle(harness)
    [second] = replicas(harness)
    assert (first.reason, harness.nodes_of(second.id)) == (Reason.SERVICE, ["b"])


def test_drain_with_a_time_survives_a_restart_and_a_new_configuration() -> None:
    harness = harness_of("a")
    job = running(harness)
    drain(harness, "a")
    again = harness.restarted()
    assert again.state.nodes.by_name["a"].timed_drain == harness.state.nodes.by_name["a"].timed_drain
    assert again.engine.next_at == NOW + HOUR - GRACE
    harness.tell(controller_inputs.ApplyConfig("other", "root", PLAIN))
    assert harness.engine.next_at == NOW + HOUR - GRACE
    harness.tick_at(NOW + HOUR - GRACE)
    assert harness.stops() == [("a", job)]


def test_drain_at_once_replaces_a_drain_with_a_time_and_a_past_time_is_refused() -> None:
    harness = harness_of("a")
    refused = harness.refuse(node_inputs.Drain("a", "root", "", NOW - 1))
    assert refused.where == "empty_by"
    drain(harness, "a")
    harness.tell_drain("a")
    assert harness.state.nodes.by_name["a"].drained
    assert harness.engine.timed_drains.next_at == float("inf")
    drain(harness, "a")
    assert harness.state.nodes.by_name["a"].drained, "it stays closed until the time"
    harness.tell(node_inputs.Resume("a", "root"))
    assert not harness.state.nodes.by_name["a"].drained
    assert not harness.state.reservations


def test_forecast_lets_the_job_continue_elsewhere() -> None:
    harness = harness_of("a", "b")
    running(harness)
    other = running(harness, time_limit_s=2 * HOUR)
    waiting = harness.submit(spec(gpus=8, time_limit_s=HOUR))
    harness.tick()
    plain = forecast(fork(harness.engine), harness.now)
    assert plain.starts[waiting].at == NOW + 2 * HOUR
    drained = forecast(fork(harness.engine), harness.now, [node_inputs.Drain("b", "root", "", NOW + HOUR)])
    # Job `other` is queued again at the time and comes first; without a limit, the job on `a` never ends.
    assert waiting not in drained.starts
    assert harness.job(other).state is JobState.RUNNING
