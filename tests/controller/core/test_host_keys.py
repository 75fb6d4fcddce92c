"""Which key a node's host has is a fact like any other: it survives a restart, and goes with the node."""

from __future__ import annotations

from controller.core import inputs
from controller.core.events import HostKeyPinned
from controller.core.notes import noted, recall
from controller.core.state import State
from tests.worlds import PIPELINE, World

ONE, OTHER = "ssh-ed25519 AAAAone", "ssh-ed25519 AAAAother"


def test_a_key_is_pinned_once_and_known_after_a_restart() -> None:
    world = World()
    world.tell(inputs.AddNode("a"))
    for _ in range(2):
        world.tell(inputs.PinKey("a", ONE, "ada"))
    assert [each for each in world.events if isinstance(each, HostKeyPinned)] == [
        HostKeyPinned(1_000.0, "a", ONE, "ada")
    ]
    world.tell(inputs.PinKey("a", OTHER, "bob"))
    assert world.restarted().state.host_keys == world.state.host_keys == {"a": OTHER}


def test_it_is_forgotten_with_the_node_also_in_the_rows() -> None:
    world = World()
    world.tell(inputs.AddNode("a"))
    world.tell(inputs.PinKey("a", ONE, "ada"))
    kept = noted(world.state, world.events)
    decision = world.tell(inputs.RemoveNode("a", "ada"))
    gone = noted(world.state, decision.events)
    assert world.state.host_keys == {}
    state = State(PIPELINE.order)
    recall(state, [*{note.name: note for note in [*kept, *gone] if note.kind == "host-key"}.values()])
    assert state.host_keys == {}
