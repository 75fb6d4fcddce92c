"""Asks for confirmation before a change that is hard to undo."""

from __future__ import annotations

import sys

from cli.exit_codes import CommandError
from wire.text import printable


def confirmed(question: str) -> bool:
    """Ask the user this question on the terminal, and return True for the answer yes. Raise CommandError if
    stdin is not a terminal.
    """
    if not sys.stdin.isatty():
        raise CommandError(f"{question} This question needs a terminal", "Add --yes to skip the question.")
    print(f"{printable(question, 500)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")
