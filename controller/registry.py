"""Builds the pipeline of scheduler.toml: finds plugins by entry point and creates them with their options."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from controller.config import (
    Config,
    ConfigProblem,
    ConfigRefused,
    FairShareSection,
    Key,
    LimitSection,
    PreemptionSection,
    ProfileSection,
    SchedulerSection,
    Source,
    load_with_problems,
    names_beside,
    nearest,
    problem_at,
    problem_of,
)
from controller.core.cluster.gpu_health import READING_ACTIONS, GpuHealthPolicy, HealthAction, ReadingLimits
from controller.core.commands.admission import DEFAULT_QUEUE
from controller.core.estimates.runtime_prediction import PredictionConfig
from controller.core.fairshare.share_tree import FairshareConfig
from controller.core.framework.circuit_breaker import CircuitBreaker
from controller.core.framework.interfaces import DeadlinePolicy, PreemptionGuards, WeightedScorer
from controller.core.framework.order_chain import chain_orders
from controller.core.framework.profiles import DEFAULT_PROFILE, Profile
from controller.core.lifecycle.idle_gpus import IdleAction, IdlePolicy
from controller.core.lifecycle.node_loss import NodeLossPolicy
from controller.core.model.events import Overcommit
from controller.core.model.wait_state import WaitRules
from controller.core.pipeline.hooks import Hook
from controller.core.pipeline.pipeline import Pipeline
from controller.core.quota.ceilings import Ceiling, Ceilings
from controller.core.quota.quotas import QueueRule, QuotaConfig, Unlimited
from controller.core.rebalance.proposals import RebalanceRules
from controller.plugin_files import FilePlugin, PluginFileError, plugins_in
from controller.plugins.isolation import isolated
from controller.plugins.preemption.reclaim_strategies import QuotaReclaimStrategy
from wire.job.start_conditions import OnNodeLost

METHODS = {
    "filter": ("keep", "concerns", "explain"),
    "scorer": ("score",),
    "order": ("rank",),
    "backfill": ("candidate_key",),
    "picker": ("pick",),
    "quota": ("quota", "names"),
    "preemption": ("standing", "reach"),
    "metrics": ("collect",),
    "hook": ("on_placed",),
}
"""Kinds of plugins, and what one must be able to do; the entry-point group is `corral.<kind>`."""

ALSO = {"picker": ("corral.placement",)}
"""Further entry-point groups of a kind."""

BUILT_IN = "controller.plugins."
"""Plugins of other packages are isolated: an exception in one does not reach the engine."""

BACKFILL_OPTIONS = {"backfill_delay_s": "max_delay_s", "backfill_depth": "depth"}
"""Keys of scheduler.toml that are options of a kind of backfill, if it has an option of that name."""

REQUIRED = ("available", "capacity", "gpu")
"""Filters that must not be left out."""
ON_ERROR = ("wait", "pass")
"""What jobs do while a filter that concerns them fails; the first is the default."""


class PipelineBuilder:
    """Creates the plugins of a configuration and collects all mistakes."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.breaker = CircuitBreaker()
        self.hooks: list[Hook] = []
        self.problems = _check_files(config)

    def make(self, kind: str, name: str, options: Mapping[str, Any], *key: str | int) -> Any:
        """A plugin, isolated if it is not built in; None after recording a problem."""
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
        """Whether jobs are placed without a failing filter (`on_error`), and the other options."""
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
        """The names of a plugin's options; empty if it cannot be loaded, which `make` reports."""
        points = known_plugins(kind, self.config.plugin_files).get(name, ())
        loaded = _load(points[0], METHODS[kind]) if points else ""
        return [] if isinstance(loaded, str) else [each.name for each in dataclasses.fields(loaded)]

    def policy(self, section: SchedulerSection, said: Container[str], *above: str) -> dict[str, Any]:
        """The pipeline fields of those keys of a table that are in `said`."""
        policy: dict[str, Any] = {}
        if any(key in said for key in ("backfill", *BACKFILL_OPTIONS)):
            known = self._options("backfill", section.backfill)
            options = {name: getattr(section, key) for key, name in BACKFILL_OPTIONS.items() if name in known}
            policy["backfill"] = self.make("backfill", section.backfill, options, *above, "backfill")
        if "order" in said or "then" in said:
            then = section.then
            second = self.make("order", then.name, then.options, *above, "then") if then else None
            first = self.make("order", section.order.name, section.order.options, *above, "order")
            policy["order"] = chain_orders(first, second)
        if "filters" in said:
            self.problems += _check_filters(
                [each.name for each in section.filters], (*above, "filters"), self.config.source
            )
            policy["filters"] = tuple(
                self.make("filter", each.name, each.options, *above, "filters", index)
                for index, each in enumerate(section.filters)
            )
        if "scorers" in said:
            policy["scorers"] = tuple(
                WeightedScorer(self.make("scorer", name, each.options, *above, "scorers", name), each.weight)
                for name, each in section.scorers.items()
            )
        if "picker" in said:
            policy["picker"] = self.make(
                "picker", section.picker.name, section.picker.options, *above, "picker"
            )
        return policy

    def preemption(self, section: PreemptionSection, said: Container[str], *above: str) -> dict[str, Any]:
        """The pipeline fields of a preemption table."""
        policy: dict[str, Any] = {"guards": PreemptionGuards(**section.model_dump(exclude={"strategies"}))}
        if "strategies" in said:
            made = tuple(
                self.make("preemption", each.name, each.options, *above, "preemption", "strategies", index)
                for index, each in enumerate(section.strategies)
            )
            reclaims = self.config.quota.reclaim == "preempt"
            policy["strategies"] = made + ((QuotaReclaimStrategy(),) if reclaims else ())
        return policy

    def profiles(self, pipeline: Pipeline) -> tuple[Profile, ...]:
        """The profiles of the file, in its order, and last the default profile."""
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
        changes |= self.preemption(alone.preemption, section.preemption.said, *above)
        return Profile(
            name,
            replace(pipeline, **changes),
            tuple(section.queues),
            tuple(section.projects),
            tuple(section.users),
            section.terms,
        )


