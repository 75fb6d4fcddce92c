"""Describes the scheduling policy of scheduler.toml in sentences: the share and quota of each project, the
limits of each queue, and which jobs may preempt others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from controller.config import Config
from controller.core.cluster.gpus.gpu_counts import GpuCounts
from controller.core.framework.interfaces import SchedulingPolicy
from controller.core.framework.order_chain import DynamicOrderChain, StaticOrderChain
from controller.core.input_handlers.submission_checks import DEFAULT_QUEUE
from controller.core.pipeline.pipeline import Pipeline
from controller.core.queue.order import Order
from controller.core.quota.projects import UnknownProjects
from controller.core.quota.queue_rules import QueueRule
from controller.core.quota.quotas import Quotas
from controller.core.quota.usage_counters import UsageCounters
from controller.plugins.orders.aging import AgingOrder
from controller.plugins.orders.fixed import DeadlineOrder, FifoOrder, PriorityOrder, ShortestFirstOrder
from controller.plugins.orders.multifactor import MultifactorOrder
from controller.plugins.preemption.by_priority import PressureStrategy, PriorityStrategy
from controller.plugins.preemption.reclaim_strategies import FairShareStrategy, QuotaReclaimStrategy
from controller.registry.checks.queue_phrases import queue_phrases
from controller.registry.limits import queue_priority_caps
from controller.registry.projects import named_projects
from wire.cluster.quota import AMOUNTS, ANY_NAME, NO_LIMITS, Limits, Quota
from wire.gpudescription import parse_simulated
from wire.text import counted, duration

ALL_USERS = "all users"
"""The words for the users of a queue to which all users may submit."""
_WITHOUT_SHARES = (AgingOrder, DeadlineOrder, FifoOrder, PriorityOrder, ShortestFirstOrder)
_UNITS = {
    "gpus": "GPU",
    "cpus": "CPU",
    "running": "running job",
    "queued": "waiting job",
    "gpu-hours": "GPU-hour",
}
"""The unit of each limit that is a number, by the name of the limit in commands."""


@dataclass(frozen=True, slots=True)
class ProjectPolicy:
    """The share, the quota and the borrowing limit of one project."""

    project: str
    """The name of the project; "*" stands for each project that scheduler.toml does not name."""
    weight: float | None
    """The weight of the project; None if the order of jobs ignores weights."""
    share: float | None
    """The fraction of the cluster to which the project is entitled while all named projects have waiting
    jobs. It is None for "*", and if the order of jobs ignores weights."""
    gpus: float | None
    """The share as a number of GPUs; None if the share or the number of GPUs is not known."""
    quota: Quota

    @property
    def sentence(self) -> str:
        """Return a text for operators about one project: its fair share, its quota, and the amount that the
        project may borrow.
        """
        parts = []
        if self.share is not None:
            of_gpus = "" if self.gpus is None else f" ({self.gpus:.1f} GPUs)"
            parts.append(f"{100 * self.share:.1f} % of the cluster{of_gpus}")
        elif self.weight is not None:
            parts.append(f"weight {self.weight:g} each")
        limits = limits_text(self.quota.hard)
        parts.append(f"at most {limits}" if limits else "no quota")
        if limits:
            loan = limits_text(self.quota.borrow)
            parts.append(f"may borrow {loan}" if loan else "may not borrow")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """The priority, time limits, users, projects, nodes and quota of one queue."""

    queue: str
    priority: int
    default_time_limit_s: float | None
    """The time limit in seconds of jobs that request no time limit; None if such jobs have no time limit."""
    max_time_limit_s: float | None
    planned_s: float
    """The run time in seconds that plans assume for a job without a time limit and without a prediction. 0 if
    plans assume that such a job never ends.
    """
    users: tuple[str, ...]
    """The users that may submit to the queue; empty if all users may."""
    projects: tuple[str, ...]
    """The projects that may submit to the queue; empty if all projects may."""
    select: tuple[str, ...]
    """The labels, each as key=value, of the nodes on which the jobs of the queue run; empty: all nodes."""
    quota: Quota
    rules: tuple[str, ...] = ()
    """Phrases about all other keys of the queue's table, such as "never preempted"."""

    @property
    def sentence(self) -> str:
        """Return a sentence for operators with the whole policy of the queue."""
        return "; ".join((f"queue priority {self.priority}", *self.phrases))

    @property
    def phrases(self) -> tuple[str, ...]:
        """Return phrases for operators with the policy of the queue, without its priority."""
        limits = limits_text(self.quota.hard)
        parts = [
            self._time_limits,
            f"at most {limits}" if limits else "",
            f"users {', '.join(self.users)}" if self.users else ALL_USERS,
            f"only projects {', '.join(self.projects)}" if self.projects else "",
            f"only nodes with {', '.join(self.select)}" if self.select else "",
            *self.rules,
        ]
        return tuple(filter(None, parts))

    @property
    def _time_limits(self) -> str:
        if self.default_time_limit_s is None:
            if not self.planned_s:
                return "no time limit (plans assume that its jobs never end)"
            return f"no time limit (plans assume the predicted run time, else {duration(self.planned_s)})"
        if self.max_time_limit_s is None:
            return f"time limit {duration(self.default_time_limit_s)} by default, without a maximum"
        if self.default_time_limit_s == self.max_time_limit_s:
            return f"time limit {duration(self.max_time_limit_s)} by default and at most"
        most = duration(self.max_time_limit_s)
        return f"time limit {duration(self.default_time_limit_s)} by default, {most} at most"


