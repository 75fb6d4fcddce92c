"""API bodies for shares, quotas, licences, reservations and profiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional

from wire.cluster.quota import Limits, Quota
from wire.cluster.reservation import ReservationSpec


@dataclass(frozen=True)
class ShareWeight:
    """Weight and limits of an organisation, a project or a user (`project/user`).

    The limits are in billing units; -1: no limit, None: unchanged. Above the soft limit, jobs of the share
    start after all other jobs. At the hard limit, no job of the share starts.
    """

    share: str
    weight: Optional[float] = None
    soft: Optional[float] = None
    hard: Optional[float] = None


@dataclass(frozen=True)
class ShareView:
    """One share in the share tree. `used` is its decayed usage in billing units. `held` is the usage per hour
    of its current allocations.
    """

    path: tuple[str, ...]
    share: str
    weight: float
    part: float
    """The weight as a part, from 0 to 1, of the weights of all shares with the same parent."""
    used: float
    held: float
    factor: float
    """The fair-share factor: 1 without usage; usage equal to the fair share halves it, at each tree level."""
    beyond: bool = False
    """True if the share or one of its parents exceeds its soft limit."""
    soft: Optional[float] = None
    hard: Optional[float] = None
    stopped: str = ""
    """The share whose hard limit keeps jobs from starting: this share or a parent; empty if there is none."""
    until: Optional[float] = None
    """The latest time at which jobs of the share may start again; None if unknown."""


@dataclass(frozen=True)
class ShareList:
    """All shares; each parent is listed before its children."""

    shares: tuple[ShareView, ...]
    at: float


@dataclass(frozen=True)
class LicenceView:
    """One licence: its total, the jobs that hold it, and the number of jobs that wait for it."""

    name: str
    total: int
    used: int
    jobs: tuple[str, ...] = ()
    """Labels of the jobs that hold the licence, including jobs for which it is kept until they start."""
    waiting: int = 0
    """Number of queued jobs that request the licence."""


@dataclass(frozen=True)
class LicenceList:
    """All licences of the cluster, ordered by name."""

    licences: tuple[LicenceView, ...]
    seq: int


@dataclass(frozen=True)
class QuotaChange:
    """Limits to set. Limits that are None stay unchanged."""

    quota: Quota


@dataclass(frozen=True)
class QuotaView:
    """Limits and usage of a user, project or queue. `edited` is True if the limits were set at run time."""

    scope: str
    name: str
    quota: Quota
    used: Limits
    edited: bool


@dataclass(frozen=True)
class QuotaList:
    """Users, projects and queues with a quota or with jobs. GPU-hours are those of the last `window_s`
    seconds.
    """

    quotas: tuple[QuotaView, ...]
    window_s: float
    seq: int


@dataclass(frozen=True)
class ProfileView:
    """A scheduler profile: its jobs, its nodes, and its `policy` as in scheduler.toml.

    `terms` are its conditions on nodes, `nodes` are the nodes that meet them, and `shared` are the other
    profiles that use these nodes.
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
    """Profiles, in the order in which the controller tries them for a job. Empty: one policy for all jobs."""

    profiles: tuple[ProfileView, ...]
    seq: int


@dataclass(frozen=True)
class ReserveRequest:
    """A reservation to make. With `anyway` it is made even if running jobs may still be on its nodes at its
    start.
    """

    reservation: ReservationSpec
    anyway: bool = False


@dataclass(frozen=True)
class ReservationView:
    """A reservation with its nodes. `on` is True while it is active. `starts_at` is the start of the current
    or next period.
    """

    spec: ReservationSpec
    nodes: tuple[str, ...]
    starts_at: float
    ends_at: float
    on: bool
    by: str
    jobs: tuple[int, ...] = ()


@dataclass(frozen=True)
class ReservationList:
    """Current and future reservations, ordered by start time."""

    reservations: tuple[ReservationView, ...]
    seq: int
