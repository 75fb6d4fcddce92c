"""Rows and journal say the same, also of a controller that was started anew."""

from __future__ import annotations

from controller.core import inputs
from controller.core.apply import apply
from controller.core.engine import Engine
from controller.core.events import NodeWentAway
from controller.core.nodes import JUST_STARTED
from controller.core.records import job_row, node_row, restore
from controller.core.state import State
from tests.worlds import PIPELINE, World, spec
from wire.words import NodeState


def restarted(world: World) -> Engine:
    """Another engine that knows what the rows say."""
    state = State(PIPELINE.order)
    jobs = [job_row(job, with_spec=True) for job in world.state.jobs.values()]
    there = restore(state, jobs, [node_row(node) for node in world.state.nodes])
    engine = Engine(PIPELINE, state)
    world.events += engine.handle(inputs.ControllerStarted(there), world.now).events
    return engine


def test_a_start_costs_every_node_that_was_there_and_the_journal_says_so() -> None:
    world = World()
    for name in ("a", "b", "lost"):
        world.join(name)
    world.tell(inputs.AddNode("new", {}))
    world.tell_drain("b")
    world.tell(inputs.LinkWentDown("lost", "cut"))
    world.submit(spec(1))
    world.tick()
    before = len(world.events)
    engine = restarted(world)
    assert world.events[before:] == [NodeWentAway(node, world.now, JUST_STARTED) for node in ("a", "b")]
    assert {node.state for node in engine.state.nodes} == {NodeState.SUSPECT, NodeState.DOWN}
    assert [node.why for node in engine.state.nodes] == [JUST_STARTED, "test", "cut", "never connected"]


def test_the_journal_adds_up_to_the_rows_across_a_start() -> None:
    world = World()
    world.join("a")
    world.join("b")
    world.tell(inputs.LinkWentDown("b", "cut"))
    world.tell_drain("b")
    engine = restarted(world)
    for given in (
        inputs.Drain("a", "root", "why"),
        inputs.Resume("b", "root"),
        inputs.AddNode("a", {"x": "y"}),
    ):
        world.events += engine.handle(given, world.now).events
    folded = State(PIPELINE.order)
    for event in world.events:
        apply(folded, event)
    assert [node_row(node) for node in folded.nodes] == [node_row(node) for node in engine.state.nodes]


def test_a_second_start_tells_nothing_new() -> None:
    world = World()
    world.join("a")
    world.engine = restarted(world)
    before = len(world.events)
    restarted(world)
    assert len(world.events) == before
