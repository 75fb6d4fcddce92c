"""API bodies for fair shares, quotas, licences, reservations and scheduler profiles."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from wire.cluster.quota import ANY_NAME, UNLIMITED, Amount, Limits, Quota
from wire.cluster.reservation import ReservationSpec
from wire.dataclass import dataclass
from wire.text import decimal


@dataclass(frozen=True)
class ShareWeight:
    """The weight and the limits of an organisation, a project or a user (`project/user`) in the share tree.

    `soft` and `hard` are limits on the usage, in billing units. -1 means no limit; None leaves a limit
    unchanged. Above the soft limit, jobs of the organisation, project or user start after all other jobs. At
    the hard limit, none of them starts.
    """

    share: str
    weight: Optional[float] = None
    soft: Optional[float] = None
    hard: Optional[float] = None


@dataclass(frozen=True)
class ShareView:
    """An organisation, project or user in the share tree. `used` is the decayed usage in billing units.
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
    """The fair-share factor, which is 1 without usage. On each level of the tree, usage equal to the fair
    share halves the factor.
    """
    beyond: bool = False
    """True if this entry of the share tree, or one of its parents, exceeds its soft limit."""
    soft: Optional[float] = None
    hard: Optional[float] = None
    stopped: str = ""
    """The name of the entry whose hard limit keeps jobs from starting: this entry or one of its parents.
    Empty if there is no such entry.
    """
    until: Optional[float] = None
    """The latest time at which jobs may start again; None if unknown."""


@dataclass(frozen=True)
class HoursInForce:
    """The tables [hours.NAME] of scheduler.toml whose quotas and weights are in force now."""

    tables: tuple[str, ...]
    """The names of the tables [hours.NAME] in force. If the list is empty, the limits of [quota] and the
    weights of [fair_share] apply.
    """
    until: Optional[float] = None
    """The time of the next change; None if there is none within a week."""
    then: tuple[str, ...] = ()
    """The names of the tables that are in force after the next change."""


@dataclass(frozen=True)
class ShareList:
    """All entries of the share tree. Each parent is listed before its children."""

    shares: tuple[ShareView, ...]
    at: float
    hours: Optional[HoursInForce] = None
    """The tables [hours.NAME] in force; None if there are no such tables."""


@dataclass(frozen=True)
class LicenceView:
    """One licence: its total number, the jobs that hold it, and the number of jobs that wait for it."""

    name: str
    total: int
    used: int
    jobs: tuple[str, ...] = ()
    """The labels of the jobs that hold the licence, or for which the licence is kept until they start."""
    waiting: int = 0
    """The number of queued jobs that request the licence."""


@dataclass(frozen=True)
class LicenceList:
    """All licences of the cluster, ordered by name."""

    licences: tuple[LicenceView, ...]
    seq: int


@dataclass(frozen=True)
class QueueDay:
    """The numbers of jobs of a queue that started or ended in the last 24 hours. The period begins at
    `since`, a full hour.

    A wait lasts from the time at which the job may start to its first start. The percentiles of waits are
    accurate to 12 %, and None if no job has started.
    """

    since: float
    started: int = 0
    completed: int = 0
    failed: int = 0
    """The number of jobs that ended in any state except COMPLETED."""
    wait_p50_s: Optional[float] = None
    wait_p95_s: Optional[float] = None
    wait_longest_s: Optional[float] = None
    ended_per_hour: float = 0.0


@dataclass(frozen=True)
class QueueView:
    """One queue: its policy, and the resources that its jobs use now."""

    name: str
    priority: int
    """The priority of the queue: jobs of queues with a higher number start first."""
    policy: tuple[str, ...]
    """Phrases that describe the policy of the queue, such as "never preempted"."""
    waiting: int
    running: int
    gpus: float
    """The GPUs that the running jobs of the queue hold."""
    settings: Mapping[str, Any]
    """The keys that [queues.NAME] of scheduler.toml sets, with their values; empty without such a table."""
    day: Optional[QueueDay] = None
    """The figures of the last 24 hours; None from a controller of an earlier version."""


