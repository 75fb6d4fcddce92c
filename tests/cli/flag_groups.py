"""Parses arguments as a command with a group of flags does."""

from __future__ import annotations

from typing import Any, TypeVar

import typer
from typer.main import get_command

from cli.flag_values import use_fast_readers
from cli.flags import FlagGroup, with_flag_groups

Group = TypeVar("Group", bound=FlagGroup)


def parsed(kind: type[Group], *words: str) -> Group:
    """The group of flags that a command gets from these arguments; raises typer.BadParameter."""
    found: list[Any] = []
    app = typer.Typer()

    def command(flags: Any) -> int:
        found.append(flags)
        return 0

    command.__annotations__["flags"] = kind
    app.command()(with_flag_groups(command))
    use_fast_readers(get_command(app)).main([*words], standalone_mode=False)
    made: Group = found[0]
    return made
