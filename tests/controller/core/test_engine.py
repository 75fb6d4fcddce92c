"""The life of jobs: what happens when users submit, agents report and links break."""

from __future__ import annotations

import pytest

from controller.core.model.events.kinds import event_of
from controller.core.model.inputs import agent_inputs, job_inputs, node_inputs
from controller.core.model.inputs.input import Requester
from controller.core.model.job import LEGAL, IllegalTransition
from controller.core.state.apply import apply
from tests.engine_harness import EngineHarness, spec
from wire.agent.orders import Settle, Start
from wire.agent.reports import AttemptStatus
from wire.job.spec import JobSpec
from wire.names import JobState, NodeState, Reason


@pytest.fixture
def harness() -> EngineHarness:
    harness = EngineHarness()
    harness.join("a")
    harness.join("b")
    return harness


def running(harness: EngineHarness, **asked: object) -> int:
    job = harness.submit(spec(1, **asked))
    harness.tick()
    harness.start(job)
    return job


def test_a_job_runs_and_completes(harness: EngineHarness) -> None:
    job = harness.submit(spec(1))
    (start,) = harness.tick()
    assert (start.job, start.attempt, len(start.gpus)) == (job, 1, 1)
    harness.start(job)
    assert harness.job(job).state is JobState.RUNNING
    harness.exit(job, 0)
    assert (harness.job(job).state, harness.job(job).code) == (JobState.COMPLETED, 0)
    assert Settle(job, 1) in [sent.frame for sent in harness.sent]


@pytest.mark.parametrize(
    ("how", "reason", "detail"),
    [
        ({"code": 3}, Reason.EXIT_NONZERO, "exit code 3"),
        ({"code": None, "signal": 9}, Reason.SIGNAL, "killed by signal 9"),
        ({"code": None, "why": "launch_failed: no such program"}, Reason.LAUNCH_FAILED, "no such program"),
        ({"code": None, "why": "supervisor_lost"}, Reason.SUPERVISOR_LOST, "supervisor lost"),
    ],
)
def test_exit_status_of_the_process_decides_the_outcome(
    harness: EngineHarness, how: dict[str, object], reason: Reason, detail: str
) -> None:
    job = running(harness)
    harness.exit(job, **how)
    assert (harness.job(job).state, harness.job(job).reason, harness.job(job).detail) == (
        JobState.FAILED,
        reason,
        detail,
    )


def test_cancel_while_queued_ends_at_once(harness: EngineHarness) -> None:
    job = harness.submit(spec(1))
    harness.tell(job_inputs.Cancel(job, "ada"))
    assert harness.job(job).state is JobState.CANCELLED
    assert harness.tick() == []


def test_cancel_while_running_waits_for_the_process(harness: EngineHarness) -> None:
    job = running(harness)
    harness.tell(job_inputs.Cancel(job, "ada"))
    assert (harness.job(job).state, harness.job(job).reason) == (JobState.RUNNING, Reason.CANCELLING)
    assert harness.stops() == [("a", job)]
    harness.exit(job, None, signal=15, why="cancelled")
    assert harness.job(job).state is JobState.CANCELLED


def test_a_success_that_raced_the_cancel_is_a_success(harness: EngineHarness) -> None:
    job = running(harness)
    harness.tell(job_inputs.Cancel(job, "ada"))
    harness.exit(job, 0)
    assert harness.job(job).state is JobState.COMPLETED


def test_cancel_twice_stops_once_and_an_ended_job_refuses(harness: EngineHarness) -> None:
    job = running(harness)
    harness.tell(job_inputs.Cancel(job, "ada"))
    harness.tell(job_inputs.Cancel(job, "ada"))
    assert len(harness.stops()) == 1
    harness.exit(job, None, signal=15)
    assert harness.refuse(job_inputs.Cancel(job, "ada")).code == "conflict"


def test_hold_and_release(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, hold=True))
    assert harness.tick() == []
    harness.tell(job_inputs.Release(job, "ada"))
    harness.tell(job_inputs.Hold(job, "ada"))
    assert harness.tick() == []
    harness.tell(job_inputs.Release(job, "ada"))
    assert [start.job for start in harness.tick()] == [job]
    assert harness.refuse(job_inputs.Hold(job, "ada")).code == "conflict"
    assert harness.refuse(job_inputs.Release(job, "ada")).code == "conflict"


ADA, OPERATOR = Requester("ada"), Requester("ops", operator=True)


