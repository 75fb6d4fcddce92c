"""The life of jobs: what happens when users ask, agents tell and links go."""

from __future__ import annotations

import pytest

from controller.core import inputs
from controller.core.transitions import LEGAL, IllegalTransition, require
from tests.worlds import World, spec
from wire.frames import AttemptStatus, Settle, Start
from wire.spec import JobSpec
from wire.words import JobState, NodeState, Reason


@pytest.fixture
def world() -> World:
    world = World()
    world.join("a")
    world.join("b")
    return world


def running(world: World, **asked: object) -> int:
    job = world.submit(spec(1, **asked))
    world.tick()
    world.start(job)
    return job


def test_a_job_runs_and_completes(world: World) -> None:
    job = world.submit(spec(1))
    (start,) = world.tick()
    assert (start.job, start.attempt, len(start.gpus)) == (job, 1, 1)
    world.start(job)
    assert world.job(job).state is JobState.RUNNING
    world.exit(job, 0)
    assert (world.job(job).state, world.job(job).code) == (JobState.COMPLETED, 0)
    assert Settle(job, 1) in [sent.frame for sent in world.sent]


@pytest.mark.parametrize(
    ("how", "reason", "detail"),
    [
        ({"code": 3}, Reason.EXIT_NONZERO, "exit code 3"),
        ({"code": None, "signal": 9}, Reason.SIGNAL, "killed by signal 9"),
        ({"code": None, "signal": 15, "why": "time_limit"}, Reason.TIME_LIMIT, "time limit"),
        ({"code": None, "why": "launch_failed: no such program"}, Reason.LAUNCH_FAILED, "no such program"),
        ({"code": None, "why": "supervisor_lost"}, Reason.SUPERVISOR_LOST, "supervisor lost"),
    ],
)
def test_what_the_process_returned_is_the_outcome(
    world: World, how: dict[str, object], reason: Reason, detail: str
) -> None:
    job = running(world)
    world.exit(job, **how)
    assert (world.job(job).state, world.job(job).reason, world.job(job).detail) == (
        JobState.FAILED,
        reason,
        detail,
    )


def test_cancel_while_queued_ends_at_once(world: World) -> None:
    job = world.submit(spec(1))
    world.tell(inputs.Cancel(job, "ada"))
    assert world.job(job).state is JobState.CANCELLED
    assert world.tick() == []


def test_cancel_while_running_waits_for_the_process(world: World) -> None:
    job = running(world)
    world.tell(inputs.Cancel(job, "ada"))
    assert (world.job(job).state, world.job(job).reason) == (JobState.RUNNING, Reason.CANCELLING)
    assert world.stops() == [("a", job)]
    world.exit(job, None, signal=15, why="cancelled")
    assert world.job(job).state is JobState.CANCELLED


def test_a_success_that_raced_the_cancel_is_a_success(world: World) -> None:
    job = running(world)
    world.tell(inputs.Cancel(job, "ada"))
    world.exit(job, 0)
    assert world.job(job).state is JobState.COMPLETED


def test_cancel_twice_stops_once_and_an_ended_job_refuses(world: World) -> None:
    job = running(world)
    world.tell(inputs.Cancel(job, "ada"))
    world.tell(inputs.Cancel(job, "ada"))
    assert len(world.stops()) == 1
    world.exit(job, None, signal=15)
    assert world.refuse(inputs.Cancel(job, "ada")).code == "conflict"


def test_hold_and_release(world: World) -> None:
    job = world.submit(spec(1, hold=True))
    assert world.tick() == []
    world.tell(inputs.Release(job, "ada"))
    world.tell(inputs.Hold(job, "ada"))
    assert world.tick() == []
    world.tell(inputs.Release(job, "ada"))
    assert [start.job for start in world.tick()] == [job]
    assert world.refuse(inputs.Hold(job, "ada")).code == "conflict"
    assert world.refuse(inputs.Release(job, "ada")).code == "conflict"


def test_a_held_job_that_was_cancelled_stays_cancelled(world: World) -> None:
    job = world.submit(spec(1, hold=True))
    world.tell(inputs.Cancel(job, "ada"))
    assert world.refuse(inputs.Release(job, "ada")).code == "conflict"


def test_the_same_key_is_the_same_job(world: World) -> None:
    assert world.submit(spec(1), key="k") == world.submit(spec(1), key="k")
    assert world.submit(spec(1), user="bo", key="k") == 2


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
def test_what_cannot_be_written_down_is_refused(world: World, asked: JobSpec, key: str, where: str) -> None:
    refusal = world.refuse(inputs.Submit(asked, "ada", key))
    assert (refusal.code, refusal.where) == ("invalid", where)


def test_an_array_is_a_row_of_jobs(world: World) -> None:
    first = world.submit(spec(1, array="1-3,7"))
    labels = [world.job(first + step).label for step in range(4)]
    assert labels == ["1_1", "1_2", "1_3", "1_7"]
    found = world.state.find("1_7")
    assert found is not None
    assert found.id == first + 3
    starts = world.tick()
    assert [start.env["CORRAL_ARRAY_INDEX"] for start in starts] == ["1", "2", "3", "7"]


