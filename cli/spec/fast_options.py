"""Reads numbers, words and paths of the command line without pydantic, which typer loads to do it.

Typer asks each parameter for its reader with `get_runtime_param()`, on first use. `use_fast_readers` answers
in its place: with the parser of the flag if it has one (`option(..., parser=amounts.seconds)`), else for the
kinds of values that commands have here. It leaves any other kind to typer. This saves 60 ms of each start,
and the errors name the value and what would be right.
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
    """Reads one parameter, with the interface that typer calls."""

    read: Callable[[Any], Any]

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of a parameter from the text of the command line, or from its default."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        try:
            return [self.read(text) for text in value] if several else self.read(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None


def use_fast_readers(command: Any, above: Any = None) -> Any:
    """Give the parameters of a command and its subcommands a `Reader` if their kind of value has one."""
    # The group's context comes first, because a command takes the names of its help option from there.
    context = command.context_class(command, above, **command.context_settings)
    for param in command.get_params(context):  # also --help, which typer makes on demand
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
        return lambda value: parser(value) if isinstance(value, str) else value  # a default is no text
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
