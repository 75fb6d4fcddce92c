"""Prints messages for the user to stderr, so that stdout contains only data."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from cli import exit_codes
from wire.text import printable

# Import these modules only for type checks, because they would slow down `corral --help`.
if TYPE_CHECKING:
    from wire.api.problem import Problem


def print_error(message: str, hint: str = "", code: int = 0) -> int:
    """Print an error message and a hint about the remedy. Return `code`, the exit code."""
    lines = [f"corral: {_safe(message)}"] + [f"  {_safe(line)}" for line in hint.splitlines()]
    print("\n".join(lines), file=sys.stderr)
    return code


def print_refusal(problem: Problem) -> int:
    """Print an error that the controller reports. Return the exit code for this error."""
    if problem.where == "Authorization":
        hint = "Set CORRAL_TOKEN to the content of the controller's <state_dir>/token."
        return print_error(problem.message, hint, exit_codes.of_problem(problem))
    where = f"{problem.where}: " if problem.where and problem.where not in problem.message else ""
    return print_error(where + problem.message, problem.hint, exit_codes.of_problem(problem))


def print_note(message: str) -> None:
    print(_safe(message), file=sys.stderr)


def coloured(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _safe(text: str) -> str:
    # Remove control characters, because names and paths in a message could otherwise send commands to the
    # terminal.
    return "\n".join(printable(line, 2_000) for line in text.splitlines())
