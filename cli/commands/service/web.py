"""corral web: opens the terminal UI in web browsers of this machine."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from typing import Annotated

from cli.exit_codes import FAILED, CommandError
from cli.flags import option, switch
from cli.output.formats import write
from cli.output.stderr import print_note
from cli.registry import application, examples
from wire.http import discovery
from wire.http.client import Client
from wire.program_parts import COMMAND_LINE, is_frozen

PORT = 7071

app = application()


@app.command(
    epilog=examples(
        "corral web",
        "corral web --write --port 0",
        "ssh -t -L 7071:127.0.0.1:7071 head corral web    the terminal UI of another machine",
    )
)
def web(
    port: Annotated[
        int, option("--port", "PORT", f"TCP port. Default: {PORT}; 0 takes any free port.", min=0, max=65_535)
    ] = PORT,
    host: Annotated[
        str,
        option("--host", "ADDRESS", "Loopback address to listen on: 127.0.0.1 (default), localhost or ::1."),
    ] = "127.0.0.1",
    writable: Annotated[
        bool,
        switch("--write", "Allow changes of the cluster. Without this flag the browser can only show it."),
    ] = False,
) -> int:
    """Open the terminal UI in web browsers. The command shows a link, and runs until Ctrl-C.

    A link signs one browser in and can be used once; after that the command shows the next link. Each tab has
    a terminal UI of its own, which ends with the tab. The server listens on this machine only: use ssh -L to
    reach it from another machine.
    """
    check_installed()
    from tui.web.server import LOOPBACK, WebServer

    if host not in LOOPBACK:
        raise CommandError(
            f"--host: {host!r} is no loopback address, and corral web listens on this machine only",
            f"Use {', '.join(LOOPBACK)}.\n"
            f"From another machine: ssh -t -L {port}:127.0.0.1:{port} HOST corral web",
        )
    url = discovery.find_url()
    with Client(url, timeout_s=5.0) as client:
        client.health()
    command = COMMAND_LINE.command("tui", *([] if writable else ["--read-only"]))
    server = WebServer(command, {**os.environ, "CORRAL_URL": url}, show_link)
    try:
        asyncio.run(server.serve(host, port))
    except OSError as error:
        raise CommandError(
            f"cannot listen on {host} port {port}: {error.strerror}",
            "Stop the program that uses the port, or use another one: corral web --port 0",
            FAILED,
        ) from None
    return 0


def check_installed() -> None:
    """Raise CommandError if the package textual-serve, which has the terminal for browsers, is missing."""
    if importlib.util.find_spec("textual_serve") is None:
        raise CommandError(
            "corral web needs the package textual-serve",
            "The one-file program does not contain it. Install Corral with: pipx install 'corral[web]'"
            if is_frozen()
            else "Install it: pip install 'corral[web]'",
        )


def show_link(link: str, first: bool) -> None:
    """Print a link on stdout, and on stderr what it is for."""
    print_note(
        "Open this link in a browser. It can be used once. Ctrl-C ends the terminal UI in all browsers."
        if first
        else "A browser has signed in. Link for another browser:"
    )
    write(f"{link}\n")
    sys.stdout.flush()