def build_pipeline(config: Config) -> Pipeline:
    """The pipeline that scheduler.toml describes. Raises ConfigRefused with all problems at once."""
    section, maker = config.scheduler, PipelineBuilder(config)
    rules = QuotaConfig()
    try:
        rules = build_rules(config, maker.breaker)
    except ConfigRefused as refused:
        maker.problems.extend(refused.problems)
    pipeline = Pipeline(
        **maker.policy(section, SchedulerSection.model_fields, "scheduler"),
        **maker.preemption(config.preemption, PreemptionSection.model_fields),
        deadlines=DeadlinePolicy(config.backfill.deadlines),
        estimating=PredictionConfig(
            config.backfill.estimate == "predicted", config.backfill.quantile, config.backfill.least_runs
        ),
        sharing=_sharing(config.fair_share),
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
        ),
        idling=IdlePolicy(config.gpus.idle_after_s, IdleAction(config.gpus.idle), config.gpus.idle_grace_s),
        rebalance=RebalanceRules(**{**config.rebalance.model_dump(), "kinds": tuple(config.rebalance.kinds)}),
        care=care_of(config),
        metrics=tuple(
            maker.make("metrics", each.name, each.options, "plugins", "metrics", index)
            for index, each in enumerate(config.plugins.metrics)
        ),
    )
    for index, each in enumerate(config.plugins.hooks):
        maker.make("hook", each.name, each.options, "plugins", "hooks", index)
    pipeline = replace(pipeline, profiles=maker.profiles(pipeline), hooks=tuple(maker.hooks))
    maker.problems += _check_unfiltered_settings(config) + _check_open_projects(config)
    if maker.problems:
        raise ConfigRefused(maker.problems)
    return pipeline


