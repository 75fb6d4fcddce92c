"""Declares flags and arguments of commands, and groups of flags for several commands."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import typer


def option(names: str, metavar: str, help_text: str, **more: Any) -> Any:
    """Declare a flag with a value. `names` lists the names of the flag, separated by spaces ("--lines -n").
    The help text must contain the default, because Typer does not add the default.
    """
    return typer.Option(*names.split(), metavar=metavar, help=help_text, show_default=False, **more)


def switch(names: str, help_text: str) -> Any:
    return typer.Option(*names.split(), help=help_text, show_default=False)


def argument(metavar: str, help_text: str = "", **more: Any) -> Any:
    return typer.Argument(metavar=metavar, help=help_text, show_default=False, **more)


class FlagGroup:
    """Base class of dataclasses whose fields are flags. Each field is annotated like a parameter of a
    command.
    """

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        hints = get_type_hints(cls, include_extras=True)
        return [parameter(each.name, hints[each.name], _default(each)) for each in dataclasses.fields(cls)]  # type: ignore[arg-type]


def parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def with_flag_groups(command: Callable[..., int]) -> Callable[..., int]:
    """Return `command` with the flags of a group in place of each parameter whose type is a `FlagGroup`."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    groups = {each.name: each.annotation for each in own if _is_group(each.annotation)}
    parameters = {name: group.parameters() for name, group in groups.items()}

    def wrapper(**arguments: Any) -> int:
        for name, group in groups.items():
            arguments[name] = group(**{each.name: arguments.pop(each.name) for each in parameters[name]})
        return command(**arguments)

    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for one in own
            for each in parameters.get(one.name, [one])
        ]
    )
    return wrapper


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, FlagGroup)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