def cluster_gpus(config: Config) -> int | None:
    """Return the number of GPUs of all nodes in scheduler.toml. Return None if there are no nodes, or if only
    the agent of a node knows the GPUs of the node.
    """
    counts = gpu_counts(config)
    return None if counts is None else counts.total


def gpu_counts(config: Config) -> GpuCounts | None:
    """Return the GPUs of all nodes in scheduler.toml by model; None if the GPUs are not known."""
    by_model: dict[str, int] = {}
    for node in config.nodes.values():
        if node.gpus in ("auto", "nvml"):
            return None
        for each in () if node.gpus == "none" else parse_simulated(node.gpus):
            more = each.count * max(1, len(each.slices))
            by_model[each.model] = by_model.get(each.model, 0) + more
    return GpuCounts(by_model) if config.nodes else None


def policies(pipeline: Pipeline) -> list[SchedulingPolicy]:
    """Return the scheduling policies that apply to jobs: the policies of all scheduler profiles, or the
    policy of [scheduler] if there are no profiles.
    """
    return [each.policy for each in pipeline.profiles] or [pipeline]


def uses_shares(order: Order) -> bool:
    """Return whether the queue order compares the usage of projects. Return True for an order that is not
    built in, because this order may compare the usage.
    """
    if isinstance(order, DynamicOrderChain | StaticOrderChain):
        return uses_shares(order.first) or uses_shares(order.second)
    if isinstance(order, MultifactorOrder):
        return order.fair_share > 0
    return not isinstance(order, _WITHOUT_SHARES)


def quotas_of(config: Config, pipeline: Pipeline) -> Quotas:
    """Return the quotas in scheduler.toml, without limits that operators have set with `corral quota`. A
    limit in percent is 0 GPUs if the number of GPUs in the cluster is not known (see `cluster_gpus`).
    """
    quotas = Quotas(UsageCounters(pipeline.rules.window_s), gpu_counts(config) or GpuCounts())
    quotas.adopt(pipeline.rules)
    return quotas


def project_policies(config: Config, pipeline: Pipeline) -> tuple[ProjectPolicy, ...]:
    """Return the share, the quota and the borrowing limit of each project in scheduler.toml, the largest
    share first.

    The last entry, "*", is for all projects that are not in scheduler.toml. This entry is left out if jobs in
    such projects are refused, or if scheduler.toml has no projects and no quota "*".
    """
    quotas, gpus, shares = quotas_of(config, pipeline), cluster_gpus(config), _shares(config)
    compared = any(uses_shares(each.order) for each in policies(pipeline))
    rows = []
    for name, share in sorted(shares.items(), key=lambda each: (-each[1], each[0])):
        part = share if compared else None
        of_gpus = None if part is None or gpus is None else part * gpus
        weight = config.share_weights.get(name, 1.0) if compared else None
        rows.append(ProjectPolicy(name, weight, part, of_gpus, quotas.quota(("project", name))))
    others = quotas.quota(("project", ANY_NAME))
    accepted = pipeline.rules.projects.unknown is UnknownProjects.OPEN
    if accepted and (rows or others.hard != NO_LIMITS):
        rows.append(ProjectPolicy(ANY_NAME, 1.0 if compared else None, None, None, others))
    return tuple(rows)


def _shares(config: Config) -> dict[str, float]:
    """Return the fraction of the cluster that each named project gets while all these projects have waiting
    jobs.

    1. Organisations, and the projects outside organisations, divide the cluster by their weights.
    2. The projects of an organisation divide the fraction of the organisation by their weights.

    Example: the organisation lab (weight 3) has the projects a and b. The project c (weight 1) is in no
    organisation. The fractions are 3/8 for a, 3/8 for b and 1/4 for c.
    """
    organisations = {name: each for name, each in config.organisations.items() if each}
    inside = {project for projects in organisations.values() for project in projects}
    found = _divided(config, [*organisations, *(named_projects(config) - inside)], 1.0)
    for organisation, projects in organisations.items():
        found |= _divided(config, projects, found.pop(organisation))
    return found


