"""Parses values of the command line without pydantic, because importing pydantic takes 60 ms at each start.

Typer calls `get_runtime_param()` of each parameter to get a reader (an object that parses the value). Typer's
own reader imports pydantic. `use_fast_readers` replaces the reader for flags with a parser (`option(...,
parser=amounts.seconds)`) and for simple types. Other types keep the reader of Typer. The new readers also
give better errors, which name the wrong value and the valid values.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

from wire import amounts


@dataclass(frozen=True)
class Reader:
    """Parses the value of one parameter with the function `read`. Typer calls `coerce` instead of its own
    reader, which would import pydantic.
    """

    read: Callable[[Any], Any]

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the parsed value of a parameter. Without a value, return None, or an empty tuple for a
        parameter that may be repeated.
        """
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        try:
            return [self.read(text) for text in value] if several else self.read(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None


def use_fast_readers(command: Any, above: Any = None) -> Any:
    """Set a `Reader` for each parameter of a command and its subcommands that has a parser or a simple type,
    such as int. Return the command. `above` is the Typer context of the parent command.
    """
    # Create the context of a command before the contexts of its subcommands, because subcommands inherit the
    # names of the --help option (-h, --help) from the command above.
    context = command.context_class(command, above, **command.context_settings)
    # Do not use `command.params`, because only `get_params` also returns --help.
    for param in command.get_params(context):
        read = _reader(param)
        if read is not None:
            param.get_runtime_param = partial(_same, Reader(read))
    for below in getattr(command, "commands", {}).values():
        use_fast_readers(below, context)
    return command


def _same(reader: Reader) -> Reader:
    return reader


def _reader(param: Any) -> Callable[[Any], Any] | None:
    descriptor = getattr(param, "type_descriptor", None)
    kind: Any = getattr(descriptor, "annotation", None)
    parser: Any = getattr(getattr(descriptor, "parameter_info", None), "parser", None)
    if parser is not None:
        # Parse only text, because a default value may have the parsed type already.
        return lambda value: parser(value) if isinstance(value, str) else value
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    if kind in (int, float):
        return partial(_number, kind=kind, low=param.min, high=param.max)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return amounts.member(kind)
    return {str: str, bool: bool, Path: Path}.get(kind)


def _number(text: Any, *, kind: type[int | float], low: float | None, high: float | None) -> float:
    what = "a whole number" if kind is int else "a number"
    if len(str(text)) > 20:
        raise ValueError(f"this is not {what}")
    try:
        number = kind(text)
    except ValueError:
        raise ValueError(f"{text!r} is not {what}") from None
    if not (low is None or number >= low) or not (high is None or number <= high):
        limits = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{text!r} is not {what} {limits}")
    return number
