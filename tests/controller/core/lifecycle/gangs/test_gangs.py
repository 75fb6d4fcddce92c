"""All members of a gang are ready before any of them starts."""

from __future__ import annotations

from controller.core.model.inputs import agent_inputs, job_inputs
from controller.core.state.job_and_node_rows import job_row, load_job
from controller.core.state.state import State
from tests.engine_harness import EngineHarness, spec
from wire.agent.orders import Go, Stop
from wire.agent.reports import AttemptStatus
from wire.job.gangs import Gang, MemberFailure
from wire.names import JobState, Reason


def gang() -> tuple[EngineHarness, int]:
    """A gang placed on a, b and c, with its start orders sent."""
    harness = EngineHarness()
    for name in "abc":
        harness.join(name)
    job = harness.submit(spec(3, nodes=3))
    assert [start.barrier for start in harness.tick()] == [True] * 3
    harness.sent.clear()
    return harness, job


def ready(harness: EngineHarness, job: int, node: str) -> None:
    harness.tell(agent_inputs.AgentReported(node, AttemptStatus(job, harness.job(job).attempt, ready=True)))


def sent(harness: EngineHarness, kind: type) -> list[str]:
    """The nodes that got an order of this kind since the last call."""
    found = [each.node for each in harness.sent if isinstance(each.frame, kind)]
    harness.sent.clear()
    return found


def test_barrier_opens_when_the_last_member_is_ready() -> None:
    harness, job = gang()
    ready(harness, job, "b")
    ready(harness, job, "a")
    assert sent(harness, Go) == []
    assert harness.job(job).state is JobState.SCHEDULED
    ready(harness, job, "c")
    assert sent(harness, Go) == ["a", "b", "c"]
    harness.start(job)
    assert harness.job(job).state is JobState.RUNNING


def test_barrier_stays_closed_when_a_member_cannot_start() -> None:
    harness, job = gang()
    ready(harness, job, "a")
    ready(harness, job, "b")
    harness.exit(job, None, "c", why="launch_failed: there is no user 'ada' on this host")
    assert [each for each in harness.sent if isinstance(each.frame, Go)] == []
    assert sent(harness, Stop) == ["a", "b"]
    for node in "ab":
        status = AttemptStatus(job, 1, ended_at=harness.now, why="member_failed", ready=True)
        harness.tell(agent_inputs.AgentReported(node, status))
    assert sent(harness, Go) == []
    assert (harness.job(job).state, harness.job(job).reason) == (JobState.FAILED, Reason.LAUNCH_FAILED)


def test_barrier_opens_without_a_failed_member_if_the_gang_continues_without_it() -> None:
    harness = EngineHarness()
    for name in "abc":
        harness.join(name)
    how = Gang(min_nodes=2, on_failure=MemberFailure.CONTINUE)
    job = harness.submit(spec(3, nodes=3, gang=how))
    harness.tick()
    ready(harness, job, "a")
    ready(harness, job, "b")
    assert sent(harness, Go) == []
    harness.exit(job, None, "c", why="launch_failed: there is no user 'ada' on this host")
    assert sent(harness, Go) == ["a", "b"]


def test_member_that_missed_its_go_order_gets_it_again() -> None:
    harness, job = gang()
    for node in "abc":
        ready(harness, job, node)
    sent(harness, Go)
    harness.tell(
        agent_inputs.AgentReported("a", AttemptStatus(job, 1, pid=5, started_at=harness.now, ready=True))
    )
    harness.tell(agent_inputs.LinkWentDown("b", "cut"))
    harness.join("b", attempts=(AttemptStatus(job, 1, ready=True),))
    assert sent(harness, Go) == ["b", "c"]


def test_barrier_of_a_cancelled_gang_stays_closed() -> None:
    harness, job = gang()
    ready(harness, job, "a")
    ready(harness, job, "b")
    harness.tell(job_inputs.Cancel(job, "ada"))
    ready(harness, job, "c")
    assert sent(harness, Go) == []


def test_ready_members_survive_a_restart() -> None:
    harness, job = gang()
    ready(harness, job, "b")
    restored = load_job(job_row(harness.job(job), with_spec=True))
    assert [node for node, member in restored.members.items() if member.ready] == ["b"]
    assert isinstance(harness.state, State)


def test_a_job_on_one_node_has_no_barrier() -> None:
    harness = EngineHarness()
    harness.join("a")
    harness.submit(spec(1))
    assert [start.barrier for start in harness.tick()] == [False]
