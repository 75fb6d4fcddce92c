"""Who may have how much: shares, quotas, licences, reservations and profiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional

from wire.quota import Limits, Quota
from wire.reservation import ReservationSpec


@dataclass(frozen=True)
class ShareWeight:
    """What an organisation, a project or a user (`project/user`) weighs beside others, and its limits.

    Limits are units that count; -1: none, None: as before. Over the soft one its jobs come after everybody
    else's, at the hard one nothing of it starts.
    """

    share: str
    weight: Optional[float] = None
    soft: Optional[float] = None
    hard: Optional[float] = None


@dataclass(frozen=True)
class ShareView:
    """A place in the tree of shares. `used` is what counts now, in billing units; `held` is used per hour."""

    path: tuple[str, ...]
    share: str
    weight: float
    part: float
    """Of all weights beside it."""
    used: float
    held: float
    factor: float
    """1 if it used nothing; halved by each fair share used, at every level."""
    beyond: bool = False
    """Past a soft limit, of its own or above it."""
    soft: Optional[float] = None
    hard: Optional[float] = None
    stopped: str = ""
    """The share whose hard limit keeps its jobs from starting: its own, or one above it."""
    until: Optional[float] = None
    """When they start again at the latest, if that can be foretold."""


@dataclass(frozen=True)
class ShareList:
    """Everybody who has a share, from the top down."""

    shares: tuple[ShareView, ...]
    at: float


@dataclass(frozen=True)
class LicenceView:
    """One licence: how many there are, who holds them, and who waits for some."""

    name: str
    total: int
    used: int
    jobs: tuple[str, ...] = ()
    """Those that hold some, as they are labelled; what is kept for one that is to start counts as held."""
    waiting: int = 0
    """Jobs in the queue that ask for some."""


@dataclass(frozen=True)
class LicenceList:
    """Every licence of the cluster, by name."""

    licences: tuple[LicenceView, ...]
    seq: int


@dataclass(frozen=True)
class QuotaChange:
    """Limits to lay over what holds now; what is not named stays as it is."""

    quota: Quota


@dataclass(frozen=True)
class QuotaView:
    """What holds for a user, project or queue and what it uses; `edited` if that was set while running."""

    scope: str
    name: str
    quota: Quota
    used: Limits
    edited: bool


@dataclass(frozen=True)
class QuotaList:
    """Everybody with a quota or with jobs; GPU-hours are those of the last `window_s` seconds."""

    quotas: tuple[QuotaView, ...]
    window_s: float
    seq: int


@dataclass(frozen=True)
class ProfileView:
    """Who decides for which jobs, on which nodes and how: `policy` as it would stand in scheduler.toml.

    `terms` are what nodes must meet, `nodes` those that do, `shared` the profiles that use some of these.
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


@dataclass(frozen=True)
class ProfileList:
    """In the order in which they are asked whether a job is theirs; none: one policy is for everybody."""

    profiles: tuple[ProfileView, ...]
    seq: int


@dataclass(frozen=True)
class ReserveRequest:
    """`anyway`: although jobs that run on the nodes may run into it."""

    reservation: ReservationSpec
    anyway: bool = False


@dataclass(frozen=True)
class ReservationView:
    """A reservation with the nodes it was given; `on` while its time is. It begins next, or began, then."""

    spec: ReservationSpec
    nodes: tuple[str, ...]
    starts_at: float
    ends_at: float
    on: bool
    by: str
    jobs: tuple[int, ...] = ()


@dataclass(frozen=True)
class ReservationList:
    """All that are to come or on, the next first."""

    reservations: tuple[ReservationView, ...]
    seq: int
