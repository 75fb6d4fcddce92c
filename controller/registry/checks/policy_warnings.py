"""Warns about keys of scheduler.toml that are valid but probably a mistake: ignored weights, limits without
effect, and queues without a time limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from controller.config import Config, ConfigProblem, Key, nearest, problem_at
from controller.core.input_handlers.submission_checks import DEFAULT_QUEUE
from controller.core.lifecycle.idle_gpus import IdlePolicy
from controller.core.pipeline.pipeline import Pipeline
from controller.core.quota.projects import DEFAULT_PROJECT
from controller.plugins.preemption.by_priority import PressureStrategy, PriorityStrategy
from controller.plugins.preemption.reclaim_strategies import FairShareStrategy
from controller.registry.budgets import budgets_without_price
from controller.registry.checks.name_warnings import (
    labels_without_nodes,
    misspelt_projects,
    undeclared_default_projects,
    unknown_queues,
)
from controller.registry.checks.notify_checks import notify_warnings
from controller.registry.checks.policy_summary import (
    cluster_gpus,
    gpu_counts,
    policies,
    queue_policies,
    quotas_of,
    uses_shares,
)
from controller.registry.checks.service_warnings import (
    refused_services,
    restart_delays,
    services_without_nodes,
)
from controller.registry.hours import dead_hours
from controller.registry.projects import named_projects
from controller.registry.queues import (
    dead_exemptions,
    dead_kept_gpus,
    dead_preemption_keys,
    hours_without_zone,
)
from controller.registry.topology import dataset_warnings, topology_warnings
from wire.cluster.quota import ANY_NAME, NO_LIMITS, Quota
from wire.names import HIGHEST_PRIORITY
from wire.text import counted, duration, printable

_TABLES = {"user": "users", "project": "projects", "queue": "queues"}
"""For each scope of a quota: the name of the table in [quota] that has the quotas of this scope."""


def policy_warnings(config: Config, pipeline: Pipeline) -> tuple[ConfigProblem, ...]:
    """Return all warnings about a valid configuration, in the order of its lines. `pipeline` is the result of
    `build_pipeline` for this configuration.
    """
    found = [each for find in CHECKS for each in find(config, pipeline)]
    return tuple(sorted(found, key=lambda each: each.line or 0))


def ignored_weights(config: Config, pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for weights and soft limits of tenants that have no effect, because no order plugin of
    the configuration uses them. The preemption strategy "fair" also uses weights, but no soft limits.
    """
    if any(uses_shares(each.order) for each in policies(pipeline)):
        return
    reclaimed = any(isinstance(each, FairShareStrategy) for p in policies(pipeline) for each in p.strategies)
    order = config.scheduler.order.name
    keys: list[Key] = [("fair_share", "soft_limits")] if config.fair_share.soft_limits else []
    if not reclaimed:
        keys += [("fair_share", "weights")] if config.fair_share.weights else []
        keys += [("projects", name, "weight") for name, each in config.projects.items() if each.weight]
        keys += [("hours", name, "weights") for name, each in config.hours.items() if each.weights]
    for key in keys:
        message = f"has no effect, because the order {order!r} ignores the usage of projects"
        hint = 'Set [scheduler] order to "multifactor" or "fair".'
        yield problem_at(config.source, key, message, hint)


