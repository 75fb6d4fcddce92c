"""corral reserve: shows, makes and cancels reservations of nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from cli.exit_codes import CommandError
from cli.output import what_if_table
from cli.output.formats import Column, Format, Output, Table, write_facts, write_json
from cli.output.stderr import print_note
from cli.output.table_columns import GREEN, clock
from cli.output.what_if_table import DryRun
from cli.registry import application, examples
from cli.spec import units
from cli.spec.time_options import moment
from wire.api.forecasts import WhatIf
from wire.api.tenants import ReservationView
from wire.cluster.reservation import ReservationSpec, reservation_problems
from wire.http.client import Client
from wire.text import counted, duration, printable

T = TypeVar("T")

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Nodes = Annotated[
    list[str], typer.Option("--node", metavar="NODE", help="Reserve this node. May be repeated.")
]
Count = Annotated[
    int | None, typer.Option("--count", metavar="N", min=1, help="Reserve this number of nodes.")
]
Gpus = Annotated[
    int | None,
    typer.Option(
        "--gpus", metavar="N", min=1, help="Reserve whole nodes that have this number of GPUs together."
    ),
]
Select = Annotated[
    list[str],
    typer.Option(
        "--select", metavar="KEY=VALUE", help="Reserve only nodes with this label. May be repeated."
    ),
]
Users = Annotated[
    list[str], typer.Option("--user", metavar="NAME", help="Reserve for this user. May be repeated.")
]
Projects = Annotated[
    list[str], typer.Option("--project", metavar="NAME", help="Reserve for this project. May be repeated.")
]
Start = Annotated[
    str,
    typer.Option("--start", metavar="WHEN", help="Start: now, 18:30, 2030-05-01T08:00 or +2h. Default: now."),
]
For = Annotated[
    str, typer.Option("--for", metavar="TIME", help="Length, such as 4h or 2d.", show_default=False)
]
Every = Annotated[
    str, typer.Option("--every", metavar="TIME", help="Repeat at this interval, such as 1d or 7d.")
]
WhyText = Annotated[str, typer.Option("--why", metavar="TEXT", help="Reason, shown to all users.")]
Anyway = Annotated[
    bool, typer.Option("--anyway", help="Reserve even if running jobs may still be there at the start.")
]

app = application(invoke_without_command=True)


@app.callback(
    epilog=examples(
        "corral reserve",
        "corral reserve create fans --node gpu01 --start 18:00 --for 2h --why 'new fans'",
        "corral reserve create course --gpus 16 --project ai --start 2030-05-01T08:00 --for 4h --every 7d",
        "corral reserve cancel fans",
    )
)
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Reserve nodes for users, projects or maintenance. Without a command: list reservations."""
    return listing(output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral reserve list", "corral reserve list -o json"))
def listing(output: Output = Format.TABLE) -> int:
    """List current and future reservations."""
    body = Client().reservations()
    reservation_table().show(output, body.reservations, body)
    return 0


@app.command(epilog=examples("corral reserve show fans"))
def show(name: Name, output: Output = Format.TABLE) -> int:
    """Show one reservation."""
    return _told(Client().reservation(name), output)


@app.command(
    epilog=examples(
        "corral reserve create fans --node gpu01 --node gpu02 --start 18:00 --for 2h",
        "corral reserve create course --count 2 --select pool=a --user ada --user bob --for 4h",
        "corral reserve create updates --gpus 64 --start 03:00 --for 1h --every 7d",
    )
)
def create(
    name: Name,
    length: For = "",
    start: Start = "now",
    nodes: Nodes = [],  # noqa: B006 - never changed
    count: Count = None,
    gpus: Gpus = None,
    select: Select = [],  # noqa: B006
    users: Users = [],  # noqa: B006
    projects: Projects = [],  # noqa: B006
    every: Every = "",
    why: WhyText = "",
    anyway: Anyway = False,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Reserve nodes for users or projects, or for maintenance if none is named: then no job runs there.

    Jobs that could still run at its start, such as jobs without a time limit, start on other nodes.
    """
    spec = asked_of(name, length, start, nodes, count, gpus, select, users, projects, every, why)
    if dry_run:
        return what_if_table.show(Client().what_if(WhatIf(reserve=(spec,))), output)
    return _told(Client().reserve(spec, anyway=anyway), output)


def asked_of(
    name: str,
    length: str,
    start: str,
    nodes: list[str],
    count: int | None,
    gpus: int | None,
    select: list[str],
    users: list[str],
    projects: list[str],
    every: str,
    why: str,
) -> ReservationSpec:
    """The reservation that these options describe. Raises CommandError."""
    if not length:
        raise CommandError(
            "--for is missing", "Add the length, such as --for 2h. See 'corral reserve create --help'."
        )
    spec = ReservationSpec(
        name,
        time.time() if start == "now" else _understood("--start", moment, start),
        _understood("--for", units.seconds, length),
        tuple(nodes),
        count,
        gpus,
        dict(_understood("--select", units.pair, text) for text in select),
        tuple(users),
        tuple(projects),
        _understood("--every", units.seconds, every) if every else None,
        why,
    )
    wrong = reservation_problems(spec)
    if wrong:
        where, sentence = wrong[0]
        raise CommandError(
            f"{_FLAGS.get(where, '--' + where)}: {sentence}", "'corral reserve create --help' says how."
        )
    return spec


@app.command(epilog=examples("corral reserve cancel fans"))
def cancel(name: Name, output: Output = Format.TABLE) -> int:
    """Cancel a reservation, so that all jobs can use its nodes again."""
    view = Client().cancel_reservation(name)
    if output is Format.TABLE:
        print_note(
            f"reservation {printable(view.spec.name)}: cancelled; it held {counted(len(view.nodes), 'node')}"
        )
    else:
        reservation_table().show(output, [view], view)
    return 0


_FLAGS = {
    "nodes": "--node",
    "starts_at": "--start",
    "duration_s": "--for",
    "every_s": "--every",
    "name": "NAME",
}


def _understood(flag: str, read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except ValueError as error:
        raise CommandError(
            f"{flag}: {error}", "'corral reserve create --help' shows how to write it."
        ) from None


def _told(view: ReservationView, output: Format) -> int:
    if output is Format.JSON:
        write_json(view)
    elif output is Format.TABLE:
        write_facts(
            [
                ("reservation", view.spec.name),
                ("state", "on" if view.on else "to come"),
                ("for", _for(view)),
                ("begins", clock(view.starts_at)),
                ("ends", clock(view.ends_at)),
                ("again", f"every {duration(view.spec.every_s)}" if view.spec.every_s else ""),
                ("nodes", ", ".join(view.nodes)),
                ("jobs there", ", ".join(map(str, view.jobs))),
                ("why", view.spec.why),
                ("made by", view.by),
            ]
        )
    else:
        reservation_table().show(output, [view])
    return 0


def _for(view: ReservationView) -> str:
    names = [*view.spec.users, *(f"project {name}" for name in view.spec.projects)]
    return ", ".join(names) or "maintenance"


def reservation_table() -> Table[ReservationView]:
    """Reservations: times, nodes, users and projects."""
    return Table(
        [
            Column("RESERVATION", lambda view: view.spec.name, least=8),
            Column(
                "STATE",
                lambda view: "on" if view.on else "to come",
                colour=lambda view: GREEN if view.on else "",
            ),
            Column("BEGINS", lambda view: clock(view.starts_at), keep=1),
            Column("ENDS", lambda view: clock(view.ends_at), keep=2),
            Column("EVERY", lambda view: duration(view.spec.every_s) if view.spec.every_s else "-", keep=5),
            Column("FOR", _for, keep=3, least=8),
            Column("NODES", lambda view: ",".join(view.nodes), keep=4, least=8),
            Column("WHY", lambda view: view.spec.why, keep=6, least=8),
        ],
        lambda view: view.spec.name,
        kind=ReservationView,
    )
