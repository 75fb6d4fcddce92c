"""Merged reports of gang members have the same effect as single reports."""

from __future__ import annotations

import pytest

from controller.core.invariants import find_violations
from controller.core.lifecycle.attempt_reports import merge_member_reports
from controller.core.model.events.attempts import MembersExited, MembersStarted
from controller.core.model.inputs import job_inputs
from controller.core.model.inputs.agent_inputs import AgentReported, MembersReported
from controller.core.model.inputs.input import Input
from controller.core.state.job_and_node_rows import job_row, node_row
from controller.core.state.note_rows import all_notes
from tests.engine_harness import EngineHarness, spec
from wire.agent.orders import Settle, Stop
from wire.agent.reports import AttemptStatus, Checkpoint, GpuUse, Usage
from wire.job.gangs import Gang, MemberFailure
from wire.job.spec import JobSpec
from wire.names import JobState

GANG = spec(24, nodes=3)
GOES_ON = spec(24, nodes=3, gang=Gang(min_nodes=1, on_failure=MemberFailure.CONTINUE))
READY = AttemptStatus(1, 1, ready=True)
RUNS = AttemptStatus(1, 1, 7, 1_000.0)


def over(code: int | None = 0, signal: int | None = None, **how: object) -> AttemptStatus:
    return AttemptStatus(1, 1, 7, 1_000.0, 1_001.0, code, signal, **how)  # type: ignore[arg-type]


BILLED = over(usage=Usage(3.0, 64, GpuUse(50.0, 90, 1_000, 2.5)))
SAVED = [over(None, 9, checkpoint=Checkpoint(f"/saved/{at}", 1, at)) for at in (900.0, 950.0, 920.0)]

# The reports of the three members, moment by moment. None: that member reports nothing.
TABLE: list[tuple[str, JobSpec, list[list[AttemptStatus | None]]]] = [
    ("all run, all are done", GANG, [[RUNS] * 3, [over()] * 3]),
    ("each has its own figures", GANG, [[RUNS] * 3, [over(), BILLED, over(0, usage=Usage(1.0, 2))]]),
    ("one fails beside the others", GANG, [[RUNS] * 3, [over(), over(3), over()]]),
    ("one fails before the others", GANG, [[RUNS] * 3, [over(), over(3), None]]),
    ("one fails and the others go on", GOES_ON, [[RUNS] * 3, [over(3), None, over()], [None, over(), None]]),
    ("all fail, with checkpoints", GANG, [[RUNS] * 3, SAVED]),
    ("members start and end in one report", GANG, [[over()] * 3]),
    ("one runs, one is done already", GANG, [[RUNS, over(), RUNS], [over(), None, over()]]),
    ("two members never start", GANG, [[RUNS, AttemptStatus(1, 1, ended_at=1_000.0, why="refused"), None]]),
    ("members wait at the barrier", GANG, [[READY] * 3, [RUNS] * 3, [over()] * 3]),
    ("some at the barrier, one beyond it", GANG, [[READY, READY, None], [READY, RUNS, READY], [RUNS] * 3]),
    ("reports are repeated", GANG, [[RUNS] * 3, [RUNS, over(), RUNS], [over()] * 3]),
    ("an unknown attempt", GANG, [[AttemptStatus(1, 9, 7, 1_000.0)] * 3]),
]


def world_with(asked: JobSpec) -> EngineHarness:
    harness = EngineHarness()
    for name in "abc":
        harness.join(name)
    assert harness.submit(asked) == 1
    harness.tick()
    assert harness.nodes_of(1) == ["a", "b", "c"]
    return harness


def rows(harness: EngineHarness) -> list[object]:
    """All rows of the state, without the events that led to it."""
    assert find_violations(harness.state) == []
    jobs = [job_row(job, with_spec=True) for job in harness.state.jobs.values()]
    return [jobs, [node_row(node) for node in harness.state.nodes], all_notes(harness.state)]


def settled(harness: EngineHarness) -> set[str]:
    return {sent.node for sent in harness.sent if isinstance(sent.frame, Settle)}


