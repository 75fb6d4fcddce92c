"""API bodies for scheduler profiles."""

from __future__ import annotations

from typing import Any, Mapping

from wire.dataclass import dataclass


@dataclass(frozen=True)
class ProfileView:
    """A scheduler profile: its `policy` as in scheduler.toml, and the jobs and nodes to which the policy
    applies.

    `terms` are conditions on nodes, and `nodes` are the names of the nodes that meet all these conditions.
    `shared` has the names of other profiles that use some of these nodes.
    """

    name: str
    queues: tuple[str, ...]
    projects: tuple[str, ...]
    users: tuple[str, ...]
    terms: tuple[str, ...]
    nodes: tuple[str, ...]
    gpus: int
    shared: tuple[str, ...]
    queued: int
    running: int
    policy: Mapping[str, Any]
    preemption: Mapping[str, Any]
    failing: tuple[str, ...] = ()
    """Plugins that have failed since the controller started, each with its error."""


@dataclass(frozen=True)
class ProfileList:
    """All scheduler profiles, in the order in which the controller tries them for a job. If scheduler.toml
    has no profiles, the list is empty, and [scheduler] applies to all jobs.
    """

    profiles: tuple[ProfileView, ...]
    seq: int
