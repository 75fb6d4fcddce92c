"""Events about the controller: its configuration, its journal and its plugins."""

from __future__ import annotations

from controller.core.model.dataclass import dataclass
from controller.core.model.events.event import ClusterEvent
from controller.core.model.events.nodes import Overcommit


@dataclass(frozen=True, slots=True)
class ConfigApplied(ClusterEvent):
    """The controller has begun to use another configuration."""

    digest: str
    by: str
    changed: tuple[str, ...] = ()
    """The names of the changed keys. Their values are left out, because every user may read events and a
    value may be secret.
    """
    policy: str = ""
    """The tables of scheduler.toml that affect scheduling decisions, as JSON."""
    overcommit: Overcommit | None = None
    """The new overcommit factors of all nodes; None: unchanged."""


@dataclass(frozen=True, slots=True)
class JournalSealed(ClusterEvent):
    """Old journal entries, up to and including number `through`, are deleted. `digest` is the hash of entry
    `through`.
    """

    through: int
    digest: str


@dataclass(frozen=True, slots=True)
class PluginFailed(ClusterEvent):
    """A plugin raised an exception or returned an invalid value. The plugin is not called again in this
    scheduling cycle.

    If `given_up` is True, the plugin is not called until the controller restarts or gets another
    configuration.
    """

    kind: str
    name: str
    why: str
    given_up: bool
