"""Collects the job options that a user has set, by source: flags, environment variables and lines of the
script. This module needs no typer, so that sbatch starts quickly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.spec.submit_options.table import OPTIONS
from wire.dataclass import dataclass

ENVIRONMENT = "CORRAL_SUBMIT_"


@dataclass(frozen=True)
class OptionText:
    """The text of an option, and the place where the user wrote the option, such as "train.sh line 3", for
    error messages.
    """

    text: str
    source: str


Layer = Mapping[str, list[OptionText]]
"""The options of one source (flags, environment or script) by option name."""


def from_flags(options: Mapping[str, Any]) -> Layer:
    """Return the options that the flags of a command line set."""
    found: dict[str, list[OptionText]] = {}
    for name, value in options.items():
        row = OPTIONS[name]
        if value not in (None, False, []):
            texts = value if row.repeats else ["true" if row.is_switch else value]
            found[name] = [OptionText(text, row.flag) for text in texts]
    return found


def from_environment(environment: Mapping[str, str]) -> Layer:
    """Return the options that are set in CORRAL_SUBMIT_… variables. Spaces separate the values of a repeated
    option. In variables for conditions, such as CORRAL_SUBMIT_AFFINITY, semicolons separate the values.
    """
    found: dict[str, list[OptionText]] = {}
    for name, row in OPTIONS.items():
        variable = ENVIRONMENT + name.upper()
        value = environment.get(variable, "")
        if value:
            texts = value.split(row.separator) if row.repeats else [value]
            found[name] = [OptionText(text, variable) for text in texts]
    return found


def merged(strongest: Layer, *weaker: Layer) -> Layer:
    """Return the options of all these layers. If several layers set an option, the value in the first of
    these layers counts. An option with `adds_up` gets the values of all layers; those of `strongest` come
    last.
    """
    found = {name: list(texts) for name, texts in strongest.items()}
    for layer in weaker:
        for name, texts in layer.items():
            if OPTIONS[name].adds_up:
                found[name] = [*texts, *found.get(name, [])]
            else:
                found.setdefault(name, list(texts))
    return found
