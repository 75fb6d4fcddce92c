"""The record of an API token. The secret of a token is never stored; the record has its SHA-256 hash."""

from __future__ import annotations

from controller.core.model.dataclass import dataclass

USER, ROBOT, SESSION = "user", "robot", "session"
KINDS = (USER, ROBOT, SESSION)
"""The kinds of tokens: made by a user, made by an admin for a robot, and made by a login. Only with a token
of a login, a caller may create further tokens.
"""

FORGET_S = 7 * 86_400.0
"""A token is kept in the list for at least this many seconds after its expiry."""


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
    """Requests with the token may act only on jobs in these projects; empty: all projects."""
    expires_at: float | None = None
    robot: str = ""
    role: str = ""
    """The highest role that the token gives; empty for the role of the user. A robot's role is in
    [access.robots].
    """
    groups: tuple[str, ...] = ()
    """The groups of the user at the identity provider when the user logged in; only for a token of a login.
    """

    def is_valid(self, now: float) -> bool:
        """Return whether the token has not expired."""
        return self.expires_at is None or now < self.expires_at
