"""corral reserve: shows, makes and cancels reservations of nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from cli import completion
from cli.exit_codes import CommandError
from cli.flags import FlagGroup, argument, option, switch, with_flag_groups
from cli.output import what_if_table
from cli.output.formats import Column, Format, Output, Table, write_data, write_facts
from cli.output.listing import list_command
from cli.output.table_columns import GREEN, clock
from cli.output.what_if_table import DryRun
from cli.registry import application, examples
from wire import amounts
from wire.api.forecasts import WhatIf
from wire.api.policy.reservations import ReservationView
from wire.cluster.reservation import ReservationSpec, reservation_problems
from wire.http.client import Client
from wire.text import counted, duration, printable

Name = Annotated[str, argument("NAME", "Name of the reservation.")]
Known = Annotated[str, argument("NAME", "Name of the reservation.", autocompletion=completion.reservations)]


@dataclass(frozen=True)
class ReservationFlags(FlagGroup):
    name: Name
    length: Annotated[
        float | None,
        option("--for", "TIME", "Length of the reservation (e.g. 4h or 2d).", parser=amounts.seconds),
    ] = None
    start: Annotated[
        float | None,
        option(
            "--start",
            "WHEN",
            "Start of the reservation (e.g. now, 18:30, 2030-05-01T08:00 or +2h). Default: now.",
            parser=amounts.moment,
        ),
    ] = None
    nodes: Annotated[list[str], option("--node", "NODE", "Reserve this node. May be repeated.")] = field(
        default_factory=list
    )
    count: Annotated[
        int | None,
        option("--count", "N", "Reserve this number of nodes, which the controller chooses.", min=1),
    ] = None
    gpus: Annotated[
        int | None,
        option(
            "--gpus",
            "N",
            "Reserve enough whole nodes to have at least N GPUs in total. The controller chooses the nodes.",
            min=1,
        ),
    ] = None
    select: Annotated[
        list[Any],
        option(
            "--select",
            "KEY=VALUE",
            "With --count or --gpus: choose only nodes with this label. May be repeated.",
            parser=amounts.pair,
        ),
    ] = field(default_factory=list)
    users: Annotated[
        list[str],
        option("--user", "NAME", "Let jobs of this user run on the reserved nodes. May be repeated."),
    ] = field(default_factory=list)
    projects: Annotated[
        list[str],
        option(
            "--project",
            "NAME",
            "Let jobs of this project run on the reserved nodes. May be repeated.",
            autocompletion=completion.projects,
        ),
    ] = field(default_factory=list)
    every: Annotated[
        float | None,
        option(
            "--every",
            "TIME",
            "Repeat the reservation every TIME (e.g. 1d or 7d).",
            parser=amounts.seconds,
        ),
    ] = None
    why: Annotated[str, option("--why", "TEXT", "Reason for the reservation, shown to all users.")] = ""

    def spec(self) -> ReservationSpec:
        """Return the reservation that these flags describe. Raise CommandError if --for is missing or the
        flags contradict each other.
        """
        if self.length is None:
            raise CommandError(
                "--for is missing", "Add the length, such as --for 2h. See 'corral reserve create --help'."
            )
        spec = ReservationSpec(
            self.name,
            amounts.present() if self.start is None else self.start,
            self.length,
            tuple(self.nodes),
            self.count,
            self.gpus,
            dict(self.select),
            tuple(self.users),
            tuple(self.projects),
            self.every,
            self.why,
        )
        for where, sentence in reservation_problems(spec):
            raise CommandError(
                f"{_FLAGS.get(where, '--' + where)}: {sentence}", "'corral reserve create --help' shows how."
            )
        return spec


app = application(invoke_without_command=True)


@app.callback(
    epilog=examples(
        "corral reserve",
        "corral reserve create fans --node gpu01 --start 18:00 --for 2h --why 'new fans'",
        "corral reserve create course --gpus 16 --project ai --start 2030-05-01T08:00 --for 4h --every 7d",
        "corral reserve cancel fans",
    )
)
@list_command
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Reserve nodes for users, projects or maintenance. Without a command: list reservations."""
    return listing(output=output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral reserve list", "corral reserve list -o json"))
@list_command
def listing(output: Output = Format.TABLE) -> int:
    """List current and future reservations."""
    body = Client().reservations()
    reservation_table().show(output, body.reservations, body)
    return 0


@app.command(epilog=examples("corral reserve show fans"))
def show(name: Known, output: Output = Format.TABLE) -> int:
    """Show one reservation."""
    return _print_view(Client().reservation(name), output)


@app.command(
    epilog=examples(
        "corral reserve create fans --node gpu01 --node gpu02 --start 18:00 --for 2h",
        "corral reserve create course --count 2 --select pool=a --user ada --user bob --for 4h",
        "corral reserve create updates --gpus 64 --start 03:00 --for 1h --every 7d",
    )
)
@with_flag_groups
def create(
    flags: ReservationFlags,
    anyway: Annotated[
        bool,
        switch(
            "--anyway",
            "Reserve the nodes even if present jobs may still run on the nodes when the reservation starts.",
        ),
    ] = False,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Reserve nodes for users or projects. Without --user and --project, the nodes are reserved for
    maintenance, and no job runs there.

    As soon as the reservation is made, a job that could still run when the reservation starts is placed on
    other nodes. So a job without a time limit is never placed on these nodes before the reservation.
    """
    spec = flags.spec()
    if dry_run:
        return what_if_table.show(Client().what_if(WhatIf(reserve=(spec,))), output)
    return _print_view(Client().reserve(spec, anyway=anyway), output)


@app.command(epilog=examples("corral reserve cancel fans"))
def cancel(name: Known, output: Output = Format.TABLE) -> int:
    """Cancel a reservation, so that all jobs can use its nodes again."""
    view = Client().cancel_reservation(name)
    held = f"it held {counted(len(view.nodes), 'node')}"
    sentence = f"reservation {printable(view.spec.name)}: cancelled; {held}"
    reservation_table().show_changed(output, view, sentence)
    return 0


_FLAGS = {
    "nodes": "--node",
    "starts_at": "--start",
    "duration_s": "--for",
    "every_s": "--every",
    "name": "NAME",
}


def _print_view(view: ReservationView, output: Format) -> int:
    if output.is_data:
        write_data(output, view)
    elif output == Format.TABLE:
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
    return Table(
        [
            Column("RESERVATION", lambda view: view.spec.name, narrow=8),
            Column(
                "STATE",
                lambda view: "on" if view.on else "to come",
                colour=lambda view: GREEN if view.on else "",
            ),
            Column("BEGINS", lambda view: clock(view.starts_at), rank=1),
            Column("ENDS", lambda view: clock(view.ends_at), rank=2),
            Column("EVERY", lambda view: duration(view.spec.every_s) if view.spec.every_s else "-", rank=5),
            Column("FOR", _for, rank=3, narrow=8),
            Column("NODES", lambda view: ",".join(view.nodes), rank=4, narrow=8),
            Column("WHY", lambda view: view.spec.why, rank=6, narrow=8),
        ],
        lambda view: view.spec.name,
        kind=ReservationView,
    )
