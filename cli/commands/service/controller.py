"""corral controller: runs the controller."""

from __future__ import annotations

from typing import Annotated

from cli.flags import option, switch
from cli.registry import application, examples
from wire.http import addresses

app = application()


@app.command(epilog=examples("corral controller", "corral controller --config scheduler.toml"))
def controller(
    config: Annotated[
        str,
        option(
            "--config",
            "FILE",
            "Configuration file to use. Default: the first file that exists of $CORRAL_CONFIG, "
            "./scheduler.toml, ~/.config/corral/scheduler.toml and /etc/corral/scheduler.toml.",
        ),
    ] = "",
    new_cluster: Annotated[
        bool,
        switch(
            "--new-cluster",
            "Start with an empty store, and end the jobs of an earlier cluster that still run on this host.",
        ),
    ] = False,
) -> int:
    """Run the controller in the foreground. SIGTERM stops the controller; jobs keep running.

    SIGHUP makes the controller read its configuration again. The controller stops if its terminal is closed.
    """
    from controller.__main__ import main

    found = addresses.find_config(config)
    return main(str(found) if found else None, new_cluster=new_cluster)
