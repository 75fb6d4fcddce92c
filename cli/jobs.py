"""From what a user wrote to the JobSpec that is sent."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from cli import script, units
from cli.asked import WISHES, Asked, Given, Layer, from_environment, from_flags, merged
from cli.conditions import AFTER, gang_of, moment, on_member_failure, on_node_lost, restart_of
from cli.exits import Mistake
from wire.affinity import preference_of, term_of, toleration_of
from wire.company import job_term_of
from wire.conditions import RELAXABLE
from wire.gpuwish import GpuWish, Topology, domains_of, relation_of, topology_of
from wire.licences import licence_of
from wire.spec import JobSpec, gpus_text, problems

T = TypeVar("T")

BEST_EFFORT_CPU_MILLI, BEST_EFFORT_MEMORY_MIB = 100, 64
"""What a best-effort job asks for: enough that no node is given endlessly many."""

FLAGS = {
    "cpu_limit_milli": "--cpu-limit",
    "memory_limit_mib": "--memory-limit",
    "cpu_milli": "--cpus",
    "memory_mib": "--memory",
    "scratch_mib": "--scratch",
    "gpu_models": "--gpu-model",
    "selector": "--select",
    "datasets": "--data",
    "mounts": "--mount",
    "labels": "--label",
    "licences": "--licence",
    "company": "--near",
    "gpu.memory_mib": "--gpu-memory",
    "gpu.least_mib": "--min-gpu-memory",
    "gpu.compute": "--compute",
    "gpu.mig": "--mig",
    "gpu.numa": "--numa",
    "gpu.nvlink": "--nvlink",
    "topology.domains": "--domains",
    "topology.label": "--same",
    "topology": "--same",
    "preferences": "--prefer",
    "tolerations": "--tolerate",
    "time_limit_s": "--time",
    "grace_s": "--grace",
    "begin_at": "--begin",
    "deadline_at": "--deadline",
    "start_within_s": "--timeout",
    "relax_after_s": "--relax-after",
    "after_within_s": "--after-timeout",
    "checkpoint_s": "--checkpoint-time",
    "warn_s": "--warn-time",
    "preemptible": "--not-preemptible",
    "min_runtime_s": "--min-runtime",
    "gang.min_nodes": "--min-nodes",
    "gang.elastic": "--elastic",
    "gang.on_failure": "--on-member-failure",
    "gang.assembly_s": "--assembly-time",
}
"""Options of another name than the field they set."""


def spec_of(
    asked: Asked, words: list[str], *, is_command: bool, environment: Mapping[str, str] = os.environ
) -> JobSpec:
    """The job: flags over environment over script, checked as far as that needs no cluster."""
    layers = [from_flags(asked), from_environment(environment)]
    if not words:
        raise Mistake(
            "there is nothing to run",
            "Name a script, or write a command behind '--': corral submit --gpus 1 -- python train.py",
        )
    if is_command:
        command, name = tuple(words), os.path.basename(words[0])
    else:
        read = script.read(words[0], words[1:])
        command, name = read.command, read.name
        layers.append(read.asked)
    spec = spec_from(command, name, merged(*layers), environment)
    _check(spec)
    return spec


def spec_from(command: tuple[str, ...], name: str, given: Layer, environment: Mapping[str, str]) -> JobSpec:
    """The job that these words ask for, unchecked."""
    nodes = _one(given, "nodes", units.count)
    gpus, nodes = _gpus(given, nodes)
    wishes: dict[str, Any] = {
        "project": _one(given, "project", str),
        "queue": _one(given, "queue", str),
        "profile": _one(given, "profile", str),
        "priority": _one(given, "priority", units.priority),
        "cpu_milli": _one(given, "cpus", units.cores_milli),
        "memory_mib": _one(given, "memory", units.memory_mib),
        "scratch_mib": _one(given, "scratch", units.memory_mib),
        "cpu_limit_milli": _one(given, "cpu_limit", units.cores_milli),
        "memory_limit_mib": _one(given, "memory_limit", units.memory_mib),
        "time_limit_s": _one(given, "time", units.seconds),
        "grace_s": _one(given, "grace", units.seconds),
        "gang": gang_of(
            _one(given, "min_nodes", units.count),
            _one(given, "assembly_time", units.seconds),
            _one(given, "on_member_failure", on_member_failure),
            bool(_one(given, "elastic", _yes)),
        ),
        "min_runtime_s": _one(given, "min_runtime", units.seconds),
        "array": _one(given, "array", str),
        "begin_at": _one(given, "begin", moment),
        "deadline_at": _one(given, "deadline", moment),
        "start_within_s": _one(given, "timeout", units.seconds),
        "after_count": _one(given, "after_count", units.count),
        "after_within_s": _one(given, "after_timeout", units.seconds),
        "relax_after_s": _one(given, "relax_after", units.seconds),
        "restart": restart_of(
            *(_one(given, name, str) for name in ("restart", "restart_delay", "restart_codes"))
        ),
        "on_node_lost": _one(given, "on_node_lost", on_node_lost),
        "checkpoint_command": _one(given, "checkpoint_command", units.words),
        "checkpoint_signal": _one(given, "checkpoint_signal", units.signal),
        "checkpoint_dir": _one(given, "checkpoint_dir", _directory),
        "checkpoint_s": _one(given, "checkpoint_time", units.seconds),
        "checkpoint_keep": _one(given, "checkpoint_keep", units.count),
        "tasks_per_node": _one(given, "tasks_per_node", units.count),
        "image": _one(given, "image", str),
        "warn_signal": _one(given, "warn_signal", units.signal),
        "warn_s": _one(given, "warn_time", units.seconds),
    }
    best_effort = bool(_one(given, "best_effort", _yes))
    if best_effort:
        least = {"cpu_milli": BEST_EFFORT_CPU_MILLI, "memory_mib": BEST_EFFORT_MEMORY_MIB}
        wishes = {**wishes, **{name: wishes[name] or value for name, value in least.items()}}
    return JobSpec(
        command=command,
        best_effort=best_effort,
        name=_one(given, "name", str) or name[:200],
        gpus=gpus,
        gpu_models=tuple(_all(given, "gpu_model", str)),
        nodes=nodes,
        after=tuple(each for name in AFTER for part in _all(given, name, AFTER[name]) for each in part),
        relax=tuple(dict.fromkeys(_all(given, "relax", _relaxable))),
        selector=dict(_all(given, "select", units.pair)),
        gpu=_gpu_wish(given),
        labels=dict(_all(given, "label", units.pair)),
        licences=dict(_all(given, "licence", licence_of)),
        company=(
            *_all(given, "near", lambda text: job_term_of(text, 1)),
            *_all(given, "apart", lambda text: job_term_of(text, None)),
            *_all(given, "over", lambda text: job_term_of(text, 0)),
        ),
        datasets=tuple(_all(given, "data", str)),
        mounts=tuple(_all(given, "mount", str)),
        topology=_topology(given),
        affinity=tuple(_all(given, "affinity", term_of)),
        preferences=tuple(_all(given, "prefer", preference_of)),
        tolerations=tuple(_all(given, "tolerate", toleration_of)),
        env=dict(_all(given, "env", lambda text: _variable(text, environment))),
        workdir=_directory(_one(given, "workdir", str) or os.curdir),
        hold=bool(_one(given, "hold", _yes)),
        preemptible=not _one(given, "not_preemptible", _yes),
        **{field: value for field, value in wishes.items() if value is not None},
    )


def _relaxable(text: str) -> str:
    flag = "--" + text.strip().removeprefix("--")
    field = next((field for field, named in FLAGS.items() if named == flag), flag[2:].replace("-", "_"))
    if field not in RELAXABLE:
        known = ", ".join(flag_of(each).removeprefix("--") for each in RELAXABLE)
        raise ValueError(f"{text!r} is nothing a job can do without; write {known}")
    return field


def _one(given: Layer, name: str, read: Callable[[str], T]) -> T | None:
    values = _all(given, name, read)
    return values[-1] if values else None


def _all(given: Layer, name: str, read: Callable[[str], T]) -> list[T]:
    return [_understood(part, read) for part in given.get(name, [])]


def _understood(given: Given, read: Callable[[str], T]) -> T:
    try:
        return read(given.text)
    except ValueError as error:
        raise Mistake(f"{given.source}: {error}", "'corral submit --help' shows how to write it.") from None


def _gpus(given: Layer, nodes: int | None) -> tuple[float, int | None]:
    """The total, from a total or a number per node; both may stand if they agree."""
    total = _one(given, "gpus", units.gpus)
    each = _one(given, "gpus_per_node", units.count)
    if each is None:
        return total or 0, nodes
    if nodes is None:
        nodes = max(1, round((total or each) / each))
    if total is not None and total != each * nodes:
        raise Mistake(
            f"--gpus {gpus_text(total)} and --gpus-per-node {each} do not agree for {nodes} nodes",
            f"Leave one of them out: {nodes} nodes with {each} GPUs have {each * nodes}.",
        )
    return float(each * nodes), nodes


def _gpu_wish(given: Layer) -> GpuWish | None:
    wishes: dict[str, Any] = {
        "memory_mib": _one(given, "gpu_memory", units.memory_mib),
        "least_mib": _one(given, "min_gpu_memory", units.memory_mib),
        "compute": _one(given, "compute", str),
        "mig": _one(given, "mig", str),
        "numa": _one(given, "numa", relation_of),
        "nvlink": _one(given, "nvlink", relation_of),
    }
    said = {field: value for field, value in wishes.items() if value}
    return GpuWish(**said) if said else None


def _topology(given: Layer) -> Topology | None:
    found = [
        _one(given, "same", lambda text: topology_of(text, 1)),
        _one(given, "different", lambda text: topology_of(text, None)),
        _one(given, "domains", domains_of),
    ]
    said = [each for each in found if each is not None]
    if len(said) > 1:
        raise Mistake("--same, --different and --domains cannot be combined", "Leave all but one out.")
    return said[0] if said else None


def _directory(text: str) -> str:
    try:
        return os.path.abspath(text)
    except FileNotFoundError:
        raise Mistake(
            "the current directory is gone", "Change to another, or name one: --workdir /…"
        ) from None


def _variable(text: str, environment: Mapping[str, str]) -> tuple[str, str]:
    if "=" in text:
        return units.pair(text)
    if text not in environment:
        raise ValueError(f"{text!r} is not set in your environment; write {text}=VALUE")
    return text, environment[text]


def _yes(text: str) -> bool:
    word = text.lower()
    if word not in ("1", "true", "yes", "0", "false", "no"):
        raise ValueError(f"{text!r} is neither true nor false")
    return word in ("1", "true", "yes")


def _check(spec: JobSpec) -> None:
    found = [f"{flag_of(where) or where}: {sentence}" for where, sentence in problems(spec)]
    texts = [
        *spec.command,
        *spec.checkpoint_command,
        spec.checkpoint_dir or "",
        spec.name,
        spec.workdir or "",
        *spec.env,
        *spec.env.values(),
    ]
    if any(not _is_utf8(text) for text in texts):
        found.append("the command, the name, the directory and the environment must be valid UTF-8")
    longest = max(len(part.encode(errors="replace")) for part in spec.command)
    if longest > script.LARGEST:
        found.append(f"an argument has {longest:,} bytes; Linux takes {script.LARGEST:,}")
    if found:
        raise Mistake("; ".join(found), "'corral submit --help' shows what can be asked for.")


def flag_of(where: str) -> str:
    """The option that sets a field of the spec; nothing for what is no field."""
    if where in FLAGS:
        return FLAGS[where]
    field, _, key = where.partition(".")
    field = field.partition("[")[0]
    if field == "env" and key:
        return f"--env {key!r}"
    if field == "command":
        return "the command"
    return FLAGS.get(field, "--" + field.replace("_", "-") if field in WISHES else "")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
