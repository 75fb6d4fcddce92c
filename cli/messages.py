"""Words to the person at the terminal: on stderr, so that data stays alone on stdout."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from cli import exits
from wire.text import plain

if TYPE_CHECKING:  # see cli.exits
    from wire.api.problem import Problem


def say(message: str, hint: str = "", code: int = 0) -> int:
    """One complaint with what to do about it; gives the exit code back."""
    lines = [f"corral: {_safe(message)}"] + [f"  {_safe(line)}" for line in hint.splitlines()]
    print("\n".join(lines), file=sys.stderr)
    return code


def refusal(problem: Problem) -> int:
    """What the controller refuses, as it says it; gives the exit code."""
    if problem.where == "Authorization":
        hint = "Set CORRAL_TOKEN to what stands in the controller's <state_dir>/token."
        return say(problem.message, hint, exits.of_problem(problem))
    where = f"{problem.where}: " if problem.where and problem.where not in problem.message else ""
    return say(where + problem.message, problem.hint, exits.of_problem(problem))


def note(message: str) -> None:
    """Something worth knowing that is not what was asked for."""
    print(_safe(message), file=sys.stderr)


def coloured(stream: TextIO) -> bool:
    """Whether colours are wanted there."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _safe(text: str) -> str:
    # Messages quote names, paths and answers: none of it may move the cursor.
    return "\n".join(plain(line, 2_000) for line in text.splitlines())
