"""corral tui."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.commands import application, examples
from cli.exits import Mistake
from wire import places

app = application()


@app.command(
    epilog=examples("corral tui", "corral tui --read-only", "corral --url http://127.0.0.1:7070 tui")
)
def tui(
    read_only: Annotated[bool, typer.Option("--read-only", help="Look, change nothing.")] = False,
) -> int:
    """Open the terminal UI."""
    import sys

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Mistake("the terminal UI needs a terminal", "Without one, use: corral queue, corral nodes")
    from tui.app import run

    return run(places.find_url(), read_only)
