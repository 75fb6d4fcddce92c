"""Plugins by name: found through entry points, filled with their options, joined to a pipeline."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from controller.brought import Brought, Unreadable, brought
from controller.config import (
    Config,
    ConfigProblem,
    ConfigRefused,
    FairShareSection,
    Key,
    PreemptionSection,
    ProfileSection,
    SchedulerSection,
    Source,
    nearest,
    problem_at,
    problem_of,
)
from controller.core.admission import DEFAULT_QUEUE
from controller.core.estimates import Estimating
from controller.core.events import Overcommit
from controller.core.gates import WaitRules
from controller.core.guarding import guarded
from controller.core.health import Action, Care
from controller.core.idling import Idling, Reclaim
from controller.core.losses import Losses
from controller.core.outlets import Hook
from controller.core.plugin import Backfill, Deadlines, Guards, Pipeline, Weighted
from controller.core.profiles import DEFAULT_PROFILE, Profile
from controller.core.proposals import RebalanceRules
from controller.core.quotas import QueueRule, Rules, Unlimited
from controller.core.ranked import ranked
from controller.core.shares import Sharing
from controller.core.watch import Watch
from controller.plugins.preemption.reclaim import ReclaimLent
from wire.conditions import OnNodeLost

METHODS = {
    "filter": ("keep", "concerns", "explain"),
    "scorer": ("score",),
    "order": ("rank",),
    "picker": ("pick",),
    "quota": ("quota", "names"),
    "preemption": ("standing", "reach"),
    "metrics": ("collect",),
    "hook": ("on_placed",),
}
"""Kinds of plugins, and what one must be able to do; the entry-point group is `corral.<kind>`."""

ALSO = {"picker": ("corral.placement",)}
"""Groups of another name for a kind."""

OURS = "controller.plugins."
"""Tested here; plugins from anywhere else are asked at arm's length."""

FIELDS = {"backfill_delay_s": "max_delay_s", "backfill_depth": "depth"}
"""Keys whose fields in a pipeline have other names."""

REQUIRED = ("available", "capacity", "gpu")
"""Filters that no configuration may leave out."""


class Maker:
    """Makes what the file asks for, and collects what is wrong with it."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.watch = Watch()
        self.hooks: list[Hook] = []
        self.problems = _check_files(config)

    def make(self, kind: str, name: str, options: Mapping[str, Any], *key: str | int) -> Any:
        """A plugin, at arm's length if it is not ours; nothing of use if there is a problem with it."""
        try:
            found = make_plugin(kind, name, options, key, self.config.source, self.config.plugin_files)
        except ConfigRefused as refused:
            self.problems.extend(refused.problems)
            return None
        if callable(getattr(found, "on_placed", None)):
            self.hooks.append(guarded("hook", found, self.watch))
        return found if type(found).__module__.startswith(OURS) else guarded(kind, found, self.watch)

    def policy(self, section: SchedulerSection, said: Container[str], *above: str) -> dict[str, Any]:
        """What the keys of one table that are `said` there mean for a pipeline."""
        policy: dict[str, Any] = {
            "backfill": Backfill(section.backfill),
            "backfill_delay_s": section.backfill_delay_s,
            "backfill_depth": section.backfill_depth,
        }
        policy = {FIELDS.get(name, name): value for name, value in policy.items() if name in said}
        if "order" in said or "then" in said:
            then = section.then
            second = self.make("order", then.name, then.options, *above, "then") if then else None
            first = self.make("order", section.order.name, section.order.options, *above, "order")
            policy["order"] = ranked(first, second)
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
                Weighted(self.make("scorer", name, each.options, *above, "scorers", name), each.weight)
                for name, each in section.scorers.items()
            )
        if "picker" in said:
            policy["picker"] = self.make(
                "picker", section.picker.name, section.picker.options, *above, "picker"
            )
        return policy

    def preemption(self, section: PreemptionSection, said: Container[str], *above: str) -> dict[str, Any]:
        """The same for a table about preemption."""
        policy: dict[str, Any] = {"guards": Guards(**section.model_dump(exclude={"strategies"}))}
        if "strategies" in said:
            made = tuple(
                self.make("preemption", each.name, each.options, *above, "preemption", "strategies", index)
                for index, each in enumerate(section.strategies)
            )
            reclaims = self.config.quota.reclaim == "preempt"
            policy["strategies"] = made + ((ReclaimLent(),) if reclaims else ())
        return policy

    def profiles(self, pipeline: Pipeline) -> tuple[Profile, ...]:
        """Those of the file, in its order; behind them the default one, whatever it says there."""
        sections = self.config.profiles
        if not sections:
            return ()
        if self.config.rebalance.mode != "off":
            message = "jobs are not moved where several schedulers decide"
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
                message = "the default profile is for whoever has no other"
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
    section, maker = config.scheduler, Maker(config)
    rules = Rules()
    try:
        rules = build_rules(config, maker.watch)
    except ConfigRefused as refused:
        maker.problems.extend(refused.problems)
    pipeline = Pipeline(
        **maker.policy(section, SchedulerSection.model_fields, "scheduler"),
        **maker.preemption(config.preemption, PreemptionSection.model_fields),
        deadlines=Deadlines(config.backfill.deadlines),
        estimating=Estimating(
            config.backfill.estimate == "predicted", config.backfill.quantile, config.backfill.least_runs
        ),
        sharing=_sharing(config.fair_share),
        watch=maker.watch,
        losses=Losses(
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
        idling=Idling(config.gpus.idle_after_s, Reclaim(config.gpus.idle), config.gpus.idle_grace_s),
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
    maker.problems += _check_heeded(config)
    if maker.problems:
        raise ConfigRefused(maker.problems)
    return pipeline


def build_rules(config: Config, watch: Watch | None = None) -> Rules:
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
        )
        for name, each in config.queues.items()
    }
    limits = provider if section.options else Unlimited()
    if not type(provider).__module__.startswith(OURS):
        limits = guarded("quota", provider, watch or Watch())
    return Rules(queues, limits, section.window_s, dict(config.licences))


