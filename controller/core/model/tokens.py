"""The record of an API token. The secret of a token is never stored; the record has its SHA-256 hash."""

from __future__ import annotations

from controller.core.model.dataclass import dataclass

USER, ROBOT, SESSION = "user", "robot", "session"
KINDS = (USER, ROBOT, SESSION)
"""The kinds of tokens: made by a user, made by an admin for a robot, and made by `corral login`."""

FORGET_S = 7 * 86_400.0
"""Seconds after its expiry for which a token is still listed."""


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token: its owner, its abilities and the SHA-256 hash of its text."""

    id: str
    kind: str
    name: str
    user: str
    digest: str
    can: tuple[str, ...]
    made_at: float
    by: str
    projects: tuple[str, ...] = ()
    """The only projects that the token may concern; empty for all projects."""
    expires_at: float | None = None
    robot: str = ""
    role: str = ""
    """The highest role of the token; empty for the role of its user."""

    def is_valid(self, now: float) -> bool:
        """Return whether the token has not expired."""
        return self.expires_at is None or now < self.expires_at
