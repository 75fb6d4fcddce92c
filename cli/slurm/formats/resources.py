"""Formats CPUs, memory, GPUs and nodes of jobs as Slurm does: TRES, GRES, units and host lists."""

from __future__ import annotations

import functools
import grp
import pwd
import re
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

_MODEL = re.compile(r"(?:NVIDIA|TESLA|GEFORCE|QUADRO|AMD|INSTINCT)\s+", re.IGNORECASE)
_NUMBERED = re.compile(r"(.*?)(\d+)", re.DOTALL)
NO_USER = 4_294_967_294
_UNITS = "MGTPE"


def gpu_type(model: str) -> str:
    """Return the type of a GPU model in GRES texts: a100 for `NVIDIA A100-SXM4-80GB` and for A100."""
    words = re.split(r"[\s_-]", _MODEL.sub("", model).strip())
    if words[0].upper() == "RTX" and len(words) > 1:
        words[0] += words[1]
    return re.sub(r"[^a-z0-9.]", "", words[0].lower()) or "gpu"


def whole_cpus(milli: int) -> int:
    """Return thousandths of CPUs as a number of whole CPUs, rounded up, at least 1."""
    return max(1, -(-milli // 1_000))


def cpus(job: Row) -> int:
    """Return the number of CPUs that a job holds on all its nodes; before its start, the number that it
    requests. `job` must have the columns in CPU_COLUMNS.
    """
    if job["held"]:
        return sum(whole_cpus(milli) for _, milli, _, _ in job["held"])
    return whole_cpus(job["cpu_milli"]) * int(job["nodes"])


def memory_mib(job: Row) -> int:
    """Return the memory in MiB that a job holds on all its nodes; before its start, the memory that it
    requests. `job` must have the columns in MEMORY_COLUMNS.
    """
    if job["held"]:
        return sum(int(mib) for _, _, mib, _ in job["held"])
    return int(job["memory_mib"]) * int(job["nodes"])


CPU_COLUMNS = ("held", "cpu_milli", "nodes")
MEMORY_COLUMNS = ("held", "memory_mib", "nodes")
GPU_COLUMNS = ("gpus", "nodes", "gpu_request")
TRES_COLUMNS = tuple(dict.fromkeys((*CPU_COLUMNS, *MEMORY_COLUMNS, *GPU_COLUMNS)))


def short_memory(mib: int) -> str:
    """Return an amount of memory in the largest unit in which it is a whole number: 500M, 4G, 1536M."""
    unit = 0
    while mib and mib % 1_024 == 0 and unit + 1 < len(_UNITS):
        mib //= 1_024
        unit += 1
    return f"{mib}{_UNITS[unit]}"


LEAST_COLUMNS = ("memory_mib", "memory_per_cpu_mib")
"""The columns that `least_memory` reads."""


def least_memory(job: Row) -> str:
    """Return the memory that a job requests for each CPU if it requests memory for CPUs, otherwise the memory
    that it requests on each node.
    """
    return short_memory(job["memory_per_cpu_mib"] or job["memory_mib"])


def rounded_memory(mib: float, unit: str = "") -> str:
    """Return an amount of memory as sacct prints it: 500M, 4G or 1.50G. With `unit`, one of KMGTP, the amount
    has this unit.
    """
    letters = "K" + _UNITS
    value, place = float(mib), 1
    if unit:
        place = letters.index(unit)
        value = mib * 1_024.0 ** (1 - place)
    else:
        while value >= 1_024 and place + 1 < len(letters):
            value /= 1_024
            place += 1
    text = f"{value:.0f}" if value == int(value) else f"{value:.2f}"
    return f"{text}{letters[place]}"


def gres(gpus: float, nodes: int, model: str) -> str:
    """Return the GPUs of one node as a GRES, such as gpu:a100:2, for a job with `gpus` GPUs on `nodes` nodes;
    empty if the job has no GPUs. Half a GPU is mps:50, because Slurm counts parts of a GPU in hundredths.
    """
    if not gpus:
        return ""
    if gpus < 1:
        return f"mps:{round(gpus * 100)}"
    count = -(-int(gpus) // max(1, nodes))
    return f"gpu:{gpu_type(model)}:{count}" if model else f"gpu:{count}"


def tres(job: Row, *, by_name: bool) -> str:
    """Return the resources of a job, such as cpu=2,mem=500M,node=1,billing=2,gres/gpu=2. With `by_name`, sort
    the resources by name, as sacct does. `job` must have the columns in TRES_COLUMNS.
    """
    return tres_text(cpus(job), memory_mib(job), int(job["nodes"]), job["gpus"], by_name=by_name)


def tres_text(cpu: int, mib: int, nodes: int, gpus: float, *, by_name: bool, billing: bool = True) -> str:
    found = [f"cpu={cpu}", f"mem={short_memory(mib)}", f"node={nodes}"]
    found += [f"billing={cpu}"] if billing else []
    found += [f"gres/gpu={gpus:g}"] if gpus else []
    return ",".join(sorted(found) if by_name else found)


def ranges(numbers: Sequence[int], width: int = 0) -> str:
    """Return sorted numbers as a text with ranges: 1-3,5 for 1, 2, 3 and 5. Each number has at least `width`
    digits.
    """
    found: list[str] = []
    begin = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[place - 1] + 1:
            low, high = numbers[begin], numbers[place - 1]
            found.append(f"{low:0{width}d}" if low == high else f"{low:0{width}d}-{high:0{width}d}")
            begin = place
    return ",".join(found)


def natural(name: str) -> tuple[tuple[str, int], ...]:
    """Return a sort key by which n2 comes before n10."""
    return (*((head, int(number)) for head, number in _NUMBERED.findall(name)), (name, 0))


@functools.cache
def uid_of(user: str) -> int:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return NO_USER


@functools.cache
def gid_of(user: str) -> int:
    try:
        return pwd.getpwnam(user).pw_gid
    except KeyError:
        return NO_USER


@functools.cache
def group_of(user: str) -> str:
    try:
        return grp.getgrgid(gid_of(user)).gr_name
    except (KeyError, OverflowError):
        return str(gid_of(user))
