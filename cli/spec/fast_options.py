"""Reads numbers, words and paths of the command line without pydantic, which typer loads to do it.

Typer calls `get_runtime_param()` of each parameter on first use to get a reader. `use_fast_readers` sets the
reader before that: the parser of the flag if it has one (`option(..., parser=amounts.seconds)`), otherwise a
reader for the type of the value. Other types are left to typer. This saves 60 ms at each start, and the
errors name the wrong value and valid values.
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
    """Reads the value of one parameter. Typer calls this class in place of its own."""

    read: Callable[[Any], Any]

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of a parameter, parsed from the text of the command line, or its default."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        try:
            return [self.read(text) for text in value] if several else self.read(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None


def use_fast_readers(command: Any, above: Any = None) -> Any:
    """Give each parameter of a command and its subcommands a `Reader`, if the type of its value has one."""
    # Make the context of the group first, because a command takes the names of its help option from that
    # context.
    context = command.context_class(command, above, **command.context_settings)
    for param in command.get_params(context):  # includes --help, which typer creates on demand
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
        # Do not parse a default, because it is a value already.
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
