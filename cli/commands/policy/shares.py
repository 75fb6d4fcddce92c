"""corral shares: shows the fair-share tree, and changes weights and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from cli.exit_codes import CommandError
from cli.flags import FlagGroup, argument, option, with_flag_groups
from cli.output import what_if_table
from cli.output.formats import Column, Format, Output, Table
from cli.output.hours_line import print_hours
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.output.table_columns import FAINT, RED
from cli.output.what_if_table import DryRun
from cli.registry import application, examples
from wire import amounts
from wire.api.forecasts import WhatIf
from wire.api.policy.shares import ShareList, ShareView, ShareWeight
from wire.http.client import Client
from wire.text import duration, printable

app = application(invoke_without_command=True)


@dataclass(frozen=True)
class ShareFlags(FlagGroup):
    share: Annotated[
        str,
        argument(
            "TENANT",
            "An organisation (ORGANISATION), a project (PROJECT) or a user in a project (PROJECT/USER).",
        ),
    ]
    weight: Annotated[
        float | None,
        argument(
            "[WEIGHT]",
            "Weight of the tenant, relative to the other tenants below the same parent in the fair-share "
            "tree. Default: the present weight; 1 for a new tenant.",
        ),
    ] = None
    soft: Annotated[
        float | None,
        option(
            "--soft",
            "UNITS",
            "Soft limit for the tenant's usage, in billing units. Old usage counts less than recent "
            "usage. Above this limit, the tenant's jobs start after all other jobs. none removes the "
            "limit.",
            parser=amounts.limit,
        ),
    ] = None
    hard: Annotated[
        float | None,
        option(
            "--hard",
            "UNITS",
            "Hard limit for the tenant's usage, in billing units. Old usage counts less than recent "
            "usage. Above this limit, the tenant's jobs do not start. none removes the limit.",
            parser=amounts.limit,
        ),
    ] = None

    def change(self) -> ShareWeight:
        """Return the change that the flags describe. Raise CommandError if the flags change nothing."""
        if self.weight is None and self.soft is None and self.hard is None:
            raise CommandError("there is nothing to change", "Name a weight, --soft or --hard.")
        return ShareWeight(self.share, self.weight, self.soft, self.hard)


@app.callback(epilog=examples("corral shares", "corral shares -o json", "corral shares set vision 3"))
@list_command
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Show fair shares and past usage; change weights and limits. Without a command: list shares."""
    return listing(output=output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral shares list", "corral shares list -o csv"))
@list_command
def listing(output: Output = Format.TABLE) -> int:
    """Show the fair-share tree: organisations, projects and users, with the usage of each."""
    return _show(Client().shares(), output)


@app.command(
    "set",
    epilog=examples(
        "corral shares set vision 3",
        "corral shares set vision/ada 0.5 --soft 200",
        "corral shares set vision --hard 1000",
        "corral shares set vision --hard none",
    ),
)
@with_flag_groups
def weigh(flags: ShareFlags, dry_run: DryRun = False, output: Output = Format.TABLE) -> int:
    """Change the weight or the usage limits of a tenant. With --dry-run, only show which jobs would start
    earlier and which jobs would start later.
    """
    if dry_run:
        return what_if_table.show(Client().what_if(WhatIf(shares=(flags.change(),))), output)
    return _show(Client().set_share(flags.change()), output)


def _show(body: ShareList, output: Format) -> int:
    table(body.at).show(output, body.shares, body)
    print_hours(body.hours, output, "[fair_share]")
    if not body.shares and output in (Format.TABLE, Format.WIDE):
        print_note("No job has been submitted yet.")
    return 0


def _state(share: ShareView, now: float) -> str:
    """Return a text about the usage limit that is exceeded: the tenant's own limit, or the hard limit of a
    tenant above it in the tree. Return an empty text if no limit is exceeded.
    """
    if not share.stopped:
        return "above its soft limit" if share.beyond else ""
    parent = "" if share.stopped == share.share else f" {printable(share.stopped)}"
    until = f", for {duration(share.until - now)} at most" if share.until is not None else ""
    return f"stopped by the hard limit{' of' if parent else ''}{parent}{until}"


def _limits(share: ShareView) -> str:
    limits = ["-" if limit is None else f"{limit:g}" for limit in (share.soft, share.hard)]
    return "" if limits == ["-", "-"] else "/".join(limits)


def table(now: float) -> Table[ShareView]:
    """Return the table of the fair-share tree. The names are indented by their level in the tree."""
    return Table(
        [
            Column("SHARE", lambda each: "  " * (len(each.path) - 1) + each.path[-1], rank=1, narrow=8),
            Column("WEIGHT", lambda each: f"{each.weight:g}", right=True),
            Column("PART", lambda each: f"{each.part:.1%}", right=True),
            Column("USED", lambda each: f"{each.used:.2f}", right=True),
            Column("LIMITS", _limits, right=True, rank=3),
            Column("NOW/H", lambda each: f"{each.held:g}", right=True),
            Column("FACTOR", lambda each: f"{each.factor:.4f}", right=True),
            Column(
                "",
                lambda each: _state(each, now),
                colour=lambda each: RED if each.beyond or each.stopped else FAINT,
                rank=2,
            ),
        ],
        lambda each: each.share,
        kind=ShareView,
    )
