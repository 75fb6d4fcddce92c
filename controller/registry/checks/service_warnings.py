"""Warns about services whose replicas can never start, and about restart delays without effect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from controller.config import Config, ConfigProblem, Key, problem_at
from controller.config.tables.nodes import NodeSection
from controller.core.cluster.node_table import names_model
from controller.core.input_handlers.submission_checks import apply_queue_rule
from controller.core.model.decision.decision import Refusal
from controller.core.pipeline.pipeline import Pipeline
from controller.registry.services import services_of
from wire.cluster import hosts
from wire.gpudescription import parse_simulated
from wire.job.spec import JobSpec
from wire.text import counted, duration, memory


def refused_services(config: Config, pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each service whose queue does not accept the jobs of its replicas."""
    for service in services_of(config):
        refused = apply_queue_rule(pipeline.rules, service.spec, service.user)
        if isinstance(refused, Refusal):
            where = refused.where if refused.where in ("gpus", "queue") else "queue"
            message = f"{refused.message}, so no replica can start"
            hint = f"Correct the service or [queues.{service.spec.queue}]."
            yield problem_at(config.source, ("services", service.name, where), message, hint)


def services_without_nodes(config: Config, pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each service of which no replica fits on the nodes of scheduler.toml, even if no
    other job runs. Also yield one for each service with spread = "require" that has more replicas than nodes
    that can hold one.
    """
    for service in services_of(config) if config.nodes else ():
        admitted = apply_queue_rule(pipeline.rules, service.spec, service.user)
        if isinstance(admitted, Refusal) or not service.replicas:
            continue
        key: Key = ("services", service.name)
        suited = _suited_nodes(config, admitted)
        if not suited:
            message = (
                f"a replica needs {_request_text(admitted)}, and no node of this file has these resources"
            )
            yield problem_at(config.source, key, message, "Request less, or correct the nodes.")
        elif config.services[service.name].spread == "require" and len(suited) < service.replicas:
            message = (
                f"'require' puts each of {counted(service.replicas, 'replica')} on a node of its own, and "
                f"{counted(len(suited), 'node')} of this file can hold a replica"
            )
            hint = 'Set fewer replicas, or spread = "prefer".'
            yield problem_at(config.source, (*key, "spread"), message, hint)


def restart_delays(config: Config, _pipeline: Pipeline) -> Iterator[ConfigProblem]:
    """Yield a warning for each service whose first restart delay is longer than its longest delay."""
    for name, each in config.services.items():
        if each.restart_delay_s > each.restart_delay_most_s:
            most = duration(each.restart_delay_most_s)
            message = f"is more than restart_delay_most_s, so the delay is always {most}"
            hint = "Lower this value, or raise restart_delay_most_s."
            yield problem_at(config.source, ("services", name, "restart_delay_s"), message, hint)


def _request_text(spec: JobSpec) -> str:
    parts = [counted(spec.gpus, "GPU")] if spec.gpus else []
    parts += [f"of model {' or '.join(spec.gpu_models)}"] if spec.gpu_models else []
    parts += [f"on {counted(spec.nodes, 'node')}"] if spec.nodes and spec.nodes > 1 else []
    parts += [counted(spec.cpu_milli / 1_000, "CPU")] if spec.cpu_milli else []
    parts += [memory(spec.memory_mib)] if spec.memory_mib else []
    parts += [f"label {key}={value}" for key, value in sorted(spec.selector.items())]
    return ", ".join(parts).replace("GPU, of", "GPU of").replace("GPUs, of", "GPUs of") or "a node"


def _suited_nodes(config: Config, spec: JobSpec) -> list[str]:
    """Return the nodes of scheduler.toml on which a replica can run. If the replica runs on several nodes,
    each returned node can run its part of the replica. If the request has no number of nodes, assume the
    smallest number with enough suitable nodes. Return an empty list if there are too few suitable nodes.
    """
    most = max(1, int(spec.gpus))
    for count in (spec.nodes,) if spec.nodes else range(1, min(most, len(config.nodes)) + 1):
        part = replace(spec, gpus=spec.gpus / count)
        found = [name for name, node in config.nodes.items() if _fits(name, node, part)]
        if len(found) >= count:
            return found
    return []


def _fits(name: str, node: NodeSection, part: JobSpec) -> bool:
    """Return whether the node can hold `part`, the request for one node. Resources that only the node's agent
    knows count as sufficient.
    """
    labels = {**node.labels, "node": name}
    if any(labels.get(key) != value for key, value in part.selector.items()):
        return False
    if node.cpus is not None and part.cpu_milli > node.cpus * 1_000:
        return False
    if node.memory is not None and part.memory_mib > hosts.memory_mib(node.memory):
        return False
    return node.gpus in ("auto", "nvml") or part.gpus <= _gpus_of(node.gpus, part.gpu_models)


def _gpus_of(description: str, models: tuple[str, ...]) -> int:
    """Return the number of simulated GPUs of these models; of all models if `models` is empty."""
    groups = () if description == "none" else parse_simulated(description)
    return sum(
        each.count * max(1, len(each.slices))
        for each in groups
        if not models or any(names_model(model, each.model) for model in models)
    )
