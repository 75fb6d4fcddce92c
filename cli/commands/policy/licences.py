"""corral licences: lists licences and the jobs with these licences."""

from __future__ import annotations

from cli.output.formats import Column, Format, Output, Table
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.output.table_columns import RED
from cli.registry import application, examples
from wire.api.policy.licences import LicenceView
from wire.http.client import Client

app = application()


@app.command(epilog=examples("corral licences", "corral licences -o json"))
@list_command
def licences(output: Output = Format.TABLE) -> int:
    """Show the number of each licence, the jobs that hold it, and the number of jobs that wait for it.

    Licences are declared in the table [licences] of scheduler.toml. A job requests licences with --licence
    NAME:N.
    """
    body = Client().licences()
    table().show(output, body.licences, body)
    if not body.licences and output in (Format.TABLE, Format.WIDE):
        print_note("This cluster has no licences. Declare them in [licences] of scheduler.toml.")
    return 0


def table() -> Table[LicenceView]:
    return Table(
        [
            Column("LICENCE", lambda each: each.name, narrow=8),
            Column("TOTAL", lambda each: str(each.total), right=True),
            Column("USED", lambda each: str(each.used), right=True),
            Column(
                "FREE",
                lambda each: str(max(0, each.total - each.used)),
                right=True,
                colour=lambda each: RED if each.used >= each.total else "",
            ),
            Column("WAITING", lambda each: str(each.waiting), right=True, rank=1),
            Column("HELD BY JOBS", lambda each: ",".join(each.jobs), rank=2, narrow=6),
        ],
        lambda each: each.name,
        kind=LicenceView,
    )
