"""API bodies of /v1/config: the configuration in effect, and the changes that another one would make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class ConfigChange:
    """A changed key of scheduler.toml, with JSON values. None: the key is missing. Secrets are not shown."""

    key: str
    before: Optional[str]
    after: Optional[str]
    live: bool = True
    """False: the change takes effect when the controller restarts."""


@dataclass(frozen=True)
class ConfigView:
    """The configuration in effect: its file, when it was applied, and the user who applied it."""

    file: str
    digest: str
    since: Optional[float] = None
    by: str = ""
    previous: bool = False
    """True if the text of the previous configuration is stored."""


@dataclass(frozen=True)
class ConfigRequest:
    """A request to apply another configuration: `text`, the previous configuration (`previous`), or, if
    neither is set, the controller's file.

    If `expect` is set and is not the digest of the configuration in effect, the request is refused.
    """

    text: Optional[str] = None
    name: str = "scheduler.toml"
    previous: bool = False
    dry_run: bool = False
    expect: str = ""


@dataclass(frozen=True)
class ConfigAnswer:
    """The changes of a configuration, made if `applied`, else planned. If `problems` has entries, nothing was
    changed.
    """

    file: str
    digest: str
    """Digest of the configuration in effect before this change, for `expect`."""
    changes: tuple[ConfigChange, ...] = ()
    problems: tuple[str, ...] = ()
    applied: bool = False
    notes: tuple[str, ...] = ()
    """Changes that could not be made at once, such as removing a node that has jobs."""
    text: str = ""
    """The text that would be applied, if the request did not have it. Only administrators get it."""
