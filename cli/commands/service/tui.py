"""corral tui: opens the terminal UI."""

from __future__ import annotations

from typing import Annotated

from cli.exit_codes import CommandError
from cli.flags import option, switch
from cli.registry import application, examples
from wire.http import discovery

app = application()


@app.command(
    epilog=examples(
        "corral tui",
        "corral tui --read-only",
        "corral tui --preset mine",
        "corral --url http://127.0.0.1:7070 tui",
    )
)
def tui(
    read_only: Annotated[bool, switch("--read-only", "Only show the cluster; do not allow changes.")] = False,
    preset: Annotated[
        str, option("--preset", "NAME", "Show this saved view, filter and columns first.")
    ] = "",
) -> int:
    """Open the terminal UI."""
    import os
    import sys

    # Require no terminal if TEXTUAL_DRIVER is set. corral web sets this variable, and stdin and stdout are
    # then pipes to its web server.
    if "TEXTUAL_DRIVER" not in os.environ and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError(
            "the terminal UI needs a terminal", "Without a terminal use: corral queue, corral nodes"
        )
    from cli.spec.spec_to_flags import command_of
    from cli.spec.submitter_environment import inherited
    from tui.app_interface import CliFunctions
    from tui.launch import run

    return run(discovery.find_url(), CliFunctions(command_of, inherited), read_only=read_only, preset=preset)
