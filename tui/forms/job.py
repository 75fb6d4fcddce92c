"""The submit form: typed text to JobSpec and to a shell command."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Any, Final

from tui.forms.form import (
    Field,
    Form,
    FormContents,
    Typed,
    cores_milli,
    count,
    memory_mib,
    number,
    pairs,
    span,
    words,
)
from wire.api.forecasts import WhatIf
from wire.api.jobs import Submitted
from wire.job.spec import JobSpec, spec_problems
from wire.names import PRIORITIES


def _gpus(text: str) -> float:
    return number(text, "write 8, or a share of one GPU such as 0.25")


def _priority(text: str) -> int:
    if text.upper() in PRIORITIES:
        return PRIORITIES[text.upper()]
    if not re.fullmatch(r"\d{1,3}", text):
        raise ValueError(f"write {', '.join(PRIORITIES).lower()} or 0 to 100")
    return int(text)


FIELDS: Final = (
    Field("command", "command", "--", "python train.py --epochs 3", words),
    Field("name", "name", "--name", "the program's, unless you say otherwise", str),
    Field("gpus", "gpus", "--gpus", "8, or 0.25 of one", _gpus, "1"),
    Field("gpu model", "gpu_models", "--gpu-model", "any", words),
    Field("nodes", "nodes", "--nodes", "as few as the GPUs need", count),
    Field("cpus", "cpu_milli", "--cpus", "cores per node", cores_milli, "4"),
    Field("memory", "memory_mib", "--memory", "per node", memory_mib, "16G"),
    Field("time", "time_limit_s", "--time", "no limit; 2h30m", span),
    Field("priority", "priority", "--priority", ", ".join(PRIORITIES).lower(), _priority, "normal"),
    Field("array", "array", "--array", "0-9, one job per index", str),
    Field("project", "project", "--project", "", str, "default"),
    Field("queue", "queue", "--queue", "", str, "default"),
    Field("directory", "workdir", "--workdir", "where to run it", str),
    Field("variables", "env", "--env", "NAME=value OTHER=value", pairs),
    Field("nodes with", "selector", "--select", "label=value", pairs),
)
BY_TARGET: Final = {field.target: field for field in FIELDS}


def read(typed: Typed) -> FormContents[JobSpec]:
    """The typed text by field name; an empty field means the default of JobSpec."""
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
    for where, sentence in spec_problems(spec):
        field_name = BY_TARGET[target].name if (target := where.partition(".")[0]) in BY_TARGET else "command"
        wrong.setdefault(field_name, sentence)
    return FormContents(spec, wrong)


def command(typed: Typed) -> str:
    """The shell command of the submit, with the typed words."""
    flags: list[str] = []
    for field in FIELDS[1:]:
        text = typed.get(field.name, "").strip()
        if text and text != _silent(field):
            flags += _flags(field, text)
    return " ".join(["corral submit", *flags, "--", typed.get("command", "").strip() or "…"])


def _flags(field: Field, text: str) -> list[str]:
    try:
        values = words(text) if field.read in (pairs, words) else (text,)
    except ValueError:
        values = (text,)
    return [f"{field.flag} {shlex.quote(value)}" for value in values]


def _silent(field: Field) -> str:
    """Whether the value is the default of JobSpec and needs no option."""
    return {"priority": "normal", "project": "default", "queue": "default"}.get(field.name, "")


def new_job(directory: str) -> Form[JobSpec, Submitted]:
    """The form of a job that runs in this directory, unless another is typed."""
    fields = tuple(
        replace(field, default=directory) if field.target == "workdir" else field for field in FIELDS
    )
    return Form(
        "New job",
        "Submit",
        fields,
        read,
        command,
        lambda client, spec: client.submit(spec),
        lambda spec: WhatIf(submit=(spec,)),
    )
