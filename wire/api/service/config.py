"""API bodies of /v1/config: the configuration in effect, and its differences to another configuration."""

from __future__ import annotations

from typing import Optional

from wire.dataclass import dataclass


@dataclass(frozen=True)
class ConfigChange:
    """A changed key of scheduler.toml, with its old and new JSON value; None if the key is not set. Secrets
    are not shown.
    """

    key: str
    before: Optional[str]
    after: Optional[str]
    live: bool = True
    """True if the change takes effect at once; False if it takes effect only after a restart of the
    controller.
    """


DEFAULT_SOURCE = "default"
"""The source of a key that is not set."""


@dataclass(frozen=True)
class ConfigSetting:
    """A key of the configuration in effect. `value` is JSON; secrets are not shown. `source` is the place
    where the key was set: `file:line`, an environment variable, or "default".
    """

    key: str
    value: str
    source: str
    after_restart: Optional[str] = None
    """The value in the configuration file, if this value takes effect only after a restart of the controller;
    otherwise None.
    """


@dataclass(frozen=True)
class ConfigSettings:
    """All keys of the configuration in effect, in the order of the tables."""

    settings: tuple[ConfigSetting, ...]
    digest: str


@dataclass(frozen=True)
class PolicyText:
    """Sentences about the policy for one subject, such as `project vision` or `cluster`."""

    about: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class PolicyExplanation:
    """An explanation of the scheduling policy, in sentences."""

    texts: tuple[PolicyText, ...]


@dataclass(frozen=True)
class ConfigView:
    """The configuration in effect: the path of its file, the time at which it was applied, and the user that
    applied it.
    """

    file: str
    digest: str
    since: Optional[float] = None
    by: str = ""
    previous: bool = False
    """True if the text of the previous configuration is stored."""
    store: str = ""
    """URL of the store if the store is an SQLite file on the controller's machine; otherwise empty."""


@dataclass(frozen=True)
class ConfigRequest:
    """A request to apply a configuration: the text `text`, or, if `previous` is True, the configuration that
    was in effect before the current one. If neither field is set, the controller applies its configuration
    file.

    If `expect` is set and is not the digest of the configuration in effect, the request is refused.
    """

    text: Optional[str] = None
    name: str = "scheduler.toml"
    previous: bool = False
    dry_run: bool = False
    expect: str = ""


@dataclass(frozen=True)
class QuotaSync:
    """The result of reading the quotas from their source again: the provider of the quotas, and the keys that
    have changed.
    """

    provider: str
    changes: tuple[ConfigChange, ...]
    seq: int


@dataclass(frozen=True)
class ConfigAnswer:
    """The answer to ConfigRequest: how a configuration differs from the one in effect. If `applied` is True,
    the configuration is now in effect; otherwise the changes are only listed. If `problems` is not empty, the
    configuration has errors and nothing was changed.
    """

    file: str
    digest: str
    """The digest of the configuration that was in effect before this change. A later request may use this
    digest as `expect`.
    """
    changes: tuple[ConfigChange, ...] = ()
    problems: tuple[str, ...] = ()
    applied: bool = False
    notes: tuple[str, ...] = ()
    """Sentences about changes that take effect only later, such as the removal of a node that has jobs."""
    text: str = ""
    """The text of the new configuration, if the controller read this text from its file or its history. The
    field is empty for users that are not administrators.
    """
