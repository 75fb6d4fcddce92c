"""Every input and event is known to all who must know it, above all to the replay of the past."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

from controller.core.model import events
from controller.core.model.events import KINDS
from controller.core.model.inputs import Input
from controller.sim.replay.input_traces import FOLLOW, WAYS, traced


def test_every_input_has_a_way_to_come_again() -> None:
    """Who adds an input says in ways.py how it shows in the journal, and how it is made again of that."""
    assert {*WAYS} == {*get_args(Input)}


def test_every_event_is_a_trace_or_follows_from_one() -> None:
    assert {*traced()} | FOLLOW == {*KINDS.values()}


def test_all_that_an_agent_told_is_told_again() -> None:
    """Who adds a field to these events passes it on in agents.py."""
    told = {
        events.AttemptStarted: "job at attempt node pid",
        events.AttemptExited: "job at attempt node code signal why cpu_s max_rss_mib checkpoint use",
        events.MembersStarted: "job at attempt pids",
        events.MembersExited: "job at attempt exits",
        events.Exit: "code signal why cpu_s max_rss_mib checkpoint use",
        # Overcommit is not told: it is what the configuration makes of it.
        events.NodeJoined: "node at facts boot_id version overcommit",
    }
    for kind, names in told.items():
        assert [field.name for field in fields(kind)] == names.split()
