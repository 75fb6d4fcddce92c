"""The submit form. It converts the typed texts to a JobSpec and to the command `corral submit`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tui.forms.form import Field, Form, FormContents, Typed, filled, pairs, read_fields
from wire import amounts
from wire.api.forecasts import WhatIf
from wire.api.jobs import Submitted
from wire.job.spec import JobSpec, spec_problems
from wire.names import PRIORITIES

FIELDS: Final = (
    Field("command", "command", "--", "python train.py --epochs 3", amounts.words),
    Field("name", "name", "--name", "default: the name of the program", str),
    Field("gpus", "gpus", "--gpus", "8, or 0.25 of one", amounts.gpus, "1"),
    Field("gpu model", "gpu_models", "--gpu-model", "any", amounts.words, picks="model"),
    Field("nodes", "nodes", "--nodes", "as few as the GPUs need", amounts.count),
    Field(
        "cpus", "cpu_milli", "--cpus", "per node; default: in proportion to GPUs, or 1", amounts.cores_milli
    ),
    Field(
        "memory",
        "memory_mib",
        "--memory",
        "per node; default: in proportion to GPUs or CPUs",
        amounts.memory_mib,
    ),
    Field("time", "time_limit_s", "--time", "such as 2h30m; default: no limit", amounts.seconds),
    Field(
        "priority",
        "priority",
        "--priority",
        ", ".join(PRIORITIES).lower(),
        amounts.priority,
        "normal",
        picks="priority",
    ),
    Field("array", "array", "--array", "such as 0-9: one job per index", str),
    Field("project", "project", "--project", "", str, "default", picks="project"),
    Field("queue", "queue", "--queue", "", str, "default", picks="queue"),
    Field("reservation", "reservation", "--reservation", "default: none", str, picks="reservation"),
    Field("directory", "workdir", "--workdir", "directory to run in", str),
    Field("variables", "env", "--env", "NAME=value OTHER=value", pairs),
    Field("nodes with", "selector", "--select", "label=value", pairs),
)
BY_TARGET: Final = {field.target: field for field in FIELDS}
DEFAULTS: Final = {"priority": "normal", "project": "default", "queue": "default"}
"""For some fields, the text that means the default of JobSpec, by field name. For a field with this text, the
shell command has no option.
"""


def read(typed: Typed) -> FormContents[JobSpec]:
    """Return the job that the typed texts describe. An empty field means the default of JobSpec."""
    values, wrong = read_fields(filled(FIELDS, typed))
    spec = JobSpec(**{"command": (), **values})
    if spec.command and not spec.name:
        spec = replace(spec, name=spec.command[0].rsplit("/", 1)[-1][:200])
    for where, sentence in spec_problems(spec):
        field_name = BY_TARGET[target].name if (target := where.partition(".")[0]) in BY_TARGET else "command"
        wrong.setdefault(field_name, sentence)
    return FormContents(spec, wrong)


def command(typed: Typed) -> str:
    """Return the `corral submit` command that submits the same job."""
    flags = [
        flag
        for field, text in filled(FIELDS[1:], typed).items()
        if text != DEFAULTS.get(field.name)
        for flag in field.flags(text)
    ]
    return " ".join(["corral submit", *flags, "--", typed.get("command", "").strip() or "…"])


def new_job(directory: str, inherit: Callable[[JobSpec], JobSpec]) -> Form[JobSpec, Submitted]:
    """Return the submit form. `directory` is the working directory of the job, unless the user types another
    one.

    `inherit` adds the settings that `corral submit` takes from the shell. The form shows a `corral submit`
    command, and must submit the same job as this command.
    """
    fields = tuple(
        replace(field, default=directory) if field.target == "workdir" else field for field in FIELDS
    )
    return Form(
        "New job",
        "Submit",
        fields,
        read,
        command,
        lambda client, spec: client.submit(inherit(spec)),
        lambda spec: WhatIf(submit=(inherit(spec),)),
    )
