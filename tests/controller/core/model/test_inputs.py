"""Every input and event is known to the engine and to the replay of the past."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from pkgutil import iter_modules

from controller.core.model import inputs
from controller.core.model.events.attempts import (
    AttemptExited,
    AttemptStarted,
    Exit,
    MembersExited,
    MembersStarted,
)
from controller.core.model.events.kinds import KINDS
from controller.core.model.events.nodes import NodeJoined
from controller.core.model.inputs.controller_inputs import Tick
from controller.core.model.inputs.input import Input
from controller.core.model.inputs.job_inputs import Cancel
from controller.sim.replay.input_traces import FOLLOW, WAYS, traced
from tests.engine_harness import EngineHarness


def test_every_input_can_be_replayed() -> None:
    """The engine handles each input, and input_traces.py says how the journal shows it."""
    modules = [import_module(f"{inputs.__name__}.{each.name}") for each in iter_modules(inputs.__path__)]
    named = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    known = {each for each in named if issubclass(each, Input)}
    assert {Cancel, Tick} <= known
    bases = {base for each in known for base in each.__mro__[1:]}
    assert {*WAYS} == known - bases
    assert {*EngineHarness().engine._handlers} == known - bases


def test_every_event_is_a_replay_source_or_follows_from_one() -> None:
    assert {*traced()} | FOLLOW == {*KINDS.values()}


def test_every_field_of_agent_events_is_replayed() -> None:
    """A new field of these events must be passed on in agents.py."""
    fields_by_event = {
        AttemptStarted: "job at attempt node pid",
        AttemptExited: "job at attempt node code signal why cpu_s max_rss_mib checkpoint use memory_mib "
        "failure",
        MembersStarted: "job at attempt pids",
        MembersExited: "job at attempt exits",
        Exit: "code signal why cpu_s max_rss_mib checkpoint use memory_mib failure",
        # Overcommit is not reported: it comes from the configuration.
        NodeJoined: "node at facts boot_id version overcommit",
    }
    for kind, names in fields_by_event.items():
        assert [field.name for field in fields(kind)] == names.split()
