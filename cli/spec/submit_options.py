"""The job options that a user gave: on the command line, in the environment, in the lines of a script."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from cli.spec.job_options import OPTIONS, JobOption

ENVIRONMENT = "CORRAL_SUBMIT_"


class SubmitOptions(dict[str, Any]):
    """The flags of one command line by option name: a text, True for a switch, a list if repeated."""


@dataclass(frozen=True)
class Given:
    """A text and where it was written, for error messages."""

    text: str
    source: str


Layer = Mapping[str, list[Given]]
"""What one source says, by option name."""


def from_flags(asked: SubmitOptions) -> Layer:
    """What the command line says."""
    found: dict[str, list[Given]] = {}
    for name, value in asked.items():
        option = OPTIONS[name]
        if value not in (None, False, []):
            texts = value if option.repeats else ["true" if option.is_switch else value]
            found[name] = [Given(text, option.flag) for text in texts]
    return found


def from_environment(environment: Mapping[str, str]) -> Layer:
    """What CORRAL_SUBMIT_… variables say. Spaces separate repeated values; semicolons separate terms."""
    found: dict[str, list[Given]] = {}
    for name, option in OPTIONS.items():
        variable = ENVIRONMENT + name.upper()
        value = environment.get(variable, "")
        if value:
            texts = value.split(option.separator) if option.repeats else [value]
            found[name] = [Given(text, variable) for text in texts]
    return found


def merged(strongest: Layer, *weaker: Layer) -> Layer:
    """The strongest source for each option; options that add up get the values of all, the strongest last."""
    found = {name: list(given) for name, given in strongest.items()}
    for layer in weaker:
        for name, given in layer.items():
            if OPTIONS[name].adds_up:
                found[name] = [*given, *found.get(name, [])]
            else:
                found.setdefault(name, list(given))
    return found


def with_submit_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command that takes `asked` a flag for each row of the table of job options."""
    own = inspect.signature(command, eval_str=True).parameters

    def wrapper(**given: Any) -> int:
        asked = SubmitOptions((name, given.pop(name)) for name in OPTIONS)
        return command(asked=asked, **given)

    wrapper.__doc__ = command.__doc__
    others = [
        part.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, part in own.items() if name != "asked"
    ]
    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [*map(_parameter, OPTIONS.values()), *others]
    )
    return wrapper


def _parameter(option: JobOption) -> inspect.Parameter:
    kind: Any = bool if option.is_switch else list[str] if option.repeats else str | None
    default: Any = False if option.is_switch else [] if option.repeats else None
    flag = typer.Option(option.flag, metavar=option.metavar or None, help=option.help, show_default=False)
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, flag], default=default
    )
