"""Builds the pipeline (all scheduling settings) from the tables of scheduler.toml and their plugins."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from controller.config import (
    Config,
    ConfigProblem,
    ConfigRefused,
    Key,
    Plugin,
    PreemptionSection,
    ProfileSection,
    SchedulerSection,
    load_with_problems,
    nearest,
    problem_at,
)
from controller.core.cluster.dataset_reads import DatasetPolicy
from controller.core.cluster.gpus.gpu_health import (
    READING_ACTIONS,
    GpuHealthPolicy,
    HealthAction,
    ReadingLimits,
)
from controller.core.estimates.runtime_prediction import PredictionConfig
from controller.core.fairshare.usage import FairshareConfig
from controller.core.framework.circuit_breaker import CircuitBreaker
from controller.core.framework.interfaces import DeadlinePolicy, PreemptionGuards, WeightedScorer
from controller.core.framework.order_chain import chain_orders
from controller.core.framework.profiles import DEFAULT_PROFILE, Profile
from controller.core.input_handlers.submission_checks import DEFAULT_QUEUE
from controller.core.lifecycle.failure_classes import FailureRule
from controller.core.lifecycle.node_loss import NodeLossPolicy
from controller.core.model.events.nodes import Overcommit
from controller.core.model.events.nominations import WINDOW
from controller.core.model.inputs import node_inputs
from controller.core.model.job import NEVER
from controller.core.model.time_limits import TimeLimitRules
from controller.core.model.wait_state import WaitRules
from controller.core.pipeline.hooks import Hook
from controller.core.pipeline.pipeline import Pipeline
from controller.core.queue.order import service_order
from controller.core.quota.quota_config import QuotaConfig, Unlimited
from controller.core.rebalance.proposals import RebalanceRules
from controller.plugins.isolation import isolated
from controller.plugins.preemption.reclaim_strategies import QuotaReclaimStrategy
from controller.registry.budgets import budget_rules_of
from controller.registry.checks.config_checks import filter_problems, unfiltered_settings
from controller.registry.checks.notify_checks import notify_problems
from controller.registry.engines import engine_problems, pool_nodes
from controller.registry.hours import timetable_of
from controller.registry.identity import identity_type
from controller.registry.limits import ceilings_of, raised_open_projects
from controller.registry.plugin_classes import (
    METHODS,
    check_plugin_files,
    known_plugins,
    load_plugin,
    make_plugin,
)
from controller.registry.projects import named_projects, project_problems, project_rules_of
from controller.registry.queues import idle_policy_of, queue_problems, queue_rules_of
from controller.registry.services import service_problems, services_of
from controller.registry.topology import network_of, topology_problems
from wire.job.placement.affinity import parse_taint
from wire.job.start_conditions import OnNodeLost

BUILT_IN = "controller.plugins."
"""The package of built-in plugins. Other plugins are isolated: their exceptions do not reach the engine."""

BACKFILL_OPTIONS = {"backfill_delay_s": "max_delay_s", "backfill_depth": "depth"}
"""Keys of [scheduler] that are passed to the backfill plugin, each with the name of the plugin's option."""

ORDER_OF_PROJECTS = {"fair_share": 8000.0, "size": 2500.0, "age": 1000.0, "priority": 0.0, "deadline": 0.0}
"""The options of the order plugin `multifactor`. If scheduler.toml sets neither `order` nor `then` and names
at most one project, this plugin becomes the second order as soon as there are jobs of several projects.
"""

ON_ERROR = ("wait", "pass")
"""The values of the option `on_error` of a filter. While the filter fails, jobs that need the filter wait
("wait", the default) or are placed without it ("pass").
"""