def quotas_above_cluster(config: Config, pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each quota of GPUs that is larger than the cluster."""
    total, quotas = cluster_gpus(config), quotas_of(config, pipeline)
    for scope, name, table in _quota_tables(config):
        gpus = quotas.quota((scope, name)).hard.gpus
        if total is not None and table.get("gpus") is not None and gpus is not None and gpus > total:
            message = f"is more than the {counted(total, 'GPU')} of all nodes, so it limits nothing"
            yield problem_at(config.source, ("quota", _TABLES[scope], name, "gpus"), message)


def kept_gpus_above_cluster(config: Config, _pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each queue that keeps as many GPUs free as the cluster has, or more."""
    total = cluster_gpus(config)
    for name, queue in config.queues.items():
        if total is not None and queue.keep_free_gpus >= max(1, total):
            message = (
                f"all nodes have {counted(total, 'GPU')}, so no job that needs a part of a node starts "
                f"in a queue with a lower priority"
            )
            yield problem_at(config.source, ("queues", name, "keep_free_gpus"), message)


def unknown_models(config: Config, _pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each quota and each price of a GPU model that no node has."""
    counts = gpu_counts(config)
    for model in config.budgets.gpu_hour_per_model if counts is not None else ():
        if counts is not None and not counts.of_model(model):
            hint = nearest(model, sorted(counts.by_model))
            message = "this price has no effect, because no node has this GPU"
            yield problem_at(config.source, ("budgets", "gpu_hour_per_model", model), message, hint)
    for scope, name, table in _quota_tables(config) if counts is not None else ():
        parts = {"": table, "soft": table.get("soft") or {}, "borrow": table.get("borrow") or {}}
        for part, limits in parts.items():
            for model in limits.get("gpus_per_model") or {}:
                if counts is not None and not counts.of_model(model):
                    inside = (part,) if part else ()
                    key: Key = ("quota", _TABLES[scope], name, *inside, "gpus_per_model", model)
                    hint = nearest(model, sorted(counts.by_model))
                    yield problem_at(config.source, key, "has no effect, because no node has this GPU", hint)


def unused_gpus(config: Config, pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning if the quotas of all named projects together are less than the GPUs of the cluster.

    The GPUs above this sum can be idle while jobs wait. Borrowing does not help, because a project can borrow
    only the unused quota of another project. There is no warning if a project in scheduler.toml, or the
    project of jobs without --project, has no quota of GPUs. If all quotas are percentages, their sum is
    compared with 100 %. In this case, there is also a warning if the sum is above 100 % and a project may
    borrow.
    """
    total, quotas = cluster_gpus(config), quotas_of(config, pipeline)
    if not any(quotas.rules.provider.names("project")):
        return
    names = {*named_projects(config), DEFAULT_PROJECT}
    found = [quotas.quota(("project", name)) for name in sorted(names)]
    percentages = [each.hard.gpus_percent for each in found]
    if None not in percentages:
        yield from _percentages_problem(config, sum(filter(None, percentages)), found)
        return
    limits = [each.hard.gpus for each in found]
    together = sum(limit for limit in limits if limit is not None)
    if total is not None and None not in limits and together < total:
        idle = counted(total - together, "GPU")
        message = (
            f"the projects of this file may use {together:g} of {counted(total, 'GPU')} together, so {idle} "
            "can be idle while jobs wait"
        )
        yield problem_at(config.source, ("quota", "projects"), message, "Raise the quotas.")


def _percentages_problem(config: Config, percent: float, quotas: list[Quota]) -> Iterator[ConfigProblem]:
    key = ("quota", "projects")
    if percent < 100:
        message = (
            f"the projects of this file may use {percent:g} % of all GPUs together, so "
            f"{100 - percent:g} % can be idle while jobs wait"
        )
        yield problem_at(config.source, key, message, "Raise the percentages to 100 % together, or more.")
    elif percent > 100 and any(each.borrow != NO_LIMITS for each in quotas):
        message = (
            f"the quotas of the projects are {percent:g} % of all GPUs together. Projects that borrow may "
            "then hold GPUs that another project needs within its quota"
        )
        yield problem_at(config.source, key, message, "Lower the percentages to 100 % together.")


def dead_borrow_keys(config: Config, pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for the keys `borrow` in project quotas and `reclaim` in [quota] without effect,
    because no quota can be borrowed.
    """
    quotas = quotas_of(config, pipeline)
    tables = {name: table for scope, name, table in _quota_tables(config) if scope == "project"}
    loans = {name: quotas.quota(("project", name)) for name in tables}
    lenders = [name for name, each in loans.items() if name != ANY_NAME and each.hard.gpus is not None]
    for name, quota in loans.items():
        key = ("quota", "projects", name, "borrow", "gpus")
        if (tables[name].get("borrow") or {}).get("gpus") is None:
            continue
        if quota.hard.gpus is None:
            message = "has no effect, because the project has no quota of GPUs"
            yield problem_at(config.source, key, message)
        elif not [each for each in lenders if each != name]:
            message = "has no effect, because no other project has a quota of GPUs to lend"
            yield problem_at(config.source, key, message)
    borrows = config.quota.provider != "local" or any(quota.borrow != NO_LIMITS for quota in loans.values())
    if config.quota.reclaim == "preempt" and not borrows:
        message = "has no effect, because no project has `borrow`"
        yield problem_at(config.source, ("quota", "reclaim"), message)


def queues_without_limit(config: Config, pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield one warning that names all queues without a default time limit, if the queue "default" has none.

    If the queue "default" has a default time limit, yield no warning: the other queues without a time limit
    are then probably intended, for example for services.
    """
    found = {each.queue: each for each in queue_policies(config, pipeline)}
    unlimited = [name for name, each in found.items() if each.default_time_limit_s is None]
    if DEFAULT_QUEUE not in unlimited:
        return
    planned = config.jobs.default_time_limit_s
    without = f"after {duration(planned)} ([jobs] default_time_limit_s)"
    assumed = f"end after their predicted run time, else {without}" if planned else "never end"
    names = ", ".join(sorted(map(printable, unlimited)))
    message = f"no time limit in {names}. Plans assume that jobs without a limit {assumed}"
    hint = "Set default_time_limit_s in [queues.default]: it is the queue of jobs without --queue."
    yield problem_at(config.source, ("queues",), message, hint)


def dead_idle_rule(config: Config, pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each key `idle` that has no effect. The key sets what happens to jobs with idle
    GPUs, but no GPU counts as idle if `idle_after_s` is 0.
    """
    tables: dict[Key, tuple[str | None, IdlePolicy]] = {("gpus",): (config.gpus.idle, pipeline.idling)}
    for name, queue in config.queues.items():
        tables["queues", name] = queue.idle, pipeline.idling.of(name)
    for table, (idle, policy) in tables.items():
        if idle not in (None, "flag") and policy.after_s == 0:
            message = f"{idle!r} has no effect, because idle_after_s = 0 turns the check for idle GPUs off"
            yield problem_at(config.source, (*table, "idle"), message, "Set idle_after_s.")


def dead_rebalancing(config: Config, _pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning if rebalancing is on but cannot move any job."""
    section = config.rebalance
    if section.mode == "off":
        return
    if not section.kinds:
        why, hint = "`kinds` is empty", 'Set kinds, such as ["defragment", "drain"].'
    elif section.max_gpu_hours == 0 and section.restart_s > 0:
        why, hint = "every move costs more than max_gpu_hours = 0", "Raise max_gpu_hours."
    elif len(config.nodes) == 1:
        why, hint = "there is only one node", "Leave it out until there are more nodes."
    else:
        return
    message = f"{section.mode!r} has no effect, because {why}"
    yield problem_at(config.source, ("rebalance", "mode"), message, hint)


def dead_strategies(config: Config, pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each preemption strategy that cannot preempt any job because of its options."""
    tables: list[tuple[Key, Any, int]] = [
        (("preemption", "strategies"), pipeline.strategies, len(config.preemption.strategies))
    ]
    for profile in pipeline.profiles:
        section = config.profiles.get(profile.name)
        own = section.preemption.strategies if section else None
        table = ("profiles", profile.name, "preemption", "strategies")
        tables.append((table, profile.policy.strategies, len(own or ())))
    for key, strategies, count in tables:
        # Check only the strategies in scheduler.toml, because the last one in `strategies` may come from the
        # key `reclaim` of [quota].
        for index, strategy in enumerate(strategies[:count]):
            why = _never_preempts(strategy)
            if why:
                message = f"the strategy {strategy.name!r} preempts no job: {why}"
                yield problem_at(config.source, (*key, index), message, "Priorities are 0 to 100.")


def _never_preempts(strategy: Any) -> str:
    """Return the reason why a strategy with these options cannot preempt any job; empty if it can."""
    if isinstance(strategy, PressureStrategy):
        if strategy.most < 0:
            return f"no job has a priority of {strategy.most} or less"
        if strategy.most >= HIGHEST_PRIORITY:
            return f"no job has a priority above {strategy.most}"
    if isinstance(strategy, PriorityStrategy):
        if strategy.least > HIGHEST_PRIORITY:
            return f"no job has a priority of {strategy.least} or more"
        if strategy.gap > HIGHEST_PRIORITY:
            return f"no two priorities differ by {strategy.gap}"
    if isinstance(strategy, FairShareStrategy) and strategy.most < 0:
        return f"no job has a priority of {strategy.most} or less"
    return ""


def _quota_tables(config: Config) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield each table of a quota in scheduler.toml as (scope, name, table). The scope is "user", "project"
    or "queue".
    """
    if config.quota.provider != "local":
        # Skip the options of a quota provider other than "local", because these options may have another
        # form.
        return
    for scope, tables in _TABLES.items():
        for name, table in (config.quota.options.get(tables) or {}).items():
            yield scope, name, table


def dead_budgets(config: Config, _pipeline: Pipeline) -> Iterator[ConfigProblem]:
    yield from budgets_without_price(config)


Check = Callable[[Config, Pipeline], Iterator[ConfigProblem]]

CHECKS: tuple[Check, ...] = (
    ignored_weights,
    misspelt_projects,
    undeclared_default_projects,
    unknown_queues,
    labels_without_nodes,
    quotas_above_cluster,
    unknown_models,
    unused_gpus,
    dead_borrow_keys,
    dead_budgets,
    queues_without_limit,
    dead_idle_rule,
    dead_rebalancing,
    dead_strategies,
    dead_preemption_keys,
    dead_exemptions,
    dead_kept_gpus,
    kept_gpus_above_cluster,
    hours_without_zone,
    topology_warnings,
    dataset_warnings,
    dead_hours,
    refused_services,
    services_without_nodes,
    restart_delays,
    notify_warnings,
)
"""The checks that policy_warnings() runs."""
