"""From fields of a job's spec back to the options that set them, as `corral job set` takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from wire.codec import decode
from wire.company import JobTerm
from wire.gpuwish import GpuWish, Topology
from wire.spec import JobSpec, gpus_text


def options_of(changes: Mapping[str, Any]) -> list[str]:
    """The options of these changes, a word each; fields that are as if left out are cleared."""
    spec = decode(JobSpec, {"command": ["true"], **changes})
    words: list[str] = []
    cleared: list[str] = []
    for name in changes:
        said = [*_OPTIONS[name](spec)]
        words += [word for option in said for word in option]
        cleared += [_CLEARED.get(name, name)] * (not said)
    return [*words, *(["--clear", ",".join(cleared)] if cleared else [])]


Option = tuple[str, ...]


def _gpu(spec: JobSpec) -> Iterator[Option]:
    wish = spec.gpu or GpuWish()
    if wish.memory_mib:
        yield "--gpu-memory", _size(wish.memory_mib)
    if wish.least_mib:
        yield "--min-gpu-memory", _size(wish.least_mib)
    for flag in ("compute", "mig", "numa", "nvlink"):
        if getattr(wish, flag):
            yield f"--{flag}", getattr(wish, flag)


def _topology(spec: JobSpec) -> Iterator[Option]:
    if spec.topology is None:
        return
    topology: Topology = spec.topology
    how = ":prefer" if topology.prefer else ""
    flags = {1: "--same", None: "--different"}
    if topology.domains in flags:
        yield flags[topology.domains], f"{topology.label}{how}"
    else:
        yield "--domains", f"{topology.label}={topology.domains}{how}"


def _company(spec: JobSpec) -> Iterator[Option]:
    for term in spec.company:
        yield {1: "--near", None: "--apart"}.get(term.domains, "--over"), _term(term)


def _term(term: JobTerm) -> str:
    count = "" if term.domains in (1, None) else f"={term.domains}"
    return f"{term.key}={term.value} on {term.topology}{count}{':prefer' if term.prefer else ''}"


def _gang(spec: JobSpec) -> Iterator[Option]:
    gang = spec.gang
    if gang.min_nodes is not None:
        yield "--min-nodes", str(gang.min_nodes)
    if gang.assembly_s:
        yield "--assembly-time", _time(gang.assembly_s)
    if gang.elastic:
        yield ("--elastic",)
    yield "--on-member-failure", gang.on_failure.value


def _size(mib: int) -> str:
    return f"{mib}M" if mib % 1024 else f"{mib // 1024}G"


def _time(seconds: float) -> str:
    whole = round(seconds)
    if whole % 60:
        return f"{whole}s"
    return f"{whole // 60}m" if whole % 3_600 else f"{whole // 3_600}h"


_OPTIONS: Mapping[str, Callable[[JobSpec], Iterator[Option]]] = {
    "gpus": lambda spec: iter([("--gpus", gpus_text(spec.gpus))]),
    "nodes": lambda spec: iter([("--nodes", str(spec.nodes))] if spec.nodes else []),
    "cpu_milli": lambda spec: iter([("--cpus", f"{spec.cpu_milli / 1000:g}")]),
    "memory_mib": lambda spec: iter([("--memory", _size(spec.memory_mib))]),
    "scratch_mib": lambda spec: iter([("--scratch", _size(spec.scratch_mib))] if spec.scratch_mib else []),
    "time_limit_s": lambda spec: iter([("--time", _time(spec.time_limit_s))] if spec.time_limit_s else []),
    "gpu_models": lambda spec: (("--gpu-model", model) for model in spec.gpu_models),
    "selector": lambda spec: (("--select", f"{key}={value}") for key, value in spec.selector.items()),
    "affinity": lambda spec: (("--affinity", str(term)) for term in spec.affinity),
    "licences": lambda spec: (("--licence", f"{name}:{count}") for name, count in spec.licences.items()),
    "gpu": _gpu,
    "topology": _topology,
    "company": _company,
    "gang": _gang,
}
_CLEARED = {
    "gpu_models": "gpu-model",
    "selector": "select",
    "gpu": "numa",
    "licences": "licence",
    "scratch_mib": "scratch",
    "topology": "same",
    "company": "near",
}
"""Any option that sets the field clears all of it."""
