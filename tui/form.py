"""The submit form as plain data: what is typed, the JobSpec it means, and the same as a command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from wire.spec import JobSpec, problems
from wire.words import PRIORITIES


@dataclass(frozen=True)
class Field:
    """One line of the form; `target` is the JobSpec field it fills, `flag` the option for the same."""

    name: str
    target: str
    flag: str
    hint: str
    read: Callable[[str], Any]
    default: str = ""


_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([MGT])(?:i?B)?", re.IGNORECASE)
_MIB: Final = {"M": 1, "G": 1024, "T": 1024 * 1024}
_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.IGNORECASE)


def _memory(text: str) -> int:
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise ValueError("write 512M, 16G or 1T")
    return int(float(match[1]) * _MIB[match[2].upper()])


def _span(text: str) -> float:
    match = _SPAN.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError("write 90s, 30m or 2h30m")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _cores(text: str) -> int:
    return round(_number(text, "write 4 or 0.5") * 1000)


def _gpus(text: str) -> float:
    return _number(text, "write 8, or a share of one GPU such as 0.25")


def _number(text: str, hint: str) -> float:
    if not re.fullmatch(r"\d{1,7}(\.\d{1,6})?", text):
        raise ValueError(hint)
    return float(text)


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,6}", text):
        raise ValueError("write a whole number")
    return int(text)


def _priority(text: str) -> int:
    if text.upper() in PRIORITIES:
        return PRIORITIES[text.upper()]
    if not re.fullmatch(r"\d{1,3}", text):
        raise ValueError(f"write {', '.join(PRIORITIES).lower()} or 0 to 100")
    return int(text)


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(str(error).lower()) from None


def _pairs(text: str) -> dict[str, str]:
    found = {}
    for word in _words(text):
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ValueError("write name=value, separated by spaces")
        found[name] = value
    return found


FIELDS: Final = (
    Field("command", "command", "--", "python train.py --epochs 3", _words),
    Field("name", "name", "--name", "the program's, unless you say otherwise", str),
    Field("gpus", "gpus", "--gpus", "8, or 0.25 of one", _gpus, "1"),
    Field("gpu model", "gpu_models", "--gpu-model", "any", _words),
    Field("nodes", "nodes", "--nodes", "as few as the GPUs need", _count),
    Field("cpus", "cpu_milli", "--cpus", "cores per node", _cores, "4"),
    Field("memory", "memory_mib", "--memory", "per node", _memory, "16G"),
    Field("time", "time_limit_s", "--time", "no limit; 2h30m", _span),
    Field("priority", "priority", "--priority", ", ".join(PRIORITIES).lower(), _priority, "normal"),
    Field("array", "array", "--array", "0-9, one job per index", str),
    Field("project", "project", "--project", "", str, "default"),
    Field("queue", "queue", "--queue", "", str, "default"),
    Field("directory", "workdir", "--workdir", "where to run it", str),
    Field("variables", "env", "--env", "NAME=value OTHER=value", _pairs),
    Field("nodes with", "selector", "--select", "label=value", _pairs),
)
BY_TARGET: Final = {field.target: field for field in FIELDS}


@dataclass(frozen=True)
class Read:
    """The form as it stands: the job, unless something is wrong with a field."""

    spec: JobSpec
    wrong: Mapping[str, str]


def read(typed: Mapping[str, str]) -> Read:
    """What has been typed, by field name; empty fields mean the default of JobSpec."""
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for field in FIELDS:
        text = typed.get(field.name, "").strip()
        if not text:
            continue
        try:
            values[field.target] = field.read(text)
        except ValueError as error:
            wrong[field.name] = str(error)
    spec = JobSpec(**{"command": (), **values})
    if spec.command and not spec.name:
        spec = replace(spec, name=spec.command[0].rsplit("/", 1)[-1][:200])
    for where, sentence in problems(spec):
        field_name = BY_TARGET[target].name if (target := where.partition(".")[0]) in BY_TARGET else "command"
        wrong.setdefault(field_name, sentence)
    return Read(spec, wrong)


def command(typed: Mapping[str, str]) -> str:
    """The same submit for a shell, from the words that were typed."""
    flags: list[str] = []
    for field in FIELDS[1:]:
        text = typed.get(field.name, "").strip()
        if text and text != _silent(field):
            flags += _flags(field, text)
    return " ".join(["corral submit", *flags, "--", typed.get("command", "").strip() or "…"])


def _flags(field: Field, text: str) -> list[str]:
    try:
        values = _words(text) if field.read in (_pairs, _words) else (text,)
    except ValueError:
        values = (text,)
    return [f"{field.flag} {shlex.quote(value)}" for value in values]


def _silent(field: Field) -> str:
    """What need not be said, because it is JobSpec's own default."""
    return {"priority": "normal", "project": "default", "queue": "default"}.get(field.name, "")