def _sharing(section: FairShareSection) -> Sharing:
    return Sharing(
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


def care_of(config: Config) -> Care:
    """How sick GPUs are treated, as [gpus] says."""
    section = config.gpus
    xids = {int(code): Action(action) for code, action in section.xid.items()}
    return Care(section.check_s, section.check_most_s, section.checks, xids, tuple(section.reset))


def _check_filters(names: list[str], key: Key, source: Source) -> list[ConfigProblem]:
    problems = [
        problem_at(source, (*key, index), f"the filter {name!r} is there twice", "Take one away.")
        for index, name in enumerate(names)
        if name in names[:index]
    ]
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        message = f"jobs would be given what is not there without {', '.join(missing)}"
        problems.append(problem_at(source, key, message, f"Put {', '.join(REQUIRED)} in front."))
    return problems


def _check_heeded(config: Config) -> list[ConfigProblem]:
    """What the rest of the file says about nodes, and no filter would look at."""
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


def _check_files(config: Config) -> list[ConfigProblem]:
    """Files that bring no plugins."""
    problems = []
    for index, path in enumerate(config.plugin_files):
        try:
            brought(path, tuple(METHODS.items()))
        except Unreadable as error:
            key: Key = ("plugins", "files", index)
            problems.append(problem_at(config.source, key, f"{path} {error}", "See examples/cheap_power.py."))
    return problems


def known(kind: str, files: Sequence[Path]) -> dict[str, Sequence[EntryPoint | Brought]]:
    """The plugins of a kind by name, those of files among them."""
    found: dict[str, Sequence[EntryPoint | Brought]] = {**installed(kind)}
    for path in files:
        with suppress(Unreadable):  # told already, once for the whole file
            for each in brought(path, tuple(METHODS.items()))[kind]:
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
    """One plugin with its options; `key` is where scheduler.toml asks for it."""

    def refuse(message: str, hint: str = "") -> ConfigRefused:
        return ConfigRefused([problem_at(source, key, message, hint)])

    there = known(kind, files)
    points = there.get(name)
    if points is None:
        raise refuse(f"there is no {kind} {name!r}", nearest(name, there))
    if len(points) > 1:
        places = " and ".join(point.value for point in points)
        raise refuse(f"two bring a {kind} {name!r}: {places}", "Take one away, or give it another name.")
    loaded = _load(points[0], METHODS[kind])
    if isinstance(loaded, str):
        raise refuse(f"the {kind} {name!r} of {points[0].value} {loaded}")
    try:
        # As JSON: lists become tuples and words enums, and everything else stays strict.
        given = json.dumps(options, default=str)
        return TypeAdapter(loaded).validate_json(given, strict=True, extra="forbid")
    except ValidationError as error:
        found = [
            problem_of(source, key, each, _options_beside(loaded, each["loc"]))
            for each in error.errors(include_url=False)
        ]
        raise ConfigRefused(found) from None
    except Exception as error:
        raise refuse(f"the {kind} {name!r} fails when made ({type(error).__name__}: {error})") from None


def _options_beside(kind: Any, path: tuple[int | str, ...]) -> list[str]:
    """The options that the table of this one may have."""
    for part in path[:-1]:
        hints = get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}
        kind = hints.get(str(part)) or next(iter(get_args(kind)[-1:]), None)
    return [each.name for each in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []


def _load(point: EntryPoint | Brought, methods: tuple[str, ...]) -> type[Any] | str:
    """The class of a plugin, or why there is none."""
    try:
        loaded = point.load()
    except Exception as error:  # the code of strangers: anything may come out of it
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
def installed(kind: str) -> dict[str, list[EntryPoint]]:
    """The plugins of a kind by name; more than one under a name is somebody's mistake."""
    found: dict[str, dict[str, EntryPoint]] = {}
    for group in (f"corral.{kind}", *ALSO.get(kind, ())):
        for point in entry_points(group=group):
            # The same package may be found twice on the path: that is one plugin.
            found.setdefault(point.name, {})[point.value] = point
    return {name: list(points.values()) for name, points in found.items()}
