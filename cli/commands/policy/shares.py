"""corral shares: shows the fair-share tree, and changes weights and limits."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from cli.exit_codes import CommandError
from cli.output import what_if_table
from cli.output.formats import Column, Format, Output, Table
from cli.output.stderr import print_note
from cli.output.table_columns import FAINT, RED
from cli.output.what_if_table import DryRun
from cli.registry import application, examples
from wire.api.forecasts import WhatIf
from wire.api.tenants import ShareList, ShareView, ShareWeight
from wire.cluster.quota import UNLIMITED
from wire.http.client import Client
from wire.text import duration, printable

app = application(invoke_without_command=True)
_NUMBER = re.compile(r"\d{1,12}(\.\d{1,6})?", re.ASCII)
Share = Annotated[str, typer.Argument(metavar="SHARE", help="Organisation, project, or project/user.")]
Weight = Annotated[
    float | None,
    typer.Argument(
        metavar="[WEIGHT]", help="Weight against the other shares of the same parent. Default: 1."
    ),
]
Soft = Annotated[
    str | None,
    typer.Option(
        metavar="UNITS",
        help="Soft limit of decayed usage; jobs over it start after all others. none: no limit.",
    ),
]
Hard = Annotated[
    str | None,
    typer.Option(
        metavar="UNITS", help="Hard limit of decayed usage; no job starts above it. none: no limit."
    ),
]


@app.callback(epilog=examples("corral shares", "corral shares -o json", "corral shares set vision 3"))
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Show fair shares and past usage; change weights and limits. Without a command: list them."""
    return listing(output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral shares list", "corral shares list -o csv"))
def listing(output: Output = Format.TABLE) -> int:
    """Show the tree of organisations, projects and users with the usage of each."""
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
def weigh(
    share: Share,
    weight: Weight = None,
    soft: Soft = None,
    hard: Hard = None,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Change a weight or limits. --dry-run shows which jobs would start sooner or later."""
    if dry_run:
        asked = WhatIf(shares=(change_of(share, weight, soft, hard),))
        return what_if_table.show(Client().what_if(asked), output)
    return _show(Client().set_share(change_of(share, weight, soft, hard)), output)


def change_of(share: str, weight: float | None, soft: str | None, hard: str | None) -> ShareWeight:
    """The change of a share that these options describe. Raises CommandError."""
    if weight is None and soft is None and hard is None:
        raise CommandError("there is nothing to change", "Name a weight, --soft or --hard.")
    return ShareWeight(share, weight, _units("--soft", soft), _units("--hard", hard))


def _units(flag: str, text: str | None) -> float | None:
    if text is None or text.lower() == "none":
        return None if text is None else UNLIMITED
    if not _NUMBER.fullmatch(text):
        raise CommandError(
            f"{flag}: {text!r} is not an amount", "Write units as in 500 or 0.5, or none for no limit."
        )
    return float(text)


def _show(body: ShareList, output: Format) -> int:
    table(body.at).show(output, body.shares, body)
    if not body.shares and output in (Format.TABLE, Format.WIDE):
        print_note("No job has been submitted yet.")
    return 0


def _state(each: ShareView, now: float) -> str:
    """Which limit the share exceeds; empty if none."""
    if not each.stopped:
        return "past its soft limit" if each.beyond else ""
    whose = "" if each.stopped == each.share else f" {printable(each.stopped)}"
    until = f", for {duration(each.until - now)} at most" if each.until is not None else ""
    return f"stopped by the hard limit{' of' if whose else ''}{whose}{until}"


def _limits(each: ShareView) -> str:
    """The soft and the hard limit, as soft/hard; empty without limits."""
    told = ["-" if limit is None else f"{limit:g}" for limit in (each.soft, each.hard)]
    return "" if told == ["-", "-"] else "/".join(told)


def table(now: float) -> Table[ShareView]:
    """The share tree, indented by level."""
    return Table(
        [
            Column("SHARE", lambda each: "  " * (len(each.path) - 1) + each.path[-1], keep=1, least=8),
            Column("WEIGHT", lambda each: f"{each.weight:g}", right=True),
            Column("PART", lambda each: f"{each.part:.1%}", right=True),
            Column("USED", lambda each: f"{each.used:.2f}", right=True),
            Column("LIMITS", _limits, right=True, keep=3),
            Column("NOW/H", lambda each: f"{each.held:g}", right=True),
            Column("FACTOR", lambda each: f"{each.factor:.4f}", right=True),
            Column(
                "",
                lambda each: _state(each, now),
                colour=lambda each: RED if each.beyond or each.stopped else FAINT,
                keep=2,
            ),
        ],
        lambda each: each.share,
        kind=ShareView,
    )
