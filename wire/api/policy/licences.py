"""API bodies for licences."""

from __future__ import annotations

from wire.dataclass import dataclass


@dataclass(frozen=True)
class LicenceView:
    """One licence: how many of it the cluster has, the jobs that hold it, and the number of queued jobs that
    request it.
    """

    name: str
    total: int
    used: int
    jobs: tuple[str, ...] = ()
    """The display ids of the jobs that hold the licence, and of the jobs for which the licence is kept until
    their start.
    """
    waiting: int = 0
    """The number of queued jobs that request the licence."""


@dataclass(frozen=True)
class LicenceList:
    """All licences of the cluster, ordered by name."""

    licences: tuple[LicenceView, ...]
    seq: int
