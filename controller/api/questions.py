"""What a question asks to be tried on a copy, as the inputs and the pipeline that it would really be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from controller.api.errors import Rejected
from controller.config import Config, ConfigRefused, load_text, problem_at
from controller.core import inputs
from controller.core.engine import Engine
from controller.core.inputs import Input, Refusal
from controller.core.plugin import Pipeline
from controller.registry import build_pipeline
from wire.api.forecasts import ConfigFile, MoreNodes, QuotaEdit, WhatIf
from wire.frames import Hello
from wire.text import plain
from wire.words import GpuHealth

MOST_NODES = 1_000
"""That may be added in a question."""
WHY = "what if"
WEIGHED = (
    "scheduler",
    "backfill",
    "overcommit",
    "queues",
    "quota",
    "licences",
    "preemption",
    "rebalance",
    "fair_share",
    "gpus",
    "plugins",
)
"""The tables of scheduler.toml that decide who starts when; the others have no part in a forecast."""


@dataclass(frozen=True, slots=True)
class Other:
    """Another configuration, and its tables that differ from what runs but decide nothing here."""

    pipeline: Pipeline
    passed_over: tuple[str, ...]


def other_config(file: ConfigFile, running: Config) -> Other:
    """What a configuration would decide by. Raises ConfigRefused with all problems at once."""
    config = load_text(file.text, file.name)
    strange = [path for path in config.plugin_files if path not in running.plugin_files]
    if strange:  # code gets into a running controller by a restart, and by nothing else
        message = f"{strange[0]} is not among the files that the running controller has loaded"
        hint = "Start the controller with it first, or leave it out of the question."
        raise ConfigRefused([problem_at(config.source, ("plugins", "files"), message, hint)])
    rest = [name for name in Config.model_fields if name not in WEIGHED]
    differ = tuple(name for name in rest if getattr(config, name) != getattr(running, name))
    return Other(build_pipeline(config), differ)


def changes_of(asked: WhatIf, engine: Engine, user: str) -> list[Input]:
    """The inputs of a question, in the order in which they are tried."""
    return [
        *(each for more in asked.nodes for each in _joining(more, engine, user)),
        *(inputs.SetShare(each.share, each.weight, user, each.soft, each.hard) for each in asked.shares),
        *(_quota(each, user) for each in asked.quotas),
        *(inputs.Cancel(job, user) for job in asked.cancel),
        *(inputs.Preempt(job, user) for job in asked.preempt),
        *(inputs.Hold(job, user) for job in asked.hold),
        *(inputs.Release(job, user) for job in asked.release),
        *(inputs.Drain(node, user, WHY) for node in asked.drain),
        *(inputs.Resume(node, user) for node in asked.resume),
        *(inputs.CancelReservation(name, user) for name in asked.cancel_reservations),
        *(inputs.Reserve(spec, user) for spec in asked.reserve),
        *(inputs.Edit(each.job, user, each.changes) for each in asked.edit),
        *(inputs.Submit(spec, user) for spec in asked.submit),
    ]


def _quota(each: QuotaEdit, user: str) -> Input:
    if each.quota is None:
        return inputs.UnsetQuota(each.scope, each.name, user)
    return inputs.SetQuota(each.scope, each.name, each.quota, user)


def _joining(more: MoreNodes, engine: Engine, user: str) -> Iterator[Input]:
    """Nodes that were never there say hello, with GPUs of their own."""
    nodes = engine.state.nodes
    like = nodes.get(more.like)
    if like is None or not like.boot_id:
        message = f"there is no node {plain(more.like)!r} that is known well enough"
        raise Rejected(Refusal("not_found", message, "nodes", "'corral nodes' shows what there is."))
    if not 1 <= more.count <= MOST_NODES:
        raise Rejected(Refusal("invalid", f"must lie between 1 and {MOST_NODES}", "nodes.count"))
    number = added = 0
    while added < more.count:
        number += 1
        name = f"{like.name}+{number}"
        if name in nodes.by_name or name in nodes.gone:
            continue
        added += 1
        gpus = tuple(
            replace(gpu, uuid=f"{gpu.uuid}+{number}", health=GpuHealth.OK) for gpu in like.facts.gpus
        )
        facts = replace(like.facts, gpus=gpus)
        yield inputs.AddNode(name, like.all_labels, None, user, like.taints)
        yield inputs.AgentSaidHello(name, Hello(name, like.version, WHY, WHY, facts, ()))
