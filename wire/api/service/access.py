"""API bodies for access: the caller, tokens and the audit log."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Mapping, Optional

from wire.dataclass import dataclass

ABILITIES = ("read", "output", "submit", "change", "exec", "operate", "admin")
"""The abilities that a token can have. docs/access.md shows which route needs which ability."""


@dataclass(frozen=True)
class WhoAmI:
    """The user or robot that sent a request, as the controller has identified it: name, role and token."""

    user: str
    role: str
    token: str = ""
    """The id of the token; empty on the unix socket."""
    robot: str = ""
    can: tuple[str, ...] = ABILITIES
    projects: Optional[tuple[str, ...]] = None
    """The only projects for whose jobs and settings the token may be used; None means all projects."""
    operated: tuple[str, ...] = ()
    """The projects of which the user is an operator."""
    read_only: bool = False
    address: str = ""


@dataclass(frozen=True)
class TokenView:
    """A token. Its text is shown only once, when the token is created."""

    id: str
    kind: str
    name: str
    user: str
    robot: str
    can: tuple[str, ...]
    projects: tuple[str, ...]
    made_at: float
    by: str
    expires_at: Optional[float] = None
    used_at: Optional[float] = None
    """The time of the last request with this token since the start of this controller; None if there was
    none.
    """
    used_from: str = ""


@dataclass(frozen=True)
class TokenRequest:
    """A request for a new token. Without `days`, the token is valid for [access] token_days. Only admins may
    set `user` or `robot`.
    """

    name: str
    can: tuple[str, ...] = ("read", "submit", "change")
    projects: tuple[str, ...] = ()
    days: Optional[float] = None
    user: str = ""
    robot: str = ""


@dataclass(frozen=True)
class TokenMade:
    """A new token with its text. The controller keeps only a hash of the text."""

    token: TokenView
    text: str


@dataclass(frozen=True)
class LoginOffer:
    """The identity provider at which people log in (OpenID Connect, device authorisation grant)."""

    provider: str
    issuer: str
    client_id: str
    scopes: tuple[str, ...]


@dataclass(frozen=True)
class LoginRequest:
    """A login: the ID token of the identity provider, and the nonce that the client has sent to the provider.
    The nonce counts only if the ID token has one.
    """

    id_token: str
    nonce: str = ""
    name: str = "login"


@dataclass(frozen=True)
class LoginAnswer:
    """A session: its token with its text, the role of the user, and the groups whose rules have matched."""

    token: TokenView
    text: str
    role: str
    groups: tuple[str, ...]


@dataclass(frozen=True)
class TokenList:
    tokens: tuple[TokenView, ...]


@dataclass(frozen=True)
class AuditRecord:
    """One entry of the audit log: a request that changed something or that was refused. `before` and `after`
    have the changed properties of the object. Environments and commands of jobs are left out.
    """

    seq: int
    at: float
    caller: str
    role: str
    token: str
    address: str
    action: str
    object: str
    outcome: str
    status: int
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    repeated: int = 0
    """The number of equal refused requests before this request that have no entry of their own, because there
    were too many.
    """
    chain: str = ""
    """The hash over this entry and the hash of the entry before it."""


@dataclass(frozen=True)
class AuditPage:
    """Entries of the audit log of one controller, and the head of its hash chain."""

    entries: tuple[AuditRecord, ...]
    seq: int
    head: str
    broken_at: Optional[int] = None
    """The number of the first entry whose hash is wrong, so that the log was changed; None if all hashes are
    right.
    """
