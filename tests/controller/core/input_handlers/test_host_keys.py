"""The SSH key of a node's host survives a restart and is removed with the node."""

from __future__ import annotations

from controller.core.model.events.nodes import HostKeyPinned
from controller.core.model.inputs import node_inputs
from controller.core.state.note_rows import changed_notes, load_notes
from controller.core.state.state import State
from tests.engine_harness import PIPELINE, EngineHarness

ONE, OTHER = "ssh-ed25519 AAAAone", "ssh-ed25519 AAAAother"


def test_host_key_is_pinned_once_and_survives_a_restart() -> None:
    harness = EngineHarness()
    harness.tell(node_inputs.AddNode("a"))
    for _ in range(2):
        harness.tell(node_inputs.PinKey("a", ONE, "ada"))
    assert [each for each in harness.events if isinstance(each, HostKeyPinned)] == [
        HostKeyPinned(1_000.0, "a", ONE, "ada")
    ]
    harness.tell(node_inputs.PinKey("a", OTHER, "bob"))
    assert harness.restarted().state.host_keys == harness.state.host_keys == {"a": OTHER}


def test_host_key_is_removed_with_its_node() -> None:
    harness = EngineHarness()
    harness.tell(node_inputs.AddNode("a"))
    harness.tell(node_inputs.PinKey("a", ONE, "ada"))
    kept = changed_notes(harness.state, harness.events)
    decision = harness.tell(node_inputs.RemoveNode("a", "ada"))
    gone = changed_notes(harness.state, decision.events)
    assert harness.state.host_keys == {}
    state = State(PIPELINE.order)
    load_notes(state, [*{note.name: note for note in [*kept, *gone] if note.kind == "host-key"}.values()])
    assert state.host_keys == {}