def _divided(config: Config, names: Iterable[str], whole: float) -> dict[str, float]:
    of_shares = config.share_weights
    weights = {name: of_shares.get(name, 1.0) for name in sorted(names)}
    total = sum(weights.values())
    return {name: whole * weight / total for name, weight in weights.items()}


def queue_policies(config: Config, pipeline: Pipeline) -> tuple[QueuePolicy, ...]:
    """Return the policy of each queue, the queue with the highest priority first. The queue "default" is
    included, also without a table. The result is empty if scheduler.toml has no table [queues.NAME].
    """
    rules, quotas = pipeline.rules.queues, quotas_of(config, pipeline)
    caps = queue_priority_caps(config)
    found = {DEFAULT_QUEUE: QueueRule(), **rules} if rules else {}
    return tuple(
        QueuePolicy(
            name,
            rule.priority,
            rule.default_time_limit_s or rule.max_time_limit_s,
            rule.max_time_limit_s,
            config.jobs.default_time_limit_s,
            rule.users,
            rule.projects,
            tuple(f"{key}={value}" for key, value in rule.select.items()),
            quotas.quota(("queue", name)),
            tuple(queue_phrases(rule, pipeline.idling, name, caps.get(name))),
        )
        for name, rule in sorted(found.items(), key=lambda each: (-each[1].priority, each[0]))
    )


def preemption_sentences(config: Config, pipeline: Pipeline) -> tuple[str, ...]:
    """Return a sentence for each preemption strategy about the jobs that may preempt and the jobs that may be
    preempted. If the strategy belongs to a scheduler profile, the sentence begins with the name of the
    profile.
    """
    if not pipeline.profiles:
        highest = _highest_priority(config, ())
        return tuple(_preemption_sentence(each, highest) for each in pipeline.strategies)
    return tuple(
        f"profile {profile.name}: {_preemption_sentence(each, _highest_priority(config, profile.queues))}"
        for profile in pipeline.profiles
        for each in profile.policy.strategies
    )


def _preemption_sentence(strategy: Any, highest: int) -> str:
    """Return a sentence about a preemption strategy: the jobs that may preempt, and the jobs that may be
    preempted. `highest` is the highest priority that users may request.
    """
    if isinstance(strategy, PriorityStrategy):
        sentence = (
            f"jobs of priority {strategy.least} and above may preempt jobs whose priority is lower by "
            f"{max(1, strategy.gap)} or more"
        )
        if strategy.least <= highest:
            return sentence
        return f"{sentence}; users may request priority {highest} at most, so only jobs of operators preempt"
    if isinstance(strategy, PressureStrategy):
        most = strategy.most
        return f"jobs above priority {most} may preempt jobs of priority {most} and below"
    if isinstance(strategy, FairShareStrategy):
        times = f"{strategy.threshold:g} times"
        return (
            f"tenants within their fair share may preempt jobs of tenants that hold more than {times} theirs"
        )
    if isinstance(strategy, QuotaReclaimStrategy):
        return "jobs within the quota of their project may preempt jobs of projects that borrow quota"
    return f"the plugin {strategy.name!r} decides"


def _highest_priority(config: Config, queues: Sequence[str]) -> int:
    """Return the highest priority that any user may request. If `queues` are given, consider only jobs in
    these queues.
    """
    limits = config.access.limits
    tables = (limits, *limits.users.values(), *limits.projects.values())
    usual = max(each.priority for each in tables if each.priority is not None)
    # If the queue has a limit, show this limit: it takes precedence over the limits of users and projects.
    caps = queue_priority_caps(config)
    of_queues = [caps.get(name) for name in queues] or [None, *caps.values()]
    return max(usual if each is None else each for each in of_queues)


def limits_text(limits: Limits) -> str:
    """Return limits such as `8 GPUs, 512G of memory, 20 running jobs`; empty if there are no limits."""
    parts = []
    for each in AMOUNTS:
        value = getattr(limits, each.field)
        if each.field == "gpus" and limits.gpus_percent is not None:
            number = f" ({counted(value, 'GPU')})" if value else ""
            parts.append(f"{limits.gpus_percent:g} % of all GPUs{number}")
        elif value is not None:
            scaled = value / 1000 if each.field == "cpu_milli" else value
            unit = _UNITS.get(each.word)
            parts.append(counted(scaled, unit) if unit else f"{each.limit_text(limits)} of {each.word}")
    parts += [
        f"{each.text} of the {model} GPUs" if each.percent is not None else f"{each.text} {model} GPUs"
        for model, each in sorted(limits.gpus_per_model.items())
    ]
    return ", ".join(parts)
