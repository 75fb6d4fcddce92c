"""corral shares …: who may have how much of the cluster, and who had it."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from cli.commands import application, examples
from cli.exits import Mistake
from cli.messages import note
from cli.output import Column, Format, Output, Table
from cli.tables import FAINT, RED
from wire.api.tenants import ShareList, ShareView, ShareWeight
from wire.client import Client
from wire.quota import UNLIMITED
from wire.text import duration, plain

app = application(invoke_without_command=True)
_NUMBER = re.compile(r"\d{1,12}(\.\d{1,6})?", re.ASCII)
Share = Annotated[str, typer.Argument(metavar="SHARE", help="Organisation, project, or project/user.")]
Weight = Annotated[
    float | None, typer.Argument(metavar="[WEIGHT]", help="Against those beside it; 1 is usual.")
]
Soft = Annotated[
    str | None,
    typer.Option(metavar="UNITS", help="Beyond it jobs come after everybody else's; none: no limit."),
]
Hard = Annotated[
    str | None,
    typer.Option(metavar="UNITS", help="From it on nothing starts until enough has faded; none: no limit."),
]


@app.callback(epilog=examples("corral shares", "corral shares -o json", "corral shares set vision 3"))
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Show who may have how much and who had it; change weights. Without a command: show them."""
    return listing(output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral shares list", "corral shares list -o csv"))
def listing(output: Output = Format.TABLE) -> int:
    """Show the tree of organisations, projects and users with what each has used."""
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
    output: Output = Format.TABLE,
) -> int:
    """Change a weight or limits from the next decision on. Try it first: corral what-if share."""
    return _show(Client().set_share(change_of(share, weight, soft, hard)), output)


def change_of(share: str, weight: float | None, soft: str | None, hard: str | None) -> ShareWeight:
    """What is to be changed of a share."""
    if weight is None and soft is None and hard is None:
        raise Mistake("says nothing to change", "Name a weight, --soft or --hard.")
    return ShareWeight(share, weight, _units("--soft", soft), _units("--hard", hard))


def _units(flag: str, text: str | None) -> float | None:
    if text is None or text.lower() == "none":
        return None if text is None else UNLIMITED
    if not _NUMBER.fullmatch(text):
        raise Mistake(
            f"{flag}: {text!r} is not an amount", "Write units as in 500 or 0.5, or none for no limit."
        )
    return float(text)


def _show(body: ShareList, output: Format) -> int:
    table(body.at).show(output, body.shares, body)
    if not body.shares and output in (Format.TABLE, Format.WIDE):
        note("Nobody has submitted anything yet.")
    return 0


def _state(each: ShareView, now: float) -> str:
    """Where it is beyond what it may use."""
    if not each.stopped:
        return "past its soft limit" if each.beyond else ""
    whose = "" if each.stopped == each.share else f" {plain(each.stopped)}"
    until = f", for {duration(each.until - now)} at most" if each.until is not None else ""
    return f"stopped by the hard limit{' of' if whose else ''}{whose}{until}"


def _limits(each: ShareView) -> str:
    """soft/hard, where there is one."""
    told = ["-" if limit is None else f"{limit:g}" for limit in (each.soft, each.hard)]
    return "" if told == ["-", "-"] else "/".join(told)


def table(now: float) -> Table[ShareView]:
    """The tree, indented."""
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
    )
