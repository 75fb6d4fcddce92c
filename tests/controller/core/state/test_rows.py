"""Rows and journal agree, also after a controller has restarted."""

from __future__ import annotations

from controller.core.cluster.node import JUST_STARTED
from controller.core.engine import Engine
from controller.core.model.events.nodes import NodeWentAway
from controller.core.model.inputs import agent_inputs, controller_inputs, node_inputs
from controller.core.state.apply import apply
from controller.core.state.job_and_node_rows import job_row, node_row, restore_state
from controller.core.state.state import State
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.names import NodeState


def restarted(harness: EngineHarness) -> Engine:
    """An engine started from the rows of the harness."""
    state = State(PIPELINE.order)
    jobs = [job_row(job, with_spec=True) for job in harness.state.jobs.values()]
    unsettled = restore_state(state, jobs, [node_row(node) for node in harness.state.nodes])
    engine = Engine(PIPELINE, state)
    harness.events += engine.handle(controller_inputs.ControllerStarted(unsettled), harness.now).events
    return engine


def test_a_start_marks_connected_nodes_as_away_and_records_it() -> None:
    harness = EngineHarness()
    for name in ("a", "b", "lost"):
        harness.join(name)
    harness.tell(node_inputs.AddNode("new", {}))
    harness.tell_drain("b")
    harness.tell(agent_inputs.LinkWentDown("lost", "cut"))
    harness.submit(spec(1))
    harness.tick()
    before = len(harness.events)
    engine = restarted(harness)
    assert harness.events[before:] == [NodeWentAway(node, harness.now, JUST_STARTED) for node in ("a", "b")]
    assert {node.state for node in engine.state.nodes} == {NodeState.SUSPECT, NodeState.DOWN}
    assert [node.why for node in engine.state.nodes] == [JUST_STARTED, "test", "cut", "never connected"]


def test_the_journal_adds_up_to_the_rows_across_a_restart() -> None:
    harness = EngineHarness()
    harness.join("a")
    harness.join("b")
    harness.tell(agent_inputs.LinkWentDown("b", "cut"))
    harness.tell_drain("b")
    engine = restarted(harness)
    for given in (
        node_inputs.Drain("a", "root", "why"),
        node_inputs.Resume("b", "root"),
        node_inputs.AddNode("a", {"x": "y"}),
    ):
        harness.events += engine.handle(given, harness.now).events
    folded = State(PIPELINE.order)
    for event in harness.events:
        apply(folded, event)
    assert [node_row(node) for node in folded.nodes] == [node_row(node) for node in engine.state.nodes]


def test_a_second_start_adds_no_events() -> None:
    harness = EngineHarness()
    harness.join("a")
    harness.engine = restarted(harness)
    before = len(harness.events)
    restarted(harness)
    assert len(harness.events) == before
