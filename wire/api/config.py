"""Bodies of /v1/config: the configuration in effect, and what another one would change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class ConfigChange:
    """A changed key of scheduler.toml, as JSON; None: the key is missing. Secrets are not shown."""

    key: str
    before: Optional[str]
    after: Optional[str]
    live: bool = True
    """False: the change takes effect when the controller restarts."""


@dataclass(frozen=True)
class ConfigView:
    """The configuration in effect: its file, the time since when, and the user who applied it."""

    file: str
    digest: str
    since: Optional[float] = None
    by: str = ""
    previous: bool = False
    """True if the text of the previous configuration is stored."""


@dataclass(frozen=True)
class ConfigRequest:
    """Another scheduler.toml: its text, the previous one (`previous`), or neither for the controller's file.

    With `expect`, the request is refused unless it is the digest of the configuration in effect.
    """

    text: Optional[str] = None
    name: str = "scheduler.toml"
    previous: bool = False
    dry_run: bool = False
    expect: str = ""


@dataclass(frozen=True)
class ConfigAnswer:
    """The changes, made or planned. With problems nothing is changed."""

    file: str
    digest: str
    """Digest of the configuration in effect before this change, for `expect`."""
    changes: tuple[ConfigChange, ...] = ()
    problems: tuple[str, ...] = ()
    applied: bool = False
    notes: tuple[str, ...] = ()
    """Changes that could not be made at once, such as removing a node that has jobs."""
    text: str = ""
    """The text that would be applied, for administrators, if the request did not have it."""
