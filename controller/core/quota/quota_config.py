"""The tables of scheduler.toml about quotas, queues and budgets, and the interface of quota providers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from controller.core.model.job import NEVER
from controller.core.model.request import JobDefaults
from controller.core.quota.budget_rules import NO_BUDGETS, BudgetRules
from controller.core.quota.ceilings import Ceilings
from controller.core.quota.hours.timetable import NO_TIMETABLE, Timetable
from controller.core.quota.projects import ProjectRules
from controller.core.quota.queue_rules import NO_QUEUE_RULE, QueueRule
from controller.core.quota.usage_counters import WEEK_S
from wire.cluster.quota import Quota
from wire.names import SLURM_QOS


class QuotaProvider(Protocol):
    """A plugin that provides quotas. It must always return the same quota for the same tenant, because its
    results are cached.
    """

    name: ClassVar[str]

    def quota(self, scope: str, name: str) -> Quota | None:
        """Return the quota of a user, project or queue; None for a tenant without a quota. The name "*"
        stands for all tenants of the scope without a quota of their own.
        """
        ...

    def names(self, scope: str) -> Iterator[str]:
        """Return the names of the users, projects or queues (`scope` is "user", "project" or "queue") with a
        quota of their own. "*" is left out.
        """
        ...


@dataclass(frozen=True, slots=True)
class Unlimited:
    """The quota provider for a configuration without quotas."""

    name: ClassVar[str] = "unlimited"

    def quota(self, _scope: str, _name: str) -> Quota | None:
        return None

    def names(self, _scope: str) -> Iterator[str]:
        return iter(())


@dataclass(frozen=True, slots=True)
class QuotaConfig:
    """The part of scheduler.toml about queues, projects, quotas, budgets, licences and ceilings (the highest
    values that users may request).
    """

    queues: Mapping[str, QueueRule] = field(default_factory=dict)
    provider: QuotaProvider = field(default_factory=Unlimited)
    window_s: float = WEEK_S
    licences: Mapping[str, int] = field(default_factory=dict)
    """The number of licences in the cluster, by the name of the licence."""
    defaults: JobDefaults | None = None
    """The CPU and memory of jobs that request none. None: one CPU and 1 GiB (used by the simulator)."""
    ceilings: Ceilings = field(default_factory=Ceilings)
    """The highest values that users may request. An operator can give a job higher values."""
    projects: ProjectRules = field(default_factory=ProjectRules)
    budgets: BudgetRules = NO_BUDGETS
    timetable: Timetable = NO_TIMETABLE
    """The tables [hours.NAME]: quotas and weights that apply only in some hours of the week."""
    soft_for_s: float = NEVER
    """A job over a soft limit comes after all other jobs until it has waited for this many seconds. After
    that, soft limits no longer apply to the job.
    """

    def queue(self, name: str) -> QueueRule:
        """Return the rule of a queue. The rule of a queue without a table limits nothing."""
        return self.queues.get(name, NO_QUEUE_RULE)

    def qos(self, queue: str) -> str:
        """Return the QOS that Slurm's commands show for jobs of a queue."""
        return self.queue(queue).qos or SLURM_QOS

    @property
    def unlimited(self) -> bool:
        return (
            isinstance(self.provider, Unlimited)
            and not any(rule.limits_starts for rule in self.queues.values())
            and not any(each.quotas for each in self.timetable.tables)
        )


NO_QUOTAS = QuotaConfig()
