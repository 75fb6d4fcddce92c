"""corral controllers: lists the controllers of the cluster."""

from __future__ import annotations

from cli.output.formats import Column, Format, Output, Table
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.output.table_columns import RED, YELLOW
from cli.registry import application, examples
from wire.api.service.controllers import ControllerView
from wire.http.client import Client
from wire.text import duration

app = application()
_COLOURS = {"silent": RED, "standby": YELLOW}


@app.command(
    epilog=examples(
        "corral controllers", "CORRAL_URL=https://head1:7070,https://head2:7070 corral controllers -o json"
    )
)
@list_command
def controllers(output: Output = Format.TABLE) -> int:
    """Show the controllers of the cluster: the leader, which decides and writes, and its standbys.

    A cluster has several controllers only if they use one PostgreSQL database ([store] url). A controller
    without a report for 6 s is shown as silent.
    """
    body = Client().controllers()
    table().show(output, body.controllers, body)
    note = leaderless_note({each.role for each in body.controllers})
    if note:
        print_note(note)
    return 0


def leaderless_note(roles: set[str]) -> str:
    """Return a note about the next take-over if no controller leads; empty if one leads. `roles` has the
    roles of all controllers.
    """
    if "leader" in roles:
        return ""
    if "standby" not in roles:
        return "No controller leads at present, and no standby runs. Start a controller."
    return (
        "No controller leads at present. The lease of the last leader ends within 6 s. "
        "A standby then takes over."
    )


def table() -> Table[ControllerView]:
    return Table(
        [
            Column("ROLE", lambda each: each.role, colour=lambda each: _COLOURS.get(each.role, "")),
            Column("HOST", lambda each: each.host, narrow=8),
            Column("PID", lambda each: str(each.pid), right=True, rank=2),
            Column("URL", lambda each: each.url, narrow=12),
            Column("VERSION", lambda each: each.version, rank=2),
            Column("JOURNAL", lambda each: str(each.seq), right=True, rank=1),
            Column("SEEN", lambda each: f"{duration(each.seen_s)} ago", right=True, rank=1),
        ],
        lambda each: f"{each.host}/{each.pid}",
        kind=ControllerView,
    )
