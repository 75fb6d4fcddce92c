"""Events about tenants (users, projects, queues): quotas, budgets, shares, and processes outside of jobs."""

from __future__ import annotations

from controller.core.model.dataclass import dataclass
from controller.core.model.events.event import ClusterEvent
from wire.cluster.quota import Quota


@dataclass(frozen=True, slots=True)
class OffQueueProcessStarted(ClusterEvent):
    """The first process of a user outside of any job was found on a GPU. While such processes of the user run
    on this GPU, the user is charged `rate` billing units per hour. `pid` and `command` belong to the first
    process.
    """

    node: str
    uuid: str
    user: str
    pid: int
    command: str
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class OffQueueProcessEnded(ClusterEvent):
    """The user has no more processes outside of jobs on this GPU."""

    node: str
    uuid: str
    user: str
    since: float


@dataclass(frozen=True, slots=True)
class QuotaSet(ClusterEvent):
    """An operator set a quota, which overrides the configuration."""

    scope: str
    name: str
    quota: Quota
    by: str


@dataclass(frozen=True, slots=True)
class QuotaUnset(ClusterEvent):
    """An operator removed the quota that operators had set for a tenant, so the quota in scheduler.toml
    applies again.
    """

    scope: str
    name: str
    by: str


@dataclass(frozen=True, slots=True)
class BudgetReached(ClusterEvent):
    """A project has used `percent` % of its budget for the month."""

    project: str
    month: str
    percent: int
    used: str
    """The used amount and the budget as a text, such as `4,000 of 5,000 GPU-hours`."""


@dataclass(frozen=True, slots=True)
class HoursChanged(ClusterEvent):
    """From this time on, the tables [hours.NAME] of scheduler.toml with the names `tables` are in force.
    Their quotas and weights override [quota] and [fair_share]. If `tables` is empty, only [quota] and
    [fair_share] apply.
    """

    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShareSet(ClusterEvent):
    """An operator set the weight or the limits of a tenant. The tenant is an organisation, a project or a
    user (`project/user`). A weight or limit that is None is unchanged.
    """

    share: str
    weight: float | None
    by: str
    soft: float | None = None
    hard: float | None = None
