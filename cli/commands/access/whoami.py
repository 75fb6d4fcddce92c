"""corral whoami: shows the user, the role and the token limits of the caller."""

from __future__ import annotations

from collections.abc import Iterator

from cli.output.formats import Format, Output, show_one
from cli.registry import application, examples
from wire.api.service.access import ABILITIES, WhoAmI
from wire.http.client import Client
from wire.text import printable

app = application()


@app.command(epilog=examples("corral whoami", "corral whoami -o json"))
def whoami(output: Output = Format.TABLE) -> int:
    """Show your user, your role and the limits of your token."""
    body = Client().whoami()
    show_one(output, body, _facts(body), body.user)
    return 0


def _facts(body: WhoAmI) -> Iterator[tuple[str, str]]:
    yield "user", printable(body.user)
    if body.robot:
        yield "robot", printable(body.robot)
    yield "role", f"{body.role}, read-only" if body.read_only else body.role
    if body.token:
        yield "token", body.token
    if set(body.can) != set(ABILITIES):
        yield "can", ", ".join(body.can)
    if body.projects is not None:
        yield "only projects", printable(", ".join(body.projects))
    if body.operated:
        yield "operator of", printable(", ".join(body.operated))
