"""Events about API tokens. Only admins and the owner of a token may see them."""

from __future__ import annotations

from controller.core.model.dataclass import dataclass
from controller.core.model.events.event import ClusterEvent
from controller.core.model.tokens import TokenRecord


@dataclass(frozen=True, slots=True)
class TokenCreated(ClusterEvent):
    """A token was created. `token` contains the hash of the token, and not the token itself."""

    token: TokenRecord


@dataclass(frozen=True, slots=True)
class TokenRevoked(ClusterEvent):
    """A token was revoked. `by` is empty if the controller removed a token that expired long ago."""

    id: str
    user: str
    name: str
    by: str


PRIVATE = frozenset({"TokenCreated", "TokenRevoked"})
"""The kinds of events that only admins and the user of the token may see."""
