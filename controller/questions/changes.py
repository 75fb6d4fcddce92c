"""Translates a what-if question: its changes into inputs for the engine (such as Cancel), and its
configuration file into another scheduling policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from controller.config import Config, ConfigRefused, load_text, problem_at
from controller.config.differences import DECIDING
from controller.core.engine import Engine
from controller.core.model.decision.decision import Refusal
from controller.core.model.inputs import agent_inputs, job_inputs, node_inputs, policy_inputs
from controller.core.model.inputs.input import Input, Requester
from controller.core.pipeline.pipeline import Pipeline
from controller.questions.engine_copy.engine_copy import QuestionRefused
from controller.registry import build_pipeline
from wire.agent.reports import Hello
from wire.api.forecasts import ConfigFile, JobEdit, MoreNodes, QuotaEdit, WhatIf
from wire.names import GpuHealth
from wire.text import printable

MOST_NODES = 1_000
"""The most nodes that one entry of a question may add."""
WHY = "what if"


@dataclass(frozen=True, slots=True)
class OtherPolicy:
    """The scheduling policy (pipeline) of another configuration, for a forecast. `passed_over` names the
    changed tables of scheduler.toml that a forecast ignores.
    """

    pipeline: Pipeline
    passed_over: tuple[str, ...]


def other_config(file: ConfigFile, running: Config) -> OtherPolicy:
    """Return the scheduling policy of the configuration in `file`. Raise ConfigRefused with all problems."""
    config = load_text(file.text, file.name)
    strange = [path for path in config.plugin_files if path not in running.plugin_files]
    # Refuse plugin files that the controller has not loaded, because a running controller loads no further
    # code.
    if strange:
        message = f"{strange[0]} is not among the files that the running controller has loaded"
        hint = "Start the controller with it first, or leave it out of the question."
        raise ConfigRefused([problem_at(config.source, ("plugins", "files"), message, hint)])
    rest = [name for name in Config.model_fields if name not in DECIDING]
    differ = tuple(name for name in rest if getattr(config, name) != getattr(running, name))
    return OtherPolicy(build_pipeline(config), differ)


def changes_of(question: WhatIf, engine: Engine, user: str, asker: Requester | None = None) -> list[Input]:
    """Return the changes of a what-if question as inputs of the engine, in the order in which they are
    applied.
    """
    return [
        *(each for more in question.nodes for each in _joining(more, engine, user)),
        *(node_inputs.MarkNode(each.node, user, each.labels, each.taints) for each in question.marks),
        *(
            policy_inputs.SetShare(each.share, each.weight, user, each.soft, each.hard)
            for each in question.shares
        ),
        *(_quota(each, user) for each in question.quotas),
        *(job_inputs.Cancel(job, user) for job in question.cancel),
        *(job_inputs.Preempt(job, user, question.stay_held) for job in question.preempt),
        *(job_inputs.Hold(job, user, asker) for job in question.hold),
        *(job_inputs.Release(job, user, asker) for job in question.release),
        *(node_inputs.Drain(node, user, WHY, question.drain_by) for node in question.drain),
        *(each for node in question.resume for each in _resumed(node, engine, user)),
        *(policy_inputs.CancelReservation(name, user) for name in question.cancel_reservations),
        *(policy_inputs.Reserve(spec, user) for spec in question.reserve),
        *(_edit(each, user, asker) for each in question.edit),
        *(job_inputs.Submit(spec, user, asker=asker) for spec in question.submit),
    ]


def _edit(each: JobEdit, user: str, asker: Requester | None) -> Input:
    """Return the input that edits a job. A longer time limit is accepted even if it delays other jobs,
    because the answer to the what-if question names these jobs.
    """
    return job_inputs.Edit(each.job, user, each.changes, asker=asker, delays_nobody=True)


def _resumed(name: str, engine: Engine, user: str) -> Iterator[Input]:
    """Yield the inputs of the engine that resume a node, or one GPU (named such as gpu01:3). For a GPU, also
    yield the report of a passed health check.
    """
    node, _, gpu = name.rpartition(":")
    there = engine.state.nodes.get(node)
    if there is None or not (gpu.isascii() and gpu.isdigit()):
        yield node_inputs.Resume(name, user)
        return
    yield node_inputs.ResumeGpu(node, int(gpu), user)
    for each in there.facts.gpus:
        if each.index == int(gpu):
            yield agent_inputs.GpuChecked(node, each.uuid, ok=True)


def _quota(each: QuotaEdit, user: str) -> Input:
    if each.quota is None:
        return policy_inputs.UnsetQuota(each.scope, each.name, user)
    return policy_inputs.SetQuota(each.scope, each.name, each.quota, user)


def _joining(more: MoreNodes, engine: Engine, user: str) -> Iterator[Input]:
    """Yield the inputs of the engine that add nodes like an existing node. The GPUs of the new nodes get
    UUIDs of their own.
    """
    nodes = engine.state.nodes
    like = nodes.get(more.like)
    if like is None or not like.boot_id:
        message = f"there is no node {printable(more.like)!r} that has connected before"
        raise QuestionRefused(Refusal("not_found", message, "nodes", "'corral nodes' lists all nodes."))
    if not 1 <= more.count <= MOST_NODES:
        raise QuestionRefused(Refusal("invalid", f"must lie between 1 and {MOST_NODES}", "nodes.count"))
    number = added = 0
    while added < more.count:
        number += 1
        name = f"{like.name}+{number}"
        if name in nodes.by_name or name in nodes.removed:
            continue
        added += 1
        gpus = tuple(
            replace(gpu, uuid=f"{gpu.uuid}+{number}", health=GpuHealth.OK) for gpu in like.facts.gpus
        )
        facts = replace(like.facts, gpus=gpus)
        yield node_inputs.AddNode(name, like.effective_labels, None, user, like.taints)
        yield agent_inputs.AgentSaidHello(name, Hello(name, like.version, WHY, WHY, facts, ()))