def test_an_operators_hold_is_released_only_by_an_operator(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, hold=True))
    harness.tell(job_inputs.Hold(job, "ops", OPERATOR))  # replaces the hold of the user
    refused = harness.refuse(job_inputs.Release(job, "ada", ADA))
    assert (refused.code, refused.message) == (
        "not_allowed",
        f"only operators may release job {job}: operator ops holds it",
    )
    assert harness.why(job).sentence == "held by operator ops: only an operator can release it"
    harness.tell(job_inputs.Hold(job, "ada", ADA))  # changes nothing
    assert harness.refuse(job_inputs.Release(job, "ada", ADA)) == refused
    assert harness.restarted().refuse(job_inputs.Release(job, "ada", ADA)) == refused
    harness.tell(job_inputs.Release(job, "second", Requester("second", operator=True)))
    harness.tell(job_inputs.Hold(job, "ada", ADA))
    harness.tell(job_inputs.Release(job, "ada", ADA))
    assert [start.job for start in harness.tick()] == [job]


def test_an_operators_hold_on_an_own_job_is_a_users_hold(harness: EngineHarness) -> None:
    job = harness.submit(spec(1), "ops")
    harness.tell(job_inputs.Hold(job, "ops", OPERATOR))
    harness.tell(job_inputs.Release(job, "ops", Requester("ops")))  # no operator any more
    assert [start.job for start in harness.tick()] == [job]


def test_a_job_that_an_operator_preempted_and_held_is_released_by_an_operator(harness: EngineHarness) -> None:
    job = running(harness)
    harness.tell(job_inputs.Preempt(job, "ops", hold=True))
    harness.exit(job, None, signal=15, why="preempted")
    assert harness.refuse(job_inputs.Release(job, "ada", ADA)).code == "not_allowed"
    harness.tell(job_inputs.Release(job, "ops", OPERATOR))
    assert [start.job for start in harness.tick()] == [job]


def test_a_hold_of_an_older_version_is_a_users_hold(harness: EngineHarness) -> None:
    job = harness.submit(spec(1))
    before = event_of("JobHeld", f'{{"job": {job}, "at": 1.0, "by": "ops"}}')
    apply(harness.state, before)
    harness.tell(job_inputs.Release(job, "ada", ADA))
    assert not harness.job(job).held


def test_a_held_job_that_was_cancelled_stays_cancelled(harness: EngineHarness) -> None:
    job = harness.submit(spec(1, hold=True))
    harness.tell(job_inputs.Cancel(job, "ada"))
    assert harness.refuse(job_inputs.Release(job, "ada")).code == "conflict"


def test_a_repeated_submission_key_returns_the_same_job(harness: EngineHarness) -> None:
    assert harness.submit(spec(1), key="k") == harness.submit(spec(1), key="k")
    assert harness.submit(spec(1), user="bo", key="k") == 2


@pytest.mark.parametrize(
    ("asked", "key", "where"),
    [
        (spec(1, name="\ud800"), "", "name"),
        (spec(1, env={"A": "b\0"}), "", "env.A"),
        (spec(1, selector={"\udfff": "x"}), "", "selector.\udfff"),
        (spec(1), "\ud800", "key"),
        (spec(1), "k" * 201, "key"),
    ],
)
def test_invalid_submit_is_refused(harness: EngineHarness, asked: JobSpec, key: str, where: str) -> None:
    refusal = harness.refuse(job_inputs.Submit(asked, "ada", key))
    assert (refusal.code, refusal.where) == ("invalid", where)


def test_an_array_gets_consecutive_job_ids(harness: EngineHarness) -> None:
    first = harness.submit(spec(1, array="1-3,7"))
    labels = [harness.job(first + step).label for step in range(4)]
    assert labels == ["1_1", "1_2", "1_3", "1_7"]
    found = harness.state.find("1_7")
    assert found is not None
    assert found.id == first + 3
    starts = harness.tick()
    assert [start.env["CORRAL_ARRAY_INDEX"] for start in starts] == ["1", "2", "3", "7"]


def test_a_gang_ends_with_its_first_failure(harness: EngineHarness) -> None:
    job = harness.submit(spec(2, nodes=2))
    harness.tick()
    harness.start(job)
    harness.exit(job, 5, node="b")
    assert harness.job(job).state is JobState.RUNNING
    assert harness.stops() == [("a", job)]
    harness.exit(job, None, node="a", signal=15, why="member_failed")
    assert (harness.job(job).state, harness.job(job).code) == (JobState.FAILED, 5)
    assert harness.job(job).detail == "b: exit code 5"


def test_gang_environment_has_ranks_and_the_master_address(harness: EngineHarness) -> None:
    harness.submit(spec(2, nodes=2))
    starts = harness.tick()
    assert [start.env["NODE_RANK"] for start in starts] == ["0", "1"]
    assert len({start.env["MASTER_ADDR"] + start.env["MASTER_PORT"] for start in starts}) == 1


