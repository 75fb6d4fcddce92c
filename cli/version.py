"""corral version."""

from __future__ import annotations

from cli.commands import application, examples
from cli.output import write
from wire import VERSION
from wire.client import Client, Refused, Unreachable
from wire.text import plain

app = application()


@app.command(epilog=examples("corral version", "corral --version"))
def version() -> int:
    """Show the version of this program, and of the controller if there is one."""
    write(f"corral {VERSION}\n")
    try:
        client = Client(timeout_s=2.0)
        write(f"controller {plain(client.health().version)} at {plain(client.url)}\n")
    except (Refused, Unreachable) as nobody:
        write(f"controller: {plain(str(nobody))}\n")
    return 0