def check_config(
    path: Path | None, text: str | None = None, *, allowed: Sequence[Path] | None = None
) -> Config:
    """The configuration of a file, or of a text in its place. Raises ConfigRefused with all problems at once.

    Values are checked first, then plugins and what one table says of another: these are checked with the
    defaults in the place of values that are wrong, so one run names everything. Plugin files are code, which
    a running controller does not load: it names those that it has as `allowed`.
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
    """The queues and quotas that scheduler.toml describes."""
    section = config.quota
    provider = make_plugin(
        "quota", section.provider, section.options, ("quota",), config.source, config.plugin_files
    )
    queues = {
        name: QueueRule(
            each.priority,
            each.max_running,
            each.default_time_limit_s,
            each.max_time_limit_s,
            tuple(each.users),
            tuple(each.projects),
            dict(each.select),
            each.defaults,
        )
        for name, each in config.queues.items()
    }
    limits = provider if section.options else Unlimited()
    if not type(provider).__module__.startswith(BUILT_IN):
        limits = isolated("quota", provider, watch or CircuitBreaker())
    licences, ceilings = dict(config.licences), _ceilings(config)
    return QuotaConfig(queues, limits, section.window_s, licences, config.jobs.defaults, ceilings)


def _ceilings(config: Config) -> Ceilings:
    """[access.limits] and [projects]."""
    section = config.access.limits

    def tables(found: Mapping[str, LimitSection]) -> dict[str, Ceiling]:
        return {name: _ceiling(each) for name, each in found.items()}

    return Ceilings(
        _limits_of_all(config),
        _ceiling(section.operators),
        tables(section.users),
        tables(section.projects),
        tables(section.queues),
        {name: frozenset(each.members) for name, each in config.projects.items() if each.members},
    )


def _ceiling(section: LimitSection) -> Ceiling:
    return Ceiling(**section.model_dump(include=set(LimitSection.model_fields)))


def _limits_of_all(config: Config) -> Ceiling:
    """The limits of users. Deadlines that lift a job above all others need a table that allows them."""
    usual = _ceiling(config.access.limits)
    return (
        usual if usual.deadline is not None else replace(usual, deadline=config.backfill.deadlines != "lift")
    )


def _sharing(section: FairShareSection) -> FairshareConfig:
    return FairshareConfig(
        section.half_life_s,
        section.window_s,
        section.billing,
        section.charge == "dominant",
        section.held_hours,
        {name: tuple(projects) for name, projects in section.organisations.items()},
        section.weights,
        section.soft_limits,
        section.hard_limits,
        section.off_queue,
    )


def care_of(config: Config) -> GpuHealthPolicy:
    """How sick GPUs are treated, as [gpus] says."""
    section = config.gpus
    xids = {int(code): HealthAction(action) for code, action in section.xid.items()}
    rules = section.rules
    actions = {kind: HealthAction(getattr(rules, kind.value)) for kind in READING_ACTIONS}
    limits = ReadingLimits(rules.corrected_per_hour, rules.slowdown_s, rules.memory_s)
    return GpuHealthPolicy(
        section.check_s, section.check_most_s, section.checks, xids, actions, limits, tuple(section.reset)
    )


def _check_filters(names: list[str], key: Key, source: Source) -> list[ConfigProblem]:
    problems = [
        problem_at(source, (*key, index), f"the filter {name!r} is listed twice", "Remove one.")
        for index, name in enumerate(names)
        if name in names[:index]
    ]
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        message = f"the required filter {', '.join(missing)} is missing: jobs could get nodes without room"
        problems.append(problem_at(source, key, message, f"Put {', '.join(REQUIRED)} first in the list."))
    return problems


def _check_unfiltered_settings(config: Config) -> list[ConfigProblem]:
    """Settings about nodes that have no effect, because the filter for them is missing."""
    names = {each.name for each in config.scheduler.filters}
    said: list[tuple[str, Key]] = [
        ("selector", ("queues", name, "select")) for name, each in config.queues.items() if each.select
    ]
    said += [("taints", ("nodes", name, "taints")) for name, each in config.nodes.items() if each.taints]
    return [
        problem_at(
            config.source, key, f"has no effect without the filter {name!r}", "Add it to scheduler.filters."
        )
        for name, key in said
        if name not in names
    ]


def _check_open_projects(config: Config) -> list[ConfigProblem]:
    """Projects that all users may use and that have a higher limit than users have."""
    usual, members = _limits_of_all(config), {name for name, each in config.projects.items() if each.members}
    problems = []
    for name, each in config.access.limits.projects.items():
        raised = [
            key
            for key in LimitSection.model_fields
            if (most := getattr(each, key)) is not None
            and (bound := getattr(usual, key)) is not None
            and most > bound
        ]
        if raised and name not in members:
            message = f"every user may submit to project {name!r}, and would have this limit"
            hint = f"Name its members: [projects.{name}] members = [...]."
            key = ("access", "limits", "projects", name, raised[0])
            problems.append(problem_at(config.source, key, message, hint))
    return problems


def open_projects(config: Config) -> list[str]:
    """The projects of the file without members, to which all users may submit."""
    closed = {name for name, each in config.projects.items() if each.members}
    return sorted(config.named_projects - closed - {"*"})


def _check_files(config: Config) -> list[ConfigProblem]:
    """The plugin files that cannot be used."""
    problems = []
    for index, path in enumerate(config.plugin_files):
        try:
            plugins_in(path, tuple(METHODS.items()))
        except PluginFileError as error:
            key: Key = ("plugins", "files", index)
            problems.append(problem_at(config.source, key, f"{path} {error}", "See examples/cheap_power.py."))
    return problems


def known_plugins(kind: str, files: Sequence[Path]) -> dict[str, Sequence[EntryPoint | FilePlugin]]:
    """The plugins of a kind by name, including those in files."""
    found: dict[str, Sequence[EntryPoint | FilePlugin]] = {**installed_plugins(kind)}
    for path in files:
        with suppress(PluginFileError):  # _check_files has reported it
            for each in plugins_in(path, tuple(METHODS.items()))[kind]:
                found[each.name] = [*found.get(each.name, ()), each]
    return found


def make_plugin(
    kind: str,
    name: str,
    options: Mapping[str, Any],
    key: Key,
    source: Source,
    files: Sequence[Path] = (),
) -> Any:
    """Create a plugin with its options. `key` is its place in scheduler.toml, for messages."""

    def refuse(message: str, hint: str = "") -> ConfigRefused:
        return ConfigRefused([problem_at(source, key, message, hint)])

    there = known_plugins(kind, files)
    points = there.get(name)
    if points is None:
        missing = "" if there else "No plugin of this kind is installed: install Corral again."
        raise refuse(f"there is no {kind} {name!r}", missing or nearest(name, there))
    if len(points) > 1:
        places = " and ".join(point.value for point in points)
        raise refuse(
            f"two plugins provide the {kind} {name!r}: {places}", "Remove one, or give it another name."
        )
    loaded = _load(points[0], METHODS[kind])
    if isinstance(loaded, str):
        raise refuse(f"the {kind} {name!r} of {points[0].value} {loaded}")
    try:
        # As JSON: lists become tuples and words enums, and everything else stays strict.
        given = json.dumps(options, default=str)
        return TypeAdapter(loaded).validate_json(given, strict=True, extra="forbid")
    except ValidationError as error:
        found = [
            problem_of(source, key, each, names_beside(loaded, each["loc"]))
            for each in error.errors(include_url=False)
        ]
        raise ConfigRefused(found) from None
    except Exception as error:
        raise refuse(f"the {kind} {name!r} fails when made ({type(error).__name__}: {error})") from None


def _load(point: EntryPoint | FilePlugin, methods: tuple[str, ...]) -> type[Any] | str:
    """The class of a plugin, or why it cannot be used."""
    try:
        loaded = point.load()
    except Exception as error:  # because foreign code may raise anything
        return f"cannot be loaded ({type(error).__name__}: {error})"
    if not isinstance(loaded, type) or not dataclasses.is_dataclass(loaded):
        return "is not a dataclass"
    kind: Any = loaded
    if not kind.__dataclass_params__.frozen:
        return "is not frozen: what decides must not change between two decisions"
    if not isinstance(getattr(kind, "name", None), str):
        return "has no `name: ClassVar[str]`"
    missing = [method for method in methods if not callable(getattr(kind, method, None))]
    return f"has no method {missing[0]!r}" if missing else loaded


@functools.cache
def installed_plugins(kind: str) -> dict[str, list[EntryPoint]]:
    """The installed plugins of a kind by name. Two under one name are a mistake that make_plugin reports."""
    found: dict[str, dict[str, EntryPoint]] = {}
    for group in (f"corral.{kind}", *ALSO.get(kind, ())):
        for point in entry_points(group=group):
            # The same package may be found twice on the path: that is one plugin.
            found.setdefault(point.name, {})[point.value] = point
    return {name: list(points.values()) for name, points in found.items()}
