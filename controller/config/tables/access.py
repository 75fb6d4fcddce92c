"""The table [access]: operators, robots, the login with an identity provider, and the audit log."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from controller.config.tables.fields import AbsolutePath, Name, Section, WithOptions
from controller.config.tables.limits import LimitsSection


def is_confidential(url: str) -> bool:
    """Return whether no other host can read or change the answers of this URL: https, or http on loopback."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "https":
            return bool(parts.hostname)
        return parts.scheme == "http" and ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def _issuer(text: str) -> str:
    if not (text.isprintable() and " " not in text and is_confidential(text)):
        raise ValueError(
            f'cannot use {text!r} as an issuer; write its URL, such as "https://login.example.org"'
        )
    return text


class RobotSection(Section):
    """A robot: a program that calls the API with tokens of its own, and that cannot log in. Its jobs run as
    the account `user`.
    """

    user: Name
    role: Literal["viewer", "user", "operator"] = "user"
    can: list[Literal["read", "output", "submit", "change", "exec", "operate"]] = ["read", "submit"]
    projects: list[Name] = []


class AuditSection(Section):
    """The files of the audit log, and the syslog that gets its entries."""

    file_mib: float = Field(16.0, ge=0.001, le=10_000)
    files: int = Field(20, ge=1, le=10_000)
    syslog: AbsolutePath = ""


class OidcRule(Section):
    """The rights of the members of one group of the identity provider; group "*": of all users."""

    group: Name
    role: Literal["viewer", "user", "operator"] = "user"
    projects: list[Name] = []


class OidcSection(WithOptions):
    """The identity provider at which people log in (`corral login`), and the rights of their groups. Keys
    without a field in this class are options of the provider's plugin.
    """

    provider: Name = "oidc"
    issuer: Annotated[str, AfterValidator(_issuer)]
    client_id: str = Field(min_length=1)
    scopes: list[Name] = ["openid", "profile"]
    user_claim: Name = "preferred_username"
    groups_claim: Name = "groups"
    session_hours: float = Field(12.0, gt=0, le=720)
    rules: list[OidcRule] = []


class AccessSection(Section):
    """Sets the users that are operators, the robots, and the actions that other users may take. Root and the
    user of the controller may do everything.
    """

    operators: list[Name] = []
    others: Literal["submit", "view"] = "submit"
    robots: dict[Name, RobotSection] = {}
    oidc: OidcSection | None = None
    audit: AuditSection = AuditSection()
    token_days: float = Field(365.0, gt=0, le=3_650)
    tokens_per_user: int = Field(100, ge=1, le=10_000)
    limits: LimitsSection = LimitsSection()
