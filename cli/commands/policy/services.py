"""corral service: lists the services of scheduler.toml, restarts services and sets their number
of replicas.
"""

from __future__ import annotations

from typing import Annotated

import typer

from cli.exit_codes import CommandError
from cli.flags import argument, switch
from cli.output.formats import Column, Format, Output, Table, write_data, write_facts
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.output.table_columns import GREEN, RED, YELLOW
from cli.registry import application, examples
from wire.api.policy.services import ReplicaView, ServiceView
from wire.http.client import Client
from wire.text import counted, printable

Name = Annotated[str, argument("NAME", "Name of the service in scheduler.toml.")]

app = application(invoke_without_command=True)


@app.callback(
    epilog=examples(
        "corral service",
        "corral service show web",
        "corral service restart web",
        "corral service scale web 4",
    )
)
@list_command
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Show services, restart services, and change their number of replicas. Without a command:
    list services.
    """
    return listing(output=output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral service list", "corral service list -o json"))
@list_command
def listing(output: Output = Format.TABLE) -> int:
    """List all services, with the number of replicas that are ready."""
    body = Client().services()
    service_table().show(output, body.services, body)
    if not body.services and output in (Format.TABLE, Format.WIDE):
        print_note("This cluster has no services. Declare them in [services.NAME] of scheduler.toml.")
    return 0


@app.command(epilog=examples("corral service show web"))
def show(name: Name, output: Output = Format.TABLE) -> int:
    """Show one service and all of its replicas."""
    view = Client().service(name)
    if output.is_data:
        write_data(output, view)
    elif output == Format.TABLE:
        write_facts(
            [
                ("service", view.name),
                ("user", view.user),
                ("project", view.project),
                ("queue", view.queue),
                ("replicas", _replicas_text(view)),
                ("ready", str(view.ready)),
                (
                    "restarting",
                    f"{view.ready - view.current} still have old settings" * (view.current < view.ready),
                ),
                ("problem", view.problem),
            ]
        )
        print()
        replica_table().show(output, view.replicas)
    else:
        replica_table().show(output, view.replicas)
    return 0


@app.command(epilog=examples("corral service restart web"))
def restart(name: Name, output: Output = Format.TABLE) -> int:
    """Restart all replicas of a service, a few at a time.

    During the restart, at most max_unavailable replicas of the service are unready. If max_unavailable is 0,
    a new replica starts before an old replica ends.
    """
    view = Client().restart_service(name)
    pace = f"at most {view.max_unavailable} unready at a time"
    if not view.max_unavailable:
        pace = "each new replica starts before an old one ends"
    return _print_order(view, f"its replicas restart; {pace}", output)


@app.command(
    epilog=examples(
        "corral service scale web 4", "corral service scale web 0", "corral service scale web --reset"
    )
)
def scale(
    name: Name,
    replicas: Annotated[
        int | None,
        argument("REPLICAS", "Number of replicas that the service keeps running.", min=0, max=1_000),
    ] = None,
    reset: Annotated[bool, switch("--reset", "Use the number of replicas in scheduler.toml again.")] = False,
    output: Output = Format.TABLE,
) -> int:
    """Set the number of replicas of a service.

    The number is valid until `replicas` of the service in scheduler.toml changes. Other changes of
    scheduler.toml, and restarts of the controller, do not change the number.
    """
    if (replicas is None) is not reset:
        raise CommandError(
            "name either a number of replicas or --reset", "For example: corral service scale web 4"
        )
    view = Client().scale_service(name, replicas)
    return _print_order(view, f"{counted(view.wanted, 'replica')} wanted", output)


def _print_order(view: ServiceView, sentence: str, output: Format) -> int:
    service_table().show_changed(output, view, f"service {printable(view.name)}: {sentence}")
    return 0


def _replicas_text(view: ServiceView) -> str:
    if view.wanted == view.declared:
        return str(view.wanted)
    return f"{view.wanted}, set by an operator ({view.declared} in scheduler.toml)"


def service_table() -> Table[ServiceView]:
    """Return the table of services, with the numbers of wanted and of ready replicas."""
    return Table(
        [
            Column("SERVICE", lambda view: view.name, narrow=8),
            Column("USER", lambda view: view.user, rank=4),
            Column("PROJECT", lambda view: view.project, rank=5),
            Column("WANTED", lambda view: str(view.wanted), right=True),
            Column(
                "READY",
                lambda view: str(view.ready),
                right=True,
                colour=lambda view: GREEN if view.ready >= view.wanted else RED if not view.ready else YELLOW,
            ),
            Column("CURRENT", lambda view: str(view.current), right=True, rank=3),
            Column("PROBLEM", lambda view: view.problem, rank=2, narrow=8),
        ],
        lambda view: view.name,
        kind=ServiceView,
    )


def replica_table() -> Table[ReplicaView]:
    """Return the table of the replicas of one service."""
    return Table(
        [
            Column("REPLICA", lambda view: str(view.number), right=True),
            Column("JOB", lambda view: str(view.job), right=True),
            Column("STATE", lambda view: view.state.value),
            Column(
                "READY",
                lambda view: "yes" if view.ready else "no",
                colour=lambda view: GREEN if view.ready else "",
            ),
            Column("SETTINGS", lambda view: "current" if view.current else "old", rank=3),
            Column("NODES", lambda view: ",".join(view.nodes), rank=1, narrow=8),
            Column("RESTARTS", lambda view: str(view.restarts), right=True, rank=4),
            Column("WHY", lambda view: view.detail or view.reason.value.replace("_", " "), rank=2, narrow=8),
        ],
        lambda view: str(view.job),
        kind=ReplicaView,
    )