@pytest.mark.parametrize(("asked", "moments"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_merged_reports_give_the_same_state_as_single_reports(
    asked: JobSpec, moments: list[list[AttemptStatus | None]]
) -> None:
    one_by_one, at_once = world_with(asked), world_with(asked)
    for reports in moments:
        by_node = {node: status for node, status in zip("abc", reports, strict=True) if status is not None}
        for node, status in by_node.items():
            one_by_one.tell(AgentReported(node, status))
        at_once.tell(MembersReported(1, next(iter(by_node.values())).attempt, by_node))
    if at_once.job(1).stopping is not None or one_by_one.job(1).stopping is not None:
        # One by one, members may be stopped before their own reports arrive, although they had ended by
        # themselves.
        assert at_once.job(1).state is one_by_one.job(1).state
        assert at_once.job(1).members == one_by_one.job(1).members
    else:
        assert rows(at_once) == rows(one_by_one)
    assert settled(at_once) == settled(one_by_one)


def test_one_event_covers_all_starts_and_one_all_ends() -> None:
    harness = world_with(GANG)
    harness.tell(MembersReported(1, 1, dict.fromkeys("abc", RUNS)))
    [started] = [event for event in harness.events if isinstance(event, MembersStarted)]
    assert started.pids == {"a": 7, "b": 7, "c": 7}
    harness.tell(MembersReported(1, 1, dict.fromkeys("abc", over())))
    [exited] = [event for event in harness.events if isinstance(event, MembersExited)]
    assert [*exited.exits] == ["a", "b", "c"]
    assert harness.job(1).state is JobState.COMPLETED


def test_a_failed_member_stops_the_running_members() -> None:
    harness = world_with(GANG)
    harness.tell(MembersReported(1, 1, dict.fromkeys("abc", RUNS)))
    harness.tell(MembersReported(1, 1, {"a": over(), "b": over(3)}))
    assert [sent.node for sent in harness.sent if isinstance(sent.frame, Stop)] == ["c"]
    harness.tell(AgentReported("c", over(None, 15, why="member_failed")))
    assert (harness.job(1).state, harness.job(1).detail) == (JobState.FAILED, "b: exit code 3")


OTHER = AttemptStatus(2, 1, 8, 1_000.0)
CANCEL = job_inputs.Cancel(5, "ada")
MERGED: list[tuple[str, list[Input], list[Input]]] = [
    ("one report", [AgentReported("a", RUNS)], [AgentReported("a", RUNS)]),
    (
        "members of one attempt",
        [AgentReported("a", RUNS), AgentReported("b", RUNS)],
        [MembersReported(1, 1, {"a": RUNS, "b": RUNS})],
    ),
    (
        "members of two",
        [AgentReported("a", RUNS), AgentReported("a", OTHER), AgentReported("b", RUNS)],
        [MembersReported(1, 1, {"a": RUNS, "b": RUNS}), AgentReported("a", OTHER)],
    ),
    (
        "something between them",
        [AgentReported("a", RUNS), CANCEL, AgentReported("b", RUNS)],
        [AgentReported("a", RUNS), CANCEL, AgentReported("b", RUNS)],
    ),
    (
        "the second word of one",
        [AgentReported("a", RUNS), AgentReported("b", RUNS), AgentReported("a", over())],
        [MembersReported(1, 1, {"a": RUNS, "b": RUNS}), AgentReported("a", over())],
    ),
]


@pytest.mark.parametrize(("given", "expected"), [row[1:] for row in MERGED], ids=[row[0] for row in MERGED])
def test_reports_that_are_merged(given: list[Input], expected: list[Input]) -> None:
    assert [given for given, _ in merge_member_reports((each, None) for each in given)] == expected


def test_an_input_with_a_caller_is_not_merged() -> None:
    report = AgentReported("a", RUNS)
    assert [*merge_member_reports([(report, "caller"), (AgentReported("b", RUNS), None)])] == [
        (report, "caller"),
        (AgentReported("b", RUNS), None),
    ]
