"""API bodies for projects: their members, weights, shares, quotas and budgets."""

from __future__ import annotations

from typing import Optional

from wire.api.policy.quotas import QuotaView
from wire.api.service.reports import BudgetView
from wire.dataclass import dataclass


@dataclass(frozen=True)
class ProjectView:
    """A project. If `members` is empty, all users may submit jobs to the project. `default_for` has the users
    whose jobs without --project are in this project. `may_submit` is True if the user that sent the request
    may submit jobs to the project.
    """

    name: str
    declared: bool
    """True if the configuration names the project, or if an operator has set its quota, weight or limits. The
    project `default` is always declared.
    """
    members: tuple[str, ...]
    may_submit: bool
    weight: float
    quota: QuotaView
    """The limits of the project, and the resources that its jobs use."""
    default_for: tuple[str, ...] = ()
    organisation: str = ""
    share: Optional[float] = None
    """The fraction of the cluster, from 0 to 1, to which the project is entitled while all declared projects
    have waiting jobs. None for a project that is not declared. Also None if the configured order of jobs
    ignores weights.
    """
    factor: float = 1.0
    """The fair-share factor, as in ShareView."""
    budget: Optional[BudgetView] = None
    queues: tuple[str, ...] = ()
    """The queues that admit only some projects and admit this project."""


@dataclass(frozen=True)
class ProjectList:
    """All declared projects, and all other projects that have had jobs, ordered by name. `unknown` is what
    happens to a job in a project that is not declared: `open` (it is accepted), `default` (it is put into the
    project default) or `refuse`.
    """

    projects: tuple[ProjectView, ...]
    unknown: str
    seq: int
