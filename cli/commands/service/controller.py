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
            "The scheduler.toml to use. Default: the first existing file of the list above.",
        ),
    ] = "",
    new_cluster: Annotated[
        bool,
        switch(
            "--new-cluster",
            "Start with an empty store although jobs of another cluster run on this host. Those jobs "
            "are ended.",
        ),
    ] = False,
) -> int:
    """Run the controller in the foreground. SIGTERM stops it; jobs keep running.

    SIGHUP makes the controller read its configuration again. The controller stops if its terminal is closed.

    Without --config, the first of these files that exists is used: $CORRAL_CONFIG, ./scheduler.toml,
    ~/.config/corral/scheduler.toml, /etc/corral/scheduler.toml.
    """
    from controller.__main__ import main

    found = addresses.find_config(config)
    return main(str(found) if found else None, new_cluster=new_cluster)