def test_a_gang_ends_with_its_first_failure(world: World) -> None:
    job = world.submit(spec(2, nodes=2))
    world.tick()
    world.start(job)
    world.exit(job, 5, node="b")
    assert world.job(job).state is JobState.RUNNING
    assert world.stops() == [("a", job)]
    world.exit(job, None, node="a", signal=15, why="member_failed")
    assert (world.job(job).state, world.job(job).code) == (JobState.FAILED, 5)
    assert world.job(job).detail == "b: exit code 5"


def test_a_gang_knows_its_ranks_and_where_to_meet(world: World) -> None:
    world.submit(spec(2, nodes=2))
    starts = world.tick()
    assert [start.env["NODE_RANK"] for start in starts] == ["0", "1"]
    assert len({start.env["MASTER_ADDR"] + start.env["MASTER_PORT"] for start in starts}) == 1


def test_a_drained_node_gets_nothing_new_and_keeps_what_it_has(world: World) -> None:
    job = running(world)
    world.tell(inputs.Drain("a", "root", "fans"))
    other = world.submit(spec(8))
    world.tick()
    assert world.nodes_of(other) == ["b"]
    assert world.job(job).state is JobState.RUNNING
    world.tell(inputs.Resume("a", "root"))
    assert world.state.nodes.by_name["a"].state is NodeState.UP


def test_a_lost_link_leaves_the_job_alone_and_the_next_hello_tells(world: World) -> None:
    job = running(world)
    world.tell(inputs.LinkWentDown("a", "cut"))
    assert world.job(job).state is JobState.RUNNING
    world.join("a", attempts=(AttemptStatus(job, 1, 7, 1.0, 2.0, code=0),))
    assert world.job(job).state is JobState.COMPLETED


def test_an_order_that_never_arrived_is_sent_again(world: World) -> None:
    job = world.submit(spec(1))
    world.tick()
    world.sent.clear()
    world.join("a")
    assert [sent.frame.job for sent in world.sent if isinstance(sent.frame, Start)] == [job]


def test_an_order_to_a_host_that_has_rebooted_is_not_sent_again(world: World) -> None:
    """It may have run and succeeded there, unheard of, before the host went down with all it knew."""
    job = world.submit(spec(1))
    world.tick()
    world.sent.clear()
    world.join("a", boot="b2")
    assert world.sent == []
    assert (world.job(job).state, world.job(job).reason) == (JobState.FAILED, Reason.NODE_LOST)


def test_a_host_comes_back_with_fewer_gpus(world: World) -> None:
    world.join("a", boot="b2", gpus=4)
    world.join("b", boot="b2", gpus=4)
    job = world.submit(spec(4))
    world.tick()
    assert world.gpus_of(job) == [0, 1, 2, 3]


def test_a_running_attempt_the_agent_does_not_know_is_lost(world: World) -> None:
    job = running(world)
    world.join("a")
    assert (world.job(job).state, world.job(job).reason) == (JobState.FAILED, Reason.NODE_LOST)


def test_a_stop_that_never_arrived_is_sent_again(world: World) -> None:
    job = running(world)
    world.tell(inputs.Cancel(job, "ada"))
    world.sent.clear()
    world.join("a", attempts=(AttemptStatus(job, 1, 7, 1.0),))
    assert world.stops() == [("a", job)]


def test_what_is_not_on_record_is_ended(world: World) -> None:
    world.join("a", attempts=(AttemptStatus(99, 1, 7, 1.0),))
    assert world.stops() == [("a", 99)]


def test_an_exit_told_twice_counts_once(world: World) -> None:
    job = running(world)
    world.exit(job, 0)
    before = len(world.events)
    world.tell(inputs.AgentReported("a", AttemptStatus(job, 1, 7, 1.0, 2.0, code=1)))
    assert len(world.events) == before
    assert world.job(job).code == 0


def test_only_the_table_of_transitions_is_legal() -> None:
    for old in JobState:
        for new in JobState:
            if new not in LEGAL[old]:
                with pytest.raises(IllegalTransition):
                    require(1, old, new)
    assert all(not LEGAL[state] for state in JobState if state.terminal)


def test_a_job_that_came_back_before_the_next_cycle_is_looked_at_once(world: World) -> None:
    """With the first waiting job as before only those that came are looked at: this one came twice."""
    world.submit(spec(16, nodes=2, time_limit_s=60))
    world.submit(spec(16, nodes=2))
    assert len(world.tick()) == 2
    job = world.submit(spec(0, time_limit_s=10))
    world.tell(inputs.Hold(job, "ada"))
    world.tell(inputs.Release(job, "ada"))
    assert [start.job for start in world.tick()] == [job]
