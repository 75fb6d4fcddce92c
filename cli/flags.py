"""Declares flags and arguments of commands, and groups of flags that several commands share."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import typer

Made = TypeVar("Made")


def option(names: str, metavar: str, help_text: str, **more: Any) -> Any:
    """A flag with a value. `names` are all names of the flag, such as "--lines -n". The default is part of
    the help text.
    """
    return typer.Option(*names.split(), metavar=metavar, help=help_text, show_default=False, **more)


def switch(names: str, help_text: str) -> Any:
    """A flag without a value."""
    return typer.Option(*names.split(), help=help_text, show_default=False)


def argument(metavar: str, help_text: str = "", **more: Any) -> Any:
    """A positional argument of a command."""
    return typer.Argument(metavar=metavar, help=help_text, show_default=False, **more)


class FlagGroup:
    """Base class of dataclasses whose fields are flags. The fields are annotated like the parameters of a
    command.

    Example: `class Window(FlagGroup)` with the field `since: Annotated[str, option(...)] = "7d"` gives each
    command with a parameter `window: Window` the flag --since, once it has the decorator `with_flag_groups`.
    """

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """The parameters of a command for these flags, one for each field."""
        hints = get_type_hints(cls, include_extras=True)
        return [parameter(each.name, hints[each.name], _default(each)) for each in dataclasses.fields(cls)]  # type: ignore[arg-type]


def parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """A keyword parameter of a command."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def with_flag_groups(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the flags of each `FlagGroup` among its parameters."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    groups = {each.name: each.annotation for each in own if _is_group(each.annotation)}
    parameters = {name: group.parameters() for name, group in groups.items()}

    def wrapper(**given: Any) -> int:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in parameters[name]})
        return command(**given)

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
