"""corral shares …: who may have how much of the cluster, and who had it."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.commands import application, examples
from cli.messages import note
from cli.output import Column, Format, Output, Table
from cli.tables import FAINT, RED
from wire.api import ShareList, ShareView
from wire.client import Client

app = application(invoke_without_command=True)


@app.callback(epilog=examples("corral shares", "corral shares -o json", "corral shares set vision 3"))
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Show who may have how much and who had it; change weights. Without a command: show them."""
    return listing(output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral shares list", "corral shares list -o csv"))
def listing(output: Output = Format.TABLE) -> int:
    """Show the tree of organisations, projects and users with what each has used."""
    return _show(Client().shares(), output)


@app.command("set", epilog=examples("corral shares set vision 3", "corral shares set vision/ada 0.5"))
def weigh(
    share: Annotated[str, typer.Argument(metavar="SHARE", help="Organisation, project, or project/user.")],
    weight: Annotated[float, typer.Argument(metavar="WEIGHT", help="Against those beside it; 1 is usual.")],
    output: Output = Format.TABLE,
) -> int:
    """Change a weight from the next decision on. Try it first: corral what-if share."""
    return _show(Client().set_share(share, weight), output)


def _show(body: ShareList, output: Format) -> int:
    table().show(output, body.shares, body)
    if not body.shares and output in (Format.TABLE, Format.WIDE):
        note("Nobody has submitted anything yet.")
    return 0


def table() -> Table[ShareView]:
    """The tree, indented."""
    return Table(
        [
            Column("SHARE", lambda each: "  " * (len(each.path) - 1) + each.path[-1], keep=1, least=8),
            Column("WEIGHT", lambda each: f"{each.weight:g}", right=True),
            Column("PART", lambda each: f"{each.part:.1%}", right=True),
            Column("USED", lambda each: f"{each.used:.2f}", right=True),
            Column("NOW/H", lambda each: f"{each.held:g}", right=True),
            Column("FACTOR", lambda each: f"{each.factor:.4f}", right=True),
            Column(
                "",
                lambda each: "past its soft limit" if each.beyond else "",
                colour=lambda each: RED if each.beyond else FAINT,
                keep=2,
            ),
        ],
        lambda each: each.share,
    )
