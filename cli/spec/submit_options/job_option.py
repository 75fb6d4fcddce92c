"""One job option: its flag, its field of JobSpec, and how its value is read and printed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from cli.exit_codes import CommandError
from cli.spec.dependencies_and_restarts import AFTER, dependencies
from cli.spec.submit_options import value_texts
from wire import amounts
from wire.dataclass import dataclass
from wire.job.spec import JobSpec
from wire.job.start_conditions import Dependency


@dataclass(frozen=True)
class JobOption:
    """One row of the table of job options. An option without a `metavar` is a switch, whose text is true or
    false.
    """

    name: str
    help: str
    field: str = ""
    """The field of JobSpec that the option sets, or a part of such a field, such as gang.min_nodes. If empty,
    the field has the name of the option.
    """
    metavar: str = ""
    read: Callable[[str], Any] = str
    show: Callable[[Any], value_texts.Texts] = value_texts.any_value
    """A function that converts the value to the texts of the flag, for suggestions such as `corral job set 7
    …`.
    """
    title: str = ""
    """The heading of the option in `corral job show`. An option without a title is shown on the line of
    another option.
    """
    repeats: bool = False
    adds_up: bool = False
    """If True, the option gets its values from flags, environment and script together. If False, flags
    override the environment, and the environment overrides the script.
    """
    separator: str | None = None
    """The text that separates the values of a repeated option in its environment variable. None means white
    space.
    """

    part: str = ""
    """The name after the dot in `field`, such as min_nodes; empty if the option sets the whole field.

    If several options set parts of one field, `spec_builder.COMBINED` has the function that makes the value
    of the field. `part` is then the name of the argument that gets the value of this option.
    """

    def __post_init__(self) -> None:
        field, _, part = (self.field or self.name).partition(".")
        object.__setattr__(self, "field", field)
        object.__setattr__(self, "part", part)

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def is_switch(self) -> bool:
        return not self.metavar

    def texts(self, spec: JobSpec) -> value_texts.Texts:
        """Return the texts with which a user would write this option to get the value in `spec`: one text for
        each time that the option must be written, and an empty list for the default value.
        """
        value = getattr(spec, self.field)
        # If the value has a field with the name `part`, show only this field. Otherwise show the whole value,
        # for example if three options together set one restart policy.
        if self.part in getattr(value, "__dataclass_fields__", ()):
            value = getattr(value, self.part)
        return [] if value is None else self.show(value)


def yes_or_no(text: str) -> bool:
    """Return True or False for the text of a switch. Raise ValueError for any other text."""
    word = text.lower()
    if word not in ("1", "true", "yes", "0", "false", "no"):
        raise ValueError(f"{text!r} is neither true nor false")
    return word in ("1", "true", "yes")


def directory(text: str) -> str:
    """Return the absolute path of a directory. A relative path starts at the current directory."""
    try:
        return os.path.abspath(text)
    except FileNotFoundError:
        raise CommandError(
            "the current directory is gone", "Change to another directory, or name one: --workdir /…"
        ) from None


def _no(text: str) -> bool:
    return not yes_or_no(text)


def umask(text: str) -> int:
    """Return the number for the text of a umask, which has three octal digits."""
    if not re.fullmatch("0?[0-7]{1,3}", text):
        raise ValueError(f"{text!r} is not a umask; write three octal digits, such as 027")
    return int(text, 8)


# Arguments of JobOption that many rows of the table have in common.
TERM: Mapping[str, Any] = {"metavar": "CONDITION", "repeats": True, "adds_up": True, "separator": ";"}
SUM: Mapping[str, Any] = {"repeats": True, "adds_up": True}
LIST: Mapping[str, Any] = {"repeats": True}
SWITCH: Mapping[str, Any] = {"read": yes_or_no, "show": value_texts.if_true}
NEGATED: Mapping[str, Any] = {"read": _no, "show": value_texts.if_false}
SIZE: Mapping[str, Any] = {"metavar": "SIZE", "read": amounts.memory_mib, "show": value_texts.size}
TIME: Mapping[str, Any] = {"metavar": "TIME", "read": amounts.seconds, "show": value_texts.time_span}
WHEN: Mapping[str, Any] = {"metavar": "WHEN", "read": amounts.moment, "show": value_texts.moment}
COUNT: Mapping[str, Any] = {"metavar": "N", "read": amounts.count}
CORES: Mapping[str, Any] = {"metavar": "CORES", "read": amounts.cores_milli, "show": value_texts.cores}
DIR: Mapping[str, Any] = {"metavar": "DIR", "read": directory}
SIGNAL: Mapping[str, Any] = {"metavar": "SIGNAL", "read": amounts.signal}


def after_option(name: str, metavar: str, help_text: str) -> JobOption:
    """Return the row for an option such as --after-ok, which makes a job depend on other jobs."""
    until = AFTER[name]

    def show(after: tuple[Dependency, ...]) -> value_texts.Texts:
        return [each.path or each.job for each in after if each.until is until]

    return JobOption(name, help_text, "after", metavar, dependencies(until), show=show, **LIST)
