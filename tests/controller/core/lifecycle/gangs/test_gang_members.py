"""Gangs: the number of nodes they start on, and what a lost member means for the other members."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.api.views.resources import job_view
from controller.core.explain.never_fits import never_fits
from controller.core.framework.interfaces import Backfill, PreemptionGuards
from controller.core.model.decision.effects import SendToNode
from controller.core.model.events.attempts import JobShrunk
from controller.core.model.inputs import agent_inputs, job_inputs
from controller.core.quota.quota_config import QuotaConfig
from controller.plugins.backfill.kinds import Conservative, Easy
from controller.plugins.preemption.by_priority import PriorityStrategy
from controller.plugins.quotas.local import LocalQuotas, QuotaTable
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.agent.orders import Go, Stop
from wire.agent.reports import AttemptStatus
from wire.job.gangs import Gang, MemberFailure
from wire.job.placement.gpu_requirements import Topology
from wire.job.spec import JobSpec, spec_problems
from wire.names import JobState, Reason


def harness_of(*nodes: str, **more: Any) -> EngineHarness:
    harness = EngineHarness(replace(PIPELINE, **more))
    for name in nodes:
        harness.join(name)
    return harness


def gang(nodes: int, limit_s: float | None = None, **how: Any) -> JobSpec:
    """Return the spec of a gang that needs whole nodes."""
    return spec(8 * nodes, nodes=nodes, time_limit_s=limit_s, gang=Gang(**how))


def running(harness: EngineHarness, asked: JobSpec) -> int:
    job = harness.submit(asked)
    harness.tick()
    harness.start(job)
    return job


BACKFILLS = [Easy(), Conservative()]

# Four nodes, of which these are busy. A gang asks for three. How many nodes does it get?
TABLE = [
    ("all when all are there", 1, gang(3, min_nodes=2), 3),
    ("nothing less than all without a threshold", 2, gang(3), 0),
    ("what there is above the threshold", 2, gang(3, min_nodes=2), 2),
    ("nothing below it", 3, gang(3, min_nodes=2), 0),
    ("nothing yet while it waits for all", 2, gang(3, min_nodes=2, assembly_s=60), 0),
]


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize(("busy", "asked", "got"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_number_of_nodes_that_a_gang_starts_on(
    busy: int, asked: JobSpec, got: int, backfill: Backfill
) -> None:
    harness = harness_of("a", "b", "c", "d", backfill=backfill)
    for _ in range(busy):
        running(harness, spec(8))
    job = harness.submit(asked)
    harness.tick()
    assert len(harness.nodes_of(job)) == got


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_a_gang_waits_for_all_nodes_and_then_starts_on_fewer(backfill: Backfill) -> None:
    harness = harness_of("a", "b", backfill=backfill)
    first = running(harness, spec(8))
    job = harness.submit(gang(2, min_nodes=1, assembly_s=60))
    assert harness.tick() == []
    why = harness.engine.explain(harness.job(job), harness.now)
    assert why.reason is Reason.RESOURCES
    assert why.sentence.endswith("; may start on 1 node in 1m00s")
    assert harness.engine.next_at == harness.now + 60
    harness.now += 60
    (start,) = harness.tick()
    assert (start.env["NNODES"], start.env["CORRAL_NODES"]) == ("1", "b")
    harness.exit(first)
    assert harness.tick() == []


# Two of four nodes are busy for 1000 s, and the first in the queue needs all four. Does a gang of three that
# does with two pass it under conservative backfill, and on how many nodes?
PASSING = [
    ("in part, if it is gone by then", gang(3, 900, min_nodes=2), 0, 2),
    ("not if it would stay", gang(3, 1100, min_nodes=2), 0, 0),
    ("not before it has waited for all", gang(3, 400, min_nodes=2, assembly_s=500), 0, 0),
    ("in part, once it has", gang(3, 400, min_nodes=2, assembly_s=500), 500, 2),
    ("not if it would stay by now", gang(3, 600, min_nodes=2, assembly_s=500), 500, 0),
]


@pytest.mark.parametrize(
    ("asked", "later_s", "got"), [row[1:] for row in PASSING], ids=[row[0] for row in PASSING]
)
def test_a_gang_has_a_reservation_for_a_start_on_fewer_nodes(
    asked: JobSpec, later_s: float, got: int
) -> None:
    harness = harness_of("a", "b", "c", "d", backfill=Conservative())
    for _ in range(2):
        running(harness, spec(8, time_limit_s=1000))
    first = harness.submit(gang(4, 100, min_nodes=None))
    job = harness.submit(asked)
    harness.tick()
    if later_s:
        assert (harness.engine.next_at == harness.now + later_s) == bool(got)
        harness.tick_at(harness.now + later_s)
    assert (len(harness.nodes_of(job)), harness.nodes_of(first)) == (got, [])


# A gang of three that accepts two, and a quota of GPUs. How many nodes does it get?
WITHIN = [("all", 24, 3), ("as many as it may have", 16, 2)]


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize(("most", "got"), [row[1:] for row in WITHIN], ids=[row[0] for row in WITHIN])
def test_a_gang_starts_on_the_nodes_that_its_quota_allows(most: int, got: int, backfill: Backfill) -> None:
    rules = QuotaConfig(provider=LocalQuotas(users={"*": QuotaTable(gpus=most)}))
    harness = harness_of("a", "b", "c", backfill=backfill, rules=rules)
    job = harness.submit(gang(3, min_nodes=2))
    harness.tick()
    assert len(harness.nodes_of(job)) == got
    other = harness.submit(gang(3, min_nodes=2, assembly_s=60))
    harness.tick()
    why = harness.why(other)
    assert why.reason is Reason.QUOTA
    assert why.sentence.endswith("may start on 2 nodes in 1m00s")


def test_the_reason_of_a_gang_that_backfill_does_not_start_on_fewer_nodes_is_its_quota() -> None:
    """Backfill tries the gang on two nodes only, and the quota allows one."""
    rules = QuotaConfig({}, LocalQuotas(users={"ada": QuotaTable(gpus=8)}))
    harness = harness_of("a", "b", "c", rules=rules)
    harness.submit(spec(8, time_limit_s=3_600.0), "bob")
    harness.tick()
    harness.submit(spec(24, nodes=3, priority=75), "bob")
    job = harness.submit(gang(2, 60.0, min_nodes=1))
    for _ in range(2):
        harness.tick()
        assert harness.nodes_of(job) == []
        why = harness.why(job)
        assert why.reason is Reason.QUOTA
        assert "0 of 8 in use, and this asks for 16; may start on 1 node" in why.sentence


def test_a_quota_below_the_threshold_refuses() -> None:
    harness = harness_of(
        "a", "b", "c", rules=QuotaConfig(provider=LocalQuotas(users={"*": QuotaTable(gpus=15)}))
    )
    assert harness.refuse(job_inputs.Submit(gang(3, min_nodes=2), "ada")).code == "over_quota"


def test_a_gang_in_one_topology_domain_needs_quota_for_all_its_nodes() -> None:
    """Such a gang starts on all its nodes only, so a quota for fewer nodes refuses it or makes it wait."""
    rules = QuotaConfig({}, LocalQuotas(users={"ada": QuotaTable(gpus=16), "bob": QuotaTable(gpus=8)}))
    harness = EngineHarness(replace(PIPELINE, rules=rules))
    for name in ("a", "b", "c"):
        harness.join(name, labels={"rack": "r1"})
    asked = replace(gang(2, min_nodes=1), topology=Topology("rack"))
    assert harness.refuse(job_inputs.Submit(asked, "bob")).code == "over_quota"
    first = running(harness, spec(1))
    job = harness.submit(asked)
    harness.tick()
    why = harness.why(job)
    assert (why.reason, harness.nodes_of(job)) == (Reason.QUOTA, [])
    assert "1 of 16 in use, and this asks for 16" in why.sentence
    assert "may start on" not in why.sentence
    harness.exit(first)
    harness.tick()
    assert len(harness.nodes_of(job)) == 2


def test_all_nodes_may_become_free_before_the_assembly_time() -> None:
    harness = harness_of("a", "b")
    first = running(harness, spec(8))
    job = harness.submit(gang(2, min_nodes=1, assembly_s=60))
    harness.tick()
    harness.exit(first)
    assert len(harness.tick()) == 2
    assert harness.nodes_of(job) == ["a", "b"]


def test_a_gang_larger_than_the_cluster_starts_on_fewer_nodes() -> None:
    harness = harness_of("a", "b")
    assert never_fits(harness.engine.placer, harness.state.ask(gang(3), "ada")) is not None
    job = harness.submit(gang(3, min_nodes=2))
    assert len(harness.tick()) == 2
    assert harness.job(job).state is JobState.SCHEDULED


def test_remaining_members_continue_and_the_job_completes_with_enough_successes() -> None:
    harness = harness_of("a", "b", "c")
    job = running(harness, gang(3, min_nodes=2, on_failure=MemberFailure.CONTINUE))
    harness.exit(job, 5, node="b")
    assert (harness.job(job).state, harness.stops()) == (JobState.RUNNING, [])
    other = harness.submit(spec(8))
    assert [start.job for start in harness.tick()] == [other]
    harness.exit(job, 0, node="a")
    harness.exit(job, 0, node="c")
    assert (harness.job(job).state, harness.job(job).detail) == (
        JobState.COMPLETED,
        "2 of 3 members succeeded",
    )


def test_a_gang_is_stopped_when_too_few_members_are_left() -> None:
    harness = harness_of("a", "b", "c")
    job = running(harness, gang(3, min_nodes=2, on_failure=MemberFailure.CONTINUE))
    harness.exit(job, 5, node="b")
    harness.exit(job, 6, node="c")
    assert harness.stops() == [("a", job)]
    harness.exit(job, None, node="a", signal=15, why="member_failed")
    assert (harness.job(job).state, harness.job(job).code) == (JobState.FAILED, 5)


def test_gang_continues_without_a_member_that_never_started() -> None:
    harness = harness_of("a", "b")
    job = harness.submit(gang(2, min_nodes=1, on_failure=MemberFailure.CONTINUE))
    harness.tick()
    begun = AttemptStatus(job, 1, 7, harness.now)
    harness.tell(agent_inputs.AgentReported("a", begun))
    harness.now += 5
    harness.tell(
        agent_inputs.AgentReported("b", AttemptStatus(job, 1, ended_at=harness.now, why="launch_failed: no"))
    )
    assert (harness.job(job).state, harness.job(job).started_at) == (JobState.RUNNING, harness.now - 5)
    harness.exit(job, 0, node="a")
    assert harness.job(job).state is JobState.COMPLETED


def test_gang_completes_although_a_member_fails_to_start_after_the_rest_ended() -> None:
    harness = harness_of("a", "b")
    job = harness.submit(gang(2, min_nodes=1, on_failure=MemberFailure.CONTINUE))
    harness.tick()
    harness.exit(job, 0, node="a")
    harness.tell(
        agent_inputs.AgentReported("b", AttemptStatus(job, 1, ended_at=harness.now, why="launch_failed: no"))
    )
    assert harness.job(job).state is JobState.COMPLETED


def test_a_gang_restarts_up_to_its_limit() -> None:
    harness = harness_of("a", "b")
    job = harness.submit(gang(2, on_failure=MemberFailure.RESTART))
    for attempt in (1, 2, 3, 4):
        harness.now += 3_600
        assert {start.attempt for start in harness.tick()} == {attempt}
        harness.start(job)
        harness.exit(job, 5, node="b")
        assert harness.stops()[-1] == ("a", job)
        harness.exit(job, None, node="a", signal=15, why="member_failed")
    assert (harness.job(job).state, harness.job(job).code) == (JobState.FAILED, 5)


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        (spec(gang=Gang(min_nodes=2)), "gang.min_nodes"),
        (spec(nodes=2, gang=Gang(min_nodes=3)), "gang.min_nodes"),
        (spec(nodes=2, gang=Gang(assembly_s=5.0)), "gang.assembly_s"),
        (spec(nodes=2, gang=Gang(min_nodes=1, assembly_s=-1.0)), "gang.assembly_s"),
    ],
)
def test_invalid_gang_settings_are_refused(asked: JobSpec, where: str) -> None:
    assert [each for each, _ in spec_problems(asked)] == [where]


ELASTIC = {"min_nodes": 1, "elastic": True}


def pressed(*nodes: str) -> EngineHarness:
    """A cluster with preemption by priority."""
    guards = PreemptionGuards(min_runtime_s=0.0)
    harness = EngineHarness(replace(PIPELINE, strategies=(PriorityStrategy(),), guards=guards))
    for name in nodes:
        harness.join(name)
    return harness


def test_an_elastic_job_gives_up_a_node_instead_of_being_preempted() -> None:
    harness = pressed("a", "b", "c")
    job = running(harness, gang(3, **ELASTIC))
    harness.now += 3_600
    high = harness.submit(spec(8, priority=75))
    assert harness.tick() == []
    (shrunk,) = [event for event in harness.events if isinstance(event, JobShrunk)]
    assert (shrunk.job, shrunk.nodes, shrunk.gpu_hours) == (job, ("b",), 8.0)
    assert harness.stops() == [("b", job)]
    harness.exit(job, None, node="b", signal=15, why="shrunk")
    assert harness.job(job).state is JobState.RUNNING
    assert [start.job for start in harness.tick()] == [high]
    harness.exit(job, 0, node="a")
    harness.exit(job, 0, node="c")
    assert harness.job(job).state is JobState.COMPLETED


def shown(harness: EngineHarness, job: int) -> tuple[float, int, list[str]]:
    """Return the GPUs and nodes of a job as `queue`, `job show` and the JSON show them."""
    view = job_view(harness.engine, harness.job(job))
    return view.gpus, view.nodes, [held.node for held in view.held]


def test_a_job_view_of_an_elastic_job_shows_the_resources_it_holds() -> None:
    """After a partial start, after growing, and after shrinking: in the view and in the answer of explain."""
    harness = pressed("a", "b", "c")
    other = running(harness, spec(8))
    job = running(harness, gang(3, **ELASTIC))
    assert shown(harness, job) == (16.0, 2, ["b", "c"])
    harness.exit(other)
    harness.tick()
    harness.start(job)
    assert shown(harness, job) == (24.0, 3, ["b", "c", "a"])
    harness.now += 3_600
    harness.submit(spec(8, priority=75))
    harness.tick()
    [(left, _)] = harness.stops()
    rest = [node for node in ("b", "c", "a") if node != left]
    assert shown(harness, job) == (16.0, 2, rest)
    assert harness.why(job).sentence == f"running on {', '.join(rest)}"
    harness.exit(job, None, node=left, signal=15, why="shrunk")
    assert shown(harness, job) == (16.0, 2, rest)
    assert harness.why(job).sentence == f"running on {', '.join(rest)}"
    for node in rest:
        harness.exit(job, 0, node=node)
    assert shown(harness, job) == (16.0, 2, rest)


def test_an_ended_batch_job_shows_all_its_nodes_and_counts_as_no_preemption() -> None:
    """The command of a batch job runs on the first node. The other nodes are released when it has ended."""
    harness = pressed("a", "b", "c")
    job = running(harness, replace(gang(3), batch=True))
    harness.now += 60
    harness.exit(job, 0, node="a")
    (released,) = [event for event in harness.events if isinstance(event, JobShrunk)]
    assert released.nodes == ("b", "c")
    for node in ("b", "c"):
        harness.exit(job, None, node=node, signal=15, why="shrunk")
    assert harness.job(job).state is JobState.COMPLETED
    assert shown(harness, job) == (24.0, 3, ["a", "b", "c"])
    assert harness.engine.state.preempted_at == []


def test_an_elastic_job_at_its_minimum_is_preempted_whole() -> None:
    harness = pressed("a", "b")
    job = running(harness, gang(2, min_nodes=2, elastic=True))
    harness.submit(spec(8, priority=75))
    harness.tick()
    assert sorted(harness.stops()) == [("a", job), ("b", job)]


def test_a_shrinking_job_keeps_its_first_node_and_its_minimum() -> None:
    harness = pressed("a", "b", "c")
    job = running(harness, gang(3, min_nodes=2, elastic=True))
    harness.now += 3_600
    for _ in range(2):
        harness.submit(spec(8, priority=75))
    harness.tick()
    assert harness.stops()[0] == ("b", job)
    assert harness.job(job).stopping is Reason.PREEMPTED
    assert len(harness.stops()) == 4  # the second had all of it ended


def test_a_gang_takes_several_nodes_of_one_elastic_job() -> None:
    harness = pressed("a", "b", "c")
    job = running(harness, gang(3, **ELASTIC))
    harness.now += 3_600
    high = harness.submit(spec(16, nodes=2, priority=75))
    harness.tick()
    assert sorted(harness.stops()) == [("b", job), ("c", job)]
    for node in ("b", "c"):
        harness.exit(job, None, node=node, signal=15, why="shrunk")
    harness.tick()
    assert harness.nodes_of(high) == ["b", "c"]


def test_an_elastic_job_grows_while_no_job_waits() -> None:
    harness = harness_of("a", "b", "c")
    other = running(harness, spec(8))
    job = running(harness, gang(3, **ELASTIC))
    assert harness.nodes_of(job) == ["b", "c"]
    waiting = harness.submit(spec(8, hold=True))
    harness.exit(other)
    (start,) = harness.tick()
    assert (start.job, start.attempt, start.env["CORRAL_NODES"]) == (job, 1, "b,c,a")
    assert (start.env["CORRAL_MIN_NODES"], start.env["CORRAL_MAX_NODES"]) == ("1", "3")
    assert harness.job(job).state is JobState.RUNNING
    harness.tell(agent_inputs.AgentReported("a", AttemptStatus(job, 1, ready=True)))
    assert harness.sent[-1] == SendToNode("a", Go(job, 1))
    harness.tell(agent_inputs.AgentReported("a", AttemptStatus(job, 1, 7, harness.now)))
    harness.tell(job_inputs.Release(waiting, "ada"))
    assert harness.tick() == []
    harness.exit(job)
    assert harness.job(job).state is JobState.COMPLETED


def test_members_that_an_elastic_job_gave_up_do_not_count_as_succeeded() -> None:
    harness = pressed("a", "b", "c", "d")
    job = running(
        harness, gang(4, min_nodes=2, elastic=True, on_failure=MemberFailure.CONTINUE, mixed_models=True)
    )
    harness.now += 3_600
    harness.submit(spec(16, nodes=2, priority=75))
    harness.tick()
    given_up = [node for node, _ in harness.stops()]
    assert len(given_up) == 2
    for node in given_up:
        harness.exit(job, None, node=node, signal=15, why="shrunk")
    for node in sorted({"a", "b", "c", "d"} - {*given_up}):
        harness.exit(job, 5, node=node)
    assert (harness.job(job).state, harness.job(job).code) == (JobState.FAILED, 5)


@pytest.mark.parametrize("code", [0, 3])
def test_the_command_decides_the_outcome_of_a_batch_job_that_continues(code: int) -> None:
    harness = harness_of("a", "b", "c")
    asked = replace(gang(3, min_nodes=1, on_failure=MemberFailure.CONTINUE), batch=True)
    job = running(harness, asked)
    first, *others = harness.nodes_of(job)
    harness.exit(job, 1, node=others[0])
    assert harness.job(job).state is JobState.RUNNING
    harness.now += 5
    harness.exit(job, code, node=first)
    harness.exit(job, None, node=others[1], signal=15, why="shrunk")
    ended = harness.job(job)
    assert ended.state is (JobState.FAILED if code else JobState.COMPLETED)
    assert ended.code == code
    if not code:
        assert ended.detail == "2 of 3 members succeeded"


def test_an_elastic_job_does_not_grow_once_it_is_about_to_end() -> None:
    harness = harness_of("a", "b")
    job = running(harness, gang(3, **ELASTIC))
    harness.exit(job, 0, node="b")
    harness.join("c")
    assert harness.tick() == []
    harness.exit(job, 0, node="a")
    assert harness.job(job).state is JobState.COMPLETED


def test_an_elastic_job_replaces_failed_members_when_it_grows() -> None:
    harness = harness_of("a", "b")
    job = running(harness, gang(2, **ELASTIC, on_failure=MemberFailure.CONTINUE))
    harness.exit(job, 1, node="b")
    harness.join("c")
    assert [start.env["CORRAL_NODE"] for start in harness.tick()] == ["c"]


def test_waiting_jobs_come_before_the_growth_of_an_elastic_job() -> None:
    harness = harness_of("a", "b")
    other = running(harness, spec(8))
    running(harness, gang(2, **ELASTIC))
    waiting = harness.submit(spec(8))
    harness.tick()
    harness.exit(other)
    assert [start.job for start in harness.tick()] == [waiting]


def test_an_elastic_job_does_not_return_to_a_node_that_it_left() -> None:
    harness = pressed("a", "b")
    job = running(harness, gang(2, **ELASTIC))
    harness.now += 3_600
    high = harness.submit(spec(8, priority=75))
    harness.tick()
    harness.exit(job, None, node="b", signal=15, why="shrunk")
    harness.tick()
    harness.start(high)
    harness.exit(high)
    assert harness.tick() == []
    harness.join("c")
    assert [(start.job, start.env["CORRAL_NODES"]) for start in harness.tick()] == [(job, "a,c")]


def test_a_leave_order_that_never_arrived_is_sent_again() -> None:
    harness = pressed("a", "b")
    job = running(harness, gang(2, **ELASTIC))
    harness.now += 3_600
    harness.submit(spec(8, priority=75))
    harness.tick()
    harness.sent.clear()
    harness.join("b", attempts=(AttemptStatus(job, 1, 7, 1.0),))
    assert harness.stops() == [("b", job)]


def test_a_member_told_to_leave_before_its_start_arrived_is_not_started() -> None:
    harness = pressed("a")
    job = running(harness, gang(2, **ELASTIC))
    harness.join("b")
    assert [start.job for start in harness.tick()] == [job]  # the job grows; neither order arrives at b
    harness.now += 3_600
    harness.submit(spec(8, priority=75))
    harness.tick()
    assert harness.stops() == [("b", job)]
    harness.sent.clear()
    harness.join("b")
    assert [type(sent.frame) for sent in harness.sent] == [Stop]
