"""corral config …"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.commands import application, examples
from cli.exits import USAGE
from cli.messages import note, say
from cli.output import write
from wire import places

app = application()


@app.callback()
def config() -> None:
    """Check a configuration file."""


@app.command(
    epilog=examples("corral config check", "corral config check ./scheduler.toml", "corral config check -q")
)
def check(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Otherwise the usual ones.", show_default=False)
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the exit code and complaints.")] = False,
) -> int:
    """Say everything that is wrong with a configuration; print what is in effect if nothing is."""
    from controller.config import ConfigRefused, load, render
    from controller.registry import build_pipeline

    path = places.find_config(str(file or ""))
    try:
        found = load(path)
        build_pipeline(found)
    except ConfigRefused as refused:
        for problem in refused.problems:
            say(str(problem))
        return USAGE
    if not quiet:
        write(render(found))
        note(f"{path or 'no file, all defaults'}: good")
    return 0
