"""Applies events to the state. Each class of events has one function, in the modules of `changes/`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller.core.model.events.controller import JournalSealed, PluginFailed
from controller.core.model.events.event import Event
from controller.core.model.events.nominations import RebalancePlanned
from controller.core.state.changes import access, attempts, nodes, nominations, queued, tenants, workloads
from controller.core.state.state import State


def apply(state: State, event: Event) -> None:
    """Change the state with the function that is registered for the class of the event."""
    APPLY[type(event)](state, event)


def _nothing(_state: State, _event: Event) -> None:
    """Change nothing, for an event that only informs users."""


APPLY: dict[type[Any], Callable[[State, Any], None]] = {
    **queued.APPLIED,
    **attempts.APPLIED,
    **nominations.APPLIED,
    **nodes.APPLIED,
    **tenants.APPLIED,
    **workloads.APPLIED,
    **access.APPLIED,
    RebalancePlanned: _nothing,
    PluginFailed: _nothing,
    JournalSealed: _nothing,
}
"""The function that applies an event to the state, by the class of the event."""
