"""Converts a suggested change of a job to the flags of `corral job set` that make this change."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from cli.spec.submit_options.table import OPTIONS
from wire.api.forecasts import Easing
from wire.codec import decode
from wire.job.spec import JobSpec


def flags_of(changes: Mapping[str, Any]) -> list[str]:
    """Return the flags and values that set these JobSpec fields. A field whose new value is the default is
    reset with --clear, because no flag sets the default.

    Example: {"gpus": 4, "topology": None} gives --gpus 4 --clear same, because
    --same sets the field topology.
    """
    spec = decode(JobSpec, {"command": ["true"], **changes})
    words: list[str] = []
    cleared: list[str] = []
    for field in changes:
        options = [option for option in OPTIONS.values() if option.field == field]
        found = [(option, text) for option in options for text in option.texts(spec)]
        for option, text in found:
            words += [option.flag] if option.is_switch else [option.flag, text]
        if not found:
            cleared.append(options[0].flag.removeprefix("--"))
    return [*words, *(["--clear", ",".join(cleared)] if cleared else [])]


def command_of(easing: Easing, label: str = "") -> str:
    """Return the shell command that makes a suggested change (`easing`) of a job. `label` is the display id
    of the job (17 or 12_3). Without a label, return only the flags of the change, because the job is not
    submitted yet.
    """
    if easing.command:
        return f"corral {shlex.join(easing.command)}"
    flags = shlex.join(flags_of(easing.changes))
    return f"corral job set {label} {flags}" if label else flags
