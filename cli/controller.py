"""corral controller."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.commands import application, examples
from wire import places

app = application()


@app.command(epilog=examples("corral controller", "corral controller --config scheduler.toml"))
def controller(
    config: Annotated[
        str,
        typer.Option("--config", metavar="FILE", help="The scheduler.toml to use; otherwise the usual ones."),
    ] = "",
) -> int:
    """Run the controller in the foreground; SIGTERM stops it, and the jobs go on.

    Without --config: $CORRAL_CONFIG, ./scheduler.toml, ~/.config/corral/scheduler.toml,
    /etc/corral/scheduler.toml.
    """
    from controller.__main__ import main

    found = places.find_config(config)
    return main(str(found) if found else None)