def test_a_gang_whose_port_is_in_use_is_requeued_with_another_port(harness: EngineHarness) -> None:
    job = harness.submit(spec(2, nodes=2))
    first = {start.env["MASTER_PORT"] for start in harness.tick()}
    a, b = harness.nodes_of(job)
    why = f"port_in_use: MASTER_PORT {next(iter(first))} is in use on this host"
    harness.tell(agent_inputs.AgentReported(a, AttemptStatus(job, 1, ended_at=harness.now, why=why)))
    harness.tell(
        agent_inputs.AgentReported(b, AttemptStatus(job, 1, ended_at=harness.now, why="member_failed"))
    )
    assert harness.job(job).state is JobState.QUEUED
    assert "MASTER_PORT" in harness.job(job).detail
    assert all(node.up for node in harness.state.nodes.by_name.values())  # the host is well
    starts = [start for start in harness.tick() if start.job == job]
    assert len({start.env["MASTER_PORT"] for start in starts}) == 1
    assert {start.env["MASTER_PORT"] for start in starts}.isdisjoint(first)


def test_a_drained_node_gets_no_new_job_and_keeps_its_running_job(harness: EngineHarness) -> None:
    job = running(harness)
    harness.tell(node_inputs.Drain("a", "root", "fans"))
    other = harness.submit(spec(8))
    harness.tick()
    assert harness.nodes_of(other) == ["b"]
    assert harness.job(job).state is JobState.RUNNING
    harness.tell(node_inputs.Resume("a", "root"))
    assert harness.state.nodes.by_name["a"].state is NodeState.UP


def test_a_lost_link_leaves_the_job_and_the_next_hello_reports_its_end(harness: EngineHarness) -> None:
    job = running(harness)
    harness.tell(agent_inputs.LinkWentDown("a", "cut"))
    assert harness.job(job).state is JobState.RUNNING
    harness.join("a", attempts=(AttemptStatus(job, 1, 7, 1.0, 2.0, code=0),))
    assert harness.job(job).state is JobState.COMPLETED


def test_an_order_that_never_arrived_is_sent_again(harness: EngineHarness) -> None:
    job = harness.submit(spec(1))
    harness.tick()
    harness.sent.clear()
    harness.join("a")
    assert [sent.frame.job for sent in harness.sent if isinstance(sent.frame, Start)] == [job]


def test_an_order_to_a_host_that_has_rebooted_is_not_sent_again(harness: EngineHarness) -> None:
    """The attempt may have run and ended there, without a report, before the host went down."""
    job = harness.submit(spec(1))
    harness.tick()
    harness.sent.clear()
    harness.join("a", boot="b2")
    assert harness.sent == []
    assert (harness.job(job).state, harness.job(job).reason) == (JobState.FAILED, Reason.NODE_LOST)


def test_a_host_rejoins_with_fewer_gpus(harness: EngineHarness) -> None:
    harness.join("a", boot="b2", gpus=4)
    harness.join("b", boot="b2", gpus=4)
    job = harness.submit(spec(4))
    harness.tick()
    assert harness.gpus_of(job) == [0, 1, 2, 3]


def test_a_running_attempt_the_agent_does_not_know_is_lost(harness: EngineHarness) -> None:
    job = running(harness)
    harness.join("a")
    assert (harness.job(job).state, harness.job(job).reason) == (JobState.FAILED, Reason.NODE_LOST)


def test_a_stop_that_never_arrived_is_sent_again(harness: EngineHarness) -> None:
    job = running(harness)
    harness.tell(job_inputs.Cancel(job, "ada"))
    harness.sent.clear()
    harness.join("a", attempts=(AttemptStatus(job, 1, 7, 1.0),))
    assert harness.stops() == [("a", job)]


def test_an_attempt_unknown_to_the_controller_is_stopped(harness: EngineHarness) -> None:
    harness.join("a", attempts=(AttemptStatus(99, 1, 7, 1.0),))
    assert harness.stops() == [("a", 99)]


def test_an_exit_reported_twice_counts_once(harness: EngineHarness) -> None:
    job = running(harness)
    harness.exit(job, 0)
    before = len(harness.events)
    harness.tell(agent_inputs.AgentReported("a", AttemptStatus(job, 1, 7, 1.0, 2.0, code=1)))
    assert len(harness.events) == before
    assert harness.job(job).code == 0


def test_only_the_transitions_in_the_table_are_legal(harness: EngineHarness) -> None:
    job = harness.job(harness.submit(spec(1)))
    for old in JobState:
        for new in JobState:
            if new not in LEGAL[old]:
                job.state = old
                with pytest.raises(IllegalTransition):
                    job.change_state(new, Reason.NONE)
    assert all(not LEGAL[state] for state in JobState if state.terminal)


def test_a_job_held_and_released_before_the_next_cycle_is_considered_once(harness: EngineHarness) -> None:
    """While the first waiting job is blocked, a cycle considers only new arrivals; this job arrived twice."""
    harness.submit(spec(16, nodes=2, time_limit_s=60))
    harness.submit(spec(16, nodes=2))
    assert len(harness.tick()) == 2
    job = harness.submit(spec(0, time_limit_s=10))
    harness.tell(job_inputs.Hold(job, "ada"))
    harness.tell(job_inputs.Release(job, "ada"))
    assert [start.job for start in harness.tick()] == [job]
