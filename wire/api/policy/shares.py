"""API bodies for fair shares: the weights of tenants and their usage."""

from __future__ import annotations

from typing import Optional

from wire.dataclass import dataclass


@dataclass(frozen=True)
class ShareWeight:
    """The weight and the limits of an organisation, a project or a user (`project/user`) in the fair-share
    tree.

    `soft` and `hard` are limits on the usage, in billing units. -1 means no limit; None leaves a limit
    unchanged. Above the soft limit, jobs of the organisation, project or user start after all other jobs. At
    the hard limit, none of these jobs starts.
    """

    share: str
    weight: Optional[float] = None
    soft: Optional[float] = None
    hard: Optional[float] = None


@dataclass(frozen=True)
class ShareView:
    """An organisation, project or user in the fair-share tree. `used` is the decayed usage in billing units.
    `held` is how many billing units per hour the running jobs add to the usage.
    """

    path: tuple[str, ...]
    share: str
    weight: float
    part: float
    """The weight divided by the sum of the weights of all children of the same parent, from 0 to 1."""
    used: float
    held: float
    factor: float
    """The fair-share factor, from 0 to 1: without usage it is 1. For each level of the tree on which usage
    equals the fair share, the factor is halved.
    """
    beyond: bool = False
    """True if this entry of the fair-share tree, or one of its parents, exceeds its soft limit."""
    soft: Optional[float] = None
    hard: Optional[float] = None
    stopped: str = ""
    """The name of the entry of the fair-share tree whose hard limit prevents starts of jobs: this entry or
    one of its parents. Empty if no hard limit prevents them.
    """
    until: Optional[float] = None
    """The latest time at which the usage of the entry `stopped` will be below its hard limit, so that jobs
    may start again; None if this time is unknown.
    """


@dataclass(frozen=True)
class HoursInForce:
    """The tables [hours.NAME] of scheduler.toml whose quotas and weights are in force now."""

    tables: tuple[str, ...]
    """The names of the tables [hours.NAME] in force. If the list is empty, the limits of [quota] and the
    weights of [fair_share] apply.
    """
    until: Optional[float] = None
    """The time at which other tables come into force; None if this does not happen within a week."""
    then: tuple[str, ...] = ()
    """The names of the tables that are in force from the time `until` on."""


@dataclass(frozen=True)
class ShareList:
    """All entries of the fair-share tree. Each parent is listed before its children."""

    shares: tuple[ShareView, ...]
    at: float
    hours: Optional[HoursInForce] = None
    """The tables [hours.NAME] in force; None if there are no such tables."""
