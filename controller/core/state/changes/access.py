"""Applies events about API tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller.core.model.events.access import TokenCreated, TokenRevoked
from controller.core.state.state import State


def _token_created(state: State, event: TokenCreated) -> None:
    state.tokens.add(event.token)


def _token_revoked(state: State, event: TokenRevoked) -> None:
    state.tokens.remove(event.id)


APPLIED: dict[type[Any], Callable[[State, Any], None]] = {
    TokenCreated: _token_created,
    TokenRevoked: _token_revoked,
}
