"""State changes here and nowhere else: one function per event, in rooms by what the event happens to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller.core import events
from controller.core.applying import attempts, claims, nodes, tenants, waiting
from controller.core.events import Event
from controller.core.state import State


def apply(state: State, event: Event) -> None:
    """Make the event true."""
    _APPLY[type(event)](state, event)


def _nothing(_state: State, _event: Event) -> None:
    """It is told to people: what follows from it has events of its own, or is no part of the state."""


_APPLY: dict[type[Any], Callable[[State, Any], None]] = {
    **waiting.APPLIED,
    **attempts.APPLIED,
    **claims.APPLIED,
    **nodes.APPLIED,
    **tenants.APPLIED,
    events.RebalancePlanned: _nothing,
    events.PluginFailed: _nothing,
}