class PipelineBuilder:
    """Creates the plugins that a configuration names, and collects all mistakes."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.breaker = CircuitBreaker()
        self.hooks: list[Hook] = []
        self.problems = check_plugin_files(config)

    def make(self, kind: str, name: str, options: Mapping[str, Any], *key: str | int) -> Any:
        """Return a new plugin with these options. `key` is the path of the plugin's key in scheduler.toml,
        for messages.

        A plugin that is not built in gets a wrapper, so that its failures do not stop the scheduler. If the
        plugin cannot be created, record the problem and return None.
        """
        passes, options = self._on_error(kind, name, options, key)
        try:
            found = make_plugin(kind, name, options, key, self.config.source, self.config.plugin_files)
        except ConfigRefused as refused:
            self.problems.extend(refused.problems)
            return None
        if callable(getattr(found, "on_placed", None)):
            self.hooks.append(isolated("hook", found, self.breaker))
        if type(found).__module__.startswith(BUILT_IN):
            return found
        return isolated(kind, found, self.breaker, passes=passes)

    def _on_error(
        self, kind: str, name: str, options: Mapping[str, Any], key: Key
    ) -> tuple[bool, Mapping[str, Any]]:
        """Return whether the option `on_error` of a filter is "pass", and the options without `on_error`."""
        if kind != "filter" or "on_error" not in options:
            return False, options
        given = options["on_error"]
        if given not in ON_ERROR:
            message = (
                f"the filter {name!r} has on_error = {given!r}; write {' or '.join(map(repr, ON_ERROR))}"
            )
            self.problems.append(problem_at(self.config.source, (*key, "on_error"), message))
        return given == "pass", {each: value for each, value in options.items() if each != "on_error"}

    def _options(self, kind: str, name: str) -> list[str]:
        """Return the names of a plugin's options. The list is empty if the plugin cannot be loaded; make()
        then reports the problem.
        """
        points = known_plugins(kind, self.config.plugin_files).get(name, ())
        loaded = load_plugin(points[0], METHODS[kind]) if points else ""
        return [] if isinstance(loaded, str) else [each.name for each in dataclasses.fields(loaded)]

    def policy(self, section: SchedulerSection, keys: Container[str], *above: str) -> dict[str, Any]:
        """Create the plugins of a [scheduler] table. Return a dict from the names of Pipeline fields, such as
        "filters", to the plugins.

        Only the keys in `keys` are read (for a scheduler profile, the keys that the profile sets). `above` is
        the path of the table in scheduler.toml, such as "profiles", "night".
        """
        policy: dict[str, Any] = {}
        if any(key in keys for key in ("backfill", *BACKFILL_OPTIONS)):
            known = self._options("backfill", section.backfill)
            options = {name: getattr(section, key) for key, name in BACKFILL_OPTIONS.items() if name in known}
            policy["backfill"] = self.make("backfill", section.backfill, options, *above, "backfill")
        if "order" in keys or "then" in keys:
            then = section.then
            if not {"order", "then"} & section.model_fields_set and len(named_projects(self.config)) > 1:
                then = Plugin(name="fair")
            second = self.make("order", then.name, then.options, *above, "then") if then else None
            first = self.make("order", section.order.name, section.order.options, *above, "order")
            policy["order"] = chain_orders(first, second)
            if not above[1:] and second is None and not {"order", "then"} & section.model_fields_set:
                by_shares = self.make("order", "multifactor", ORDER_OF_PROJECTS, *above, "then")
                policy["order_of_projects"] = chain_orders(first, by_shares)
        if "slice_s" in keys:
            policy["slice_s"] = section.slice_s
        if "filters" in keys:
            self.problems += filter_problems(
                [each.name for each in section.filters], (*above, "filters"), self.config.source
            )
            policy["filters"] = tuple(
                self.make("filter", each.name, each.options, *above, "filters", index)
                for index, each in enumerate(section.filters)
            )
        if "scorers" in keys:
            policy["scorers"] = tuple(
                WeightedScorer(self.make("scorer", name, each.options, *above, "scorers", name), each.weight)
                for name, each in section.scorers.items()
            )
        if "picker" in keys:
            policy["picker"] = self.make(
                "picker", section.picker.name, section.picker.options, *above, "picker"
            )
        return policy

    def preemption(self, section: PreemptionSection, keys: Container[str], *above: str) -> dict[str, Any]:
        """Return a dict from the names of the Pipeline fields that a [preemption] table sets to their values.
        The strategies are included only if `keys` contains "strategies".
        """
        policy: dict[str, Any] = {"guards": PreemptionGuards(**section.model_dump(exclude={"strategies"}))}
        if "strategies" in keys:
            made = tuple(
                self.make("preemption", each.name, each.options, *above, "preemption", "strategies", index)
                for index, each in enumerate(section.strategies)
            )
            reclaims = self.config.quota.reclaim == "preempt"
            policy["strategies"] = made + ((QuotaReclaimStrategy(),) if reclaims else ())
        return policy

    def profiles(self, pipeline: Pipeline) -> tuple[Profile, ...]:
        """Return the scheduler profiles in the order of scheduler.toml, with the default profile last."""
        sections = self.config.profiles
        if not sections:
            return ()
        if self.config.rebalance.mode != "off":
            message = "rebalancing does not work together with [profiles]"
            key = ("rebalance", "mode")
            self.problems.append(problem_at(self.config.source, key, message, "Leave it out, or [profiles]."))
        default = sections.get(DEFAULT_PROFILE, ProfileSection())
        others = {name: each for name, each in sections.items() if name != DEFAULT_PROFILE}
        return tuple(
            self._profile(name, each, pipeline) for name, each in {**others, DEFAULT_PROFILE: default}.items()
        )

    def _profile(self, name: str, section: ProfileSection, pipeline: Pipeline) -> Profile:
        source, above = self.config.source, ("profiles", name)
        for kind in ("queues", "projects", "users") if name == DEFAULT_PROFILE else ():
            if getattr(section, kind):
                message = "the default profile is for all jobs without another profile"
                self.problems.append(problem_at(source, (*above, kind), message, "Leave it out."))
        known = {*self.config.queues, DEFAULT_QUEUE}
        for index, queue in enumerate(section.queues if self.config.queues else ()):
            if queue not in known:
                message, key = f"there is no queue {queue!r}", (*above, "queues", index)
                self.problems.append(problem_at(source, key, message, nearest(queue, known)))
        alone = self.config.of_profile(name)
        changes = self.policy(alone.scheduler, section.policy, *above)
        changes |= self.preemption(alone.preemption, section.preemption.keys_set, *above)
        return Profile(
            name,
            replace(pipeline, **changes),
            tuple(section.queues),
            tuple(section.projects),
            tuple(section.users),
            section.terms,
        )


def build_pipeline(config: Config) -> Pipeline:
    """Return the pipeline (all scheduling settings) that scheduler.toml describes. Raise ConfigRefused with
    all problems at once."""
    section, maker = config.scheduler, PipelineBuilder(config)
    rules = QuotaConfig()
    try:
        rules = build_rules(config, maker.breaker)
    except ConfigRefused as refused:
        maker.problems.extend(refused.problems)
    try:
        if config.access.oidc is not None:
            identity_type(config, config.access.oidc)
    except ConfigRefused as refused:
        maker.problems.extend(refused.problems)
    pipeline = Pipeline(
        **maker.policy(section, SchedulerSection.model_fields, "scheduler"),
        **maker.preemption(config.preemption, PreemptionSection.model_fields),
        deadlines=DeadlinePolicy(config.backfill.deadlines),
        estimating=PredictionConfig(
            config.backfill.estimate == "predicted",
            config.backfill.quantile,
            config.backfill.least_runs,
            config.jobs.default_time_limit_s or NEVER,
        ),
        network=network_of(config),
        sharing=_sharing(config),
        breaker=maker.breaker,
        losses=NodeLossPolicy(
            OnNodeLost(section.on_node_lost), section.lease_s, section.lease_margin_s, section.down_after_s
        ),
        overcommit=Overcommit(config.overcommit.cpu, config.overcommit.memory),
        rules=rules,
        waiting=WaitRules(
            cancel_hopeless=section.waiting.hopeless == "cancel",
            data_roots=tuple(section.waiting.data_roots),
            promote_after_s=section.waiting.promote_after_s,
            promote_by=section.waiting.promote_by,
            promote_most=section.waiting.promote_most,
            gang_after_s=None if section.slice_s else section.gang_after_s or None,
        ),
        limits=TimeLimitRules(
            config.jobs.owners_may_extend,
            config.jobs.limit_warning_s,
            _ends_backfilled(config),
        ),
        datasets=DatasetPolicy(**config.datasets.model_dump()),
        idling=idle_policy_of(config),
        rebalance=RebalanceRules(**{**config.rebalance.model_dump(), "kinds": tuple(config.rebalance.kinds)}),
        health_policy=gpu_health_policy_of(config),
        services=services_of(config),
        failures=tuple(
            FailureRule(
                rule.name,
                rule.sentence,
                rule.remedy,
                tuple(map(re.compile, rule.patterns)),
                tuple(rule.exit_codes),
                tuple(rule.reasons),
            )
            for rule in config.failures.rules
        ),
        metrics=tuple(
            maker.make("metrics", each.name, each.options, "plugins", "metrics", index)
            for index, each in enumerate(config.plugins.metrics)
        ),
    )
    if config.engines:
        pipeline = replace(pipeline, pool_nodes=pool_nodes(config))
    for index, each in enumerate(config.plugins.hooks):
        maker.make("hook", each.name, each.options, "plugins", "hooks", index)
    pipeline = replace(pipeline, profiles=maker.profiles(pipeline), hooks=tuple(maker.hooks))
    maker.problems += _slices_without_order(config, pipeline)
    maker.problems += unfiltered_settings(config) + raised_open_projects(config)
    maker.problems += [*project_problems(config), *queue_problems(config), *service_problems(config)]
    maker.problems += [*topology_problems(config), *notify_problems(config), *engine_problems(config)]
    if maker.problems:
        raise ConfigRefused(maker.problems)
    return pipeline


def _slices_without_order(config: Config, pipeline: Pipeline) -> list[ConfigProblem]:
    """Return one problem for each `slice_s` in a policy whose order cannot let jobs take turns."""
    profiles = [(("profiles", each.name), each.policy) for each in pipeline.profiles]
    return [
        problem_at(
            config.source,
            (*where, "slice_s"),
            f"the order {policy.order.name!r} cannot let jobs take turns",
            'Set order = "expected-remaining" or "attained-service", or leave slice_s out.',
        )
        for where, policy in [(("scheduler",), pipeline), *profiles]
        if policy.slice_s and service_order(policy.order) is None
    ]


def _ends_backfilled(config: Config) -> bool:
    """Return whether the cluster or a scheduler profile has the preemption strategy `window`, which ends
    backfilled jobs that run longer than predicted.
    """
    named = [config.preemption.strategies, *(each.preemption.strategies for each in config.profiles.values())]
    return any(each.name == WINDOW for strategies in named for each in strategies or ())


def check_config(
    path: Path | None, text: str | None = None, *, allowed: Sequence[Path] | None = None
) -> Config:
    """Return the configuration of a file, or of a text instead of the file. Raise ConfigRefused with all
    problems at once.

    1. Check the values of all keys. An invalid value is replaced by its default, so that step 2 can continue.
    2. Check the plugins and their options, and the keys that refer to other tables.

    A running controller must not load more code. Therefore the controller passes its loaded plugin files as
    `allowed`, and any other plugin file is reported as a problem.
    """
    config, problems = load_with_problems(path, text)
    found = list(problems)
    for index, each in enumerate(config.plugin_files if allowed is not None else ()):
        if allowed is not None and each not in allowed:
            message = f"{each} is not loaded: plugin files are read only when the controller starts"
            key = ("plugins", "files", index)
            found.append(problem_at(config.source, key, message, "Restart the controller with it."))
    if len(found) > len(problems):
        raise ConfigRefused(found)
    known_keys = {problem.key for problem in problems}
    try:
        build_pipeline(config)
    except ConfigRefused as refused:
        found += [each for each in refused.problems if each.key not in known_keys]
    if found:
        raise ConfigRefused(found)
    return config


def build_rules(config: Config, watch: CircuitBreaker | None = None) -> QuotaConfig:
    """Return the queues, quotas, licences, budgets and request limits that scheduler.toml describes. `watch`
    is the circuit breaker that counts the failures of a quota provider that is not built in.
    """
    section = config.quota
    provider = make_plugin(
        "quota", section.provider, section.options, ("quota",), config.source, config.plugin_files
    )
    limits = provider if section.options else Unlimited()
    if not type(provider).__module__.startswith(BUILT_IN):
        limits = isolated("quota", provider, watch or CircuitBreaker())
    licences, ceilings, projects = dict(config.licences), ceilings_of(config), project_rules_of(config)
    queues = queue_rules_of(config)
    budgets, defaults = budget_rules_of(config), config.jobs.defaults
    return QuotaConfig(
        queues,
        limits,
        section.window_s,
        licences,
        defaults,
        ceilings,
        projects,
        budgets,
        timetable_of(config),
        section.soft_for_s,
    )


def _sharing(config: Config) -> FairshareConfig:
    section = config.fair_share
    return FairshareConfig(
        section.half_life_s,
        section.window_s,
        section.billing,
        section.charge == "dominant",
        section.held_hours,
        config.organisations,
        config.share_weights,
        section.soft_limits,
        section.hard_limits,
        section.off_queue,
    )


def gpu_health_policy_of(config: Config) -> GpuHealthPolicy:
    """Return the settings of [gpus] for GPU problems, health checks and resets."""
    section = config.gpus
    xids = {int(code): HealthAction(action) for code, action in section.xid.items()}
    rules = section.rules
    actions = {kind: HealthAction(getattr(rules, kind.value)) for kind in READING_ACTIONS}
    limits = ReadingLimits(rules.corrected_per_hour, rules.slowdown_s, rules.memory_s)
    return GpuHealthPolicy(
        *(section.check_s, section.check_most_s, section.checks, xids, actions, limits),
        *(tuple(section.reset), section.most_out),
    )


def nodes_of(config: Config) -> Iterator[node_inputs.AddNode]:
    """Return the engine's inputs that add the nodes of the configuration."""
    for name, node in config.nodes.items():
        yield node_inputs.AddNode(name, node.labels, taints=tuple(map(parse_taint, node.taints)))
