"""corral version: shows the versions of this program and of the controller."""

from __future__ import annotations

from dataclasses import dataclass

from cli.output.formats import Format, Output, show_one
from cli.output.stderr import print_note
from cli.registry import application, examples
from wire import API_VERSION, VERSION
from wire.http.client import Client, Refused, Unreachable
from wire.text import printable

app = application()


@dataclass(frozen=True)
class Versions:
    """The versions of this program (`client`), of the controller, and of the fields in -o json, yaml and csv
    (`api_version`). `controller` is empty if no controller answers.
    """

    client: str
    controller: str = ""
    url: str = ""
    problem: str = ""
    api_version: str = API_VERSION


@app.command(epilog=examples("corral version", "corral version -o json", "corral --version"))
def version(output: Output = Format.TABLE) -> int:
    """Show the versions of this program and of the controller, and warn if the versions differ."""
    found = _ask()
    controller = (
        f"{printable(found.controller)} at {printable(found.url)}" if found.controller else found.problem
    )
    facts = [("corral", found.client), ("controller", controller)]
    show_one(output, found, facts, found.client)
    if found.controller and found.controller != VERSION:
        print_note(
            f"This program is {VERSION} and the controller {found.controller}: some commands may not work. "
            "Install the controller's version here, or upgrade the controller."
        )
    return 0


def _ask() -> Versions:
    try:
        with Client(timeout_s=2.0) as client:
            return Versions(VERSION, client.health().version, client.url)
    except (Refused, Unreachable) as failure:
        return Versions(VERSION, problem=str(failure))