@dataclass(frozen=True)
class QueueList:
    """All queues, the highest priority first. If scheduler.toml has no tables [queues.NAME], only the queues
    with jobs are listed.
    """

    queues: tuple[QueueView, ...]
    seq: int


@dataclass(frozen=True)
class QuotaChange:
    """The body of a request to change a quota. Limits that are None stay unchanged."""

    quota: Quota


@dataclass(frozen=True)
class QuotaView:
    """Limits and usage of a user, project or queue. `edited` is True if a command has set the limits, and
    False if they are those of the configuration. `budget` is the use of a project's budget as text, such as
    `80 % of 2026-11: 4,000 of 5,000 GPU-hours`; empty without a budget.
    """

    scope: str
    name: str
    quota: Quota
    used: Limits
    edited: bool
    policy: tuple[str, ...] = ()
    """For a queue, phrases that describe its policy in scheduler.toml, as in QueueView."""
    budget: str = ""
    gpu_hours_planned: float = 0.0
    """The further GPU-hours that running jobs will use if each runs until its time limit. They count towards
    the limit on GPU-hours. A job without a time limit counts as if it ran for the whole time window of the
    limit.
    """

    def counted(self, field: str) -> float:
        """Return the amount that is compared with the limit `field` of Limits, such as `gpus`."""
        used: float = getattr(self.used, field) or 0
        return used + self.gpu_hours_planned if field == "gpu_hours" else used

    def use_text(self, amount: Amount) -> str:
        """Return the use of one resource and its hard limit as text, such as 12/16, or 12 without a limit.
        GPU-hours with a limit also show the GPU-hours that running jobs may still use, such as 12+30/100.
        """
        used, hard = getattr(self.used, amount.field) or 0, getattr(self.quota.hard, amount.field)
        bound = "" if hard in (None, UNLIMITED) else f"/{amount.text(hard)}"
        if self.name == ANY_NAME:
            return f"-{bound}"
        if amount.field != "gpu_hours":
            return f"{amount.text(used)}{bound}"
        more = f"+{_hours(self.gpu_hours_planned)}" if bound and self.gpu_hours_planned else ""
        return f"{_hours(used)}{more}{bound}"


def _hours(hours: float) -> str:
    return decimal(hours).removesuffix(".0")


def model_use_text(view: QuotaView) -> str:
    """Return the use and the hard limit of each GPU model with a limit, such as `H100 12/16, A100 4/8`."""
    limits, used = view.quota.hard.gpus_per_model, view.used.gpus_per_model
    found = []
    for model in sorted({*limits, *used}):
        limit, use = limits.get(model), used.get(model)
        bound = "" if limit is None or limit.gpus in (None, UNLIMITED) else f"/{limit.gpus:g}"
        found.append(f"{model} {'-' if view.name == ANY_NAME or use is None else f'{use.gpus:g}'}{bound}")
    return ", ".join(found)


@dataclass(frozen=True)
class QuotaList:
    """Users, projects and queues that have a quota or jobs. GPU-hours are counted over the last `window_s`
    seconds.
    """

    quotas: tuple[QuotaView, ...]
    window_s: float
    seq: int
    hours: Optional[HoursInForce] = None
    """The tables [hours.NAME] in force; None if there are no such tables."""


@dataclass(frozen=True)
class ProfileView:
    """A scheduler profile: its `policy` as in scheduler.toml, and the jobs and nodes to which the policy
    applies.

    `terms` are the conditions that a node must meet, and `nodes` are the nodes that meet them. `shared`
    are the other profiles that use some of these nodes.
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
    """All profiles, in the order in which the controller tries them for a job. If the configuration has no
    profiles, the list is empty, and the same policy applies to all jobs.
    """

    profiles: tuple[ProfileView, ...]
    seq: int


@dataclass(frozen=True)
class ReserveRequest:
    """The body of a request to reserve nodes. With `anyway` the reservation is made even if running jobs
    may still be on its nodes when it starts.
    """

    reservation: ReservationSpec
    anyway: bool = False


@dataclass(frozen=True)
class ReservationView:
    """A reservation and its nodes. `on` is True while the reservation is active. For a repeated reservation,
    `starts_at` is the start of the current or the next period.
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
