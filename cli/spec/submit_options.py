"""Collects the job options that a user has set in flags, in environment variables and in lines of the
script.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from cli.flags import FlagGroup, option, parameter, switch
from cli.spec.job_options import OPTIONS
from cli.spec.options.job_option import JobOption

ENVIRONMENT = "CORRAL_SUBMIT_"
_DEFAULT = re.compile(r" Default: .*?\.(?= [A-Z]|$)")


class SubmitOptions(FlagGroup, dict[str, Any]):
    """The job flags of one command line, by option name. A value is a text, True for a switch, or a list for
    a repeated flag.

    There is one flag for each row in the table of job options.
    """

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        return [_parameter(each, each.help) for each in OPTIONS.values()]


class EditOptions(SubmitOptions):
    """The job flags of a command that edits jobs, such as `corral job set`. The help names no defaults,
    because the job keeps its value if the user does not write the flag.
    """

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        return [_parameter(each, _DEFAULT.sub("", each.help)) for each in OPTIONS.values()]


def _parameter(row: JobOption, help_text: str) -> inspect.Parameter:
    if row.is_switch:
        return parameter(row.name, Annotated[bool, switch(row.flag, help_text)], False)
    kind: Any = list[str] if row.repeats else str | None
    flag = option(row.flag, row.metavar, help_text)
    return parameter(row.name, Annotated[kind, flag], [] if row.repeats else None)


@dataclass(frozen=True)
class OptionText:
    """The text of an option, and where the user wrote it, such as "train.sh line 3", for error messages."""

    text: str
    source: str


Layer = Mapping[str, list[OptionText]]
"""The options of one source (flags, environment or script) by option name."""


def from_flags(options: SubmitOptions) -> Layer:
    found: dict[str, list[OptionText]] = {}
    for name, value in options.items():
        row = OPTIONS[name]
        if value not in (None, False, []):
            texts = value if row.repeats else ["true" if row.is_switch else value]
            found[name] = [OptionText(text, row.flag) for text in texts]
    return found


def from_environment(environment: Mapping[str, str]) -> Layer:
    """Return the options that are set in CORRAL_SUBMIT_… variables. Spaces separate the values of a repeated
    option; semicolons separate conditions on labels.
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
    """Combine the options of several sources. An earlier source overrides a later one. But an option with
    `adds_up` gets the values of all sources, and the values of the first source come last.
    """
    found = {name: list(texts) for name, texts in strongest.items()}
    for layer in weaker:
        for name, texts in layer.items():
            if OPTIONS[name].adds_up:
                found[name] = [*texts, *found.get(name, [])]
            else:
                found.setdefault(name, list(texts))
    return found
