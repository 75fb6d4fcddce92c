"""Shares, quotas, licences, reservations and profiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional

from wire.cluster.quota import Limits, Quota
from wire.cluster.reservation import ReservationSpec


@dataclass(frozen=True)
class ShareWeight:
    """Weight and limits of an organisation, a project or a user (`project/user`).

    Limits are in billing units; -1: no limit, None: as before. Over the soft limit its jobs start after all
    others; at the hard limit none of its jobs starts.
    """

    share: str
    weight: Optional[float] = None
    soft: Optional[float] = None
    hard: Optional[float] = None


@dataclass(frozen=True)
class ShareView:
    """A node of the share tree. `used` is decayed usage in billing units; `held` is usage per hour now."""

    path: tuple[str, ...]
    share: str
    weight: float
    part: float
    """Part of the weights of all shares with the same parent."""
    used: float
    held: float
    factor: float
    """1 without usage; halved by each fair share used, at every level."""
    beyond: bool = False
    """True if it exceeds a soft limit, its own or that of a parent."""
    soft: Optional[float] = None
    hard: Optional[float] = None
    stopped: str = ""
    """The share whose hard limit stops its jobs: this one, or a parent; empty if none."""
    until: Optional[float] = None
    """The latest time at which its jobs start again; None if unknown."""


@dataclass(frozen=True)
class ShareList:
    """All shares, from the root down."""

    shares: tuple[ShareView, ...]
    at: float


@dataclass(frozen=True)
class LicenceView:
    """One licence: its number, the jobs that hold it, and the jobs that wait for it."""

    name: str
    total: int
    used: int
    jobs: tuple[str, ...] = ()
    """Labels of the jobs that hold it; a reservation for a job that will start counts as held."""
    waiting: int = 0
    """Queued jobs that request it."""


@dataclass(frozen=True)
class LicenceList:
    """Every licence of the cluster, by name."""

    licences: tuple[LicenceView, ...]
    seq: int


@dataclass(frozen=True)
class QuotaChange:
    """Limits to set; limits that are not named stay as they are."""

    quota: Quota


@dataclass(frozen=True)
class QuotaView:
    """Limits and usage of a user, project or queue; `edited` if they were set at run time."""

    scope: str
    name: str
    quota: Quota
    used: Limits
    edited: bool


@dataclass(frozen=True)
class QuotaList:
    """Users, projects and queues with a quota or with jobs; GPU-hours are of the last `window_s` seconds."""

    quotas: tuple[QuotaView, ...]
    window_s: float
    seq: int


@dataclass(frozen=True)
class ProfileView:
    """A scheduler profile: its jobs, its nodes, and its `policy` as in scheduler.toml.

    `terms` are its conditions on nodes, `nodes` the nodes that meet them, `shared` other profiles on these
    nodes.
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
    """Profiles, in the order in which they are tried for a job; empty: one policy for all jobs."""

    profiles: tuple[ProfileView, ...]
    seq: int


@dataclass(frozen=True)
class ReserveRequest:
    """A reservation to make; `anyway` even if running jobs may still be on its nodes at the start."""

    reservation: ReservationSpec
    anyway: bool = False


@dataclass(frozen=True)
class ReservationView:
    """A reservation with its nodes; `on` while it is active. `starts_at` is its next or present start."""

    spec: ReservationSpec
    nodes: tuple[str, ...]
    starts_at: float
    ends_at: float
    on: bool
    by: str
    jobs: tuple[int, ...] = ()


@dataclass(frozen=True)
class ReservationList:
    """Current and future reservations, the next first."""

    reservations: tuple[ReservationView, ...]
    seq: int
