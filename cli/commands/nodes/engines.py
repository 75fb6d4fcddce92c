"""corral engines: lists execution engines (Slurm, Docker and others), tests them, and drains them."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from cli.exit_codes import FAILED
from cli.flags import argument, option
from cli.output.formats import Column, Format, Output, Table, write_data, write_facts
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.output.table_columns import GREEN, RED, YELLOW
from cli.registry import application, examples
from wire.api.service.engines import EngineJob, EngineMachine, EngineView
from wire.http.client import Client
from wire.text import counted, duration, printable

Name = Annotated[str, argument("NAME", "Name of the execution engine in scheduler.toml.")]

app = application(invoke_without_command=True)


@app.callback(
    epilog=examples(
        "corral engines",
        "corral engines show slurm",
        "corral engines test slurm",
        "corral engines drain slurm --why 'new version'",
    )
)
@list_command
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Show, test, drain and resume execution engines. Without a command: list execution engines."""
    return listing(output=output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral engines list", "corral engines list -o json"))
@list_command
def listing(output: Output = Format.TABLE) -> int:
    """List all execution engines: systems such as Slurm and Docker that run jobs for Corral."""
    body = Client().engines()
    engine_table().show(output, body.engines, body)
    if not body.engines and output in (Format.TABLE, Format.WIDE):
        print_note("This cluster has no execution engines. Declare them in [engines.NAME] of scheduler.toml.")
    return 0


@app.command(epilog=examples("corral engines show docker"))
def show(name: Name, output: Output = Format.TABLE) -> int:
    """Show one execution engine: its state, its nodes and its jobs."""
    view = Client().engine(name)
    if output.is_data:
        write_data(output, view)
    elif output == Format.TABLE:
        write_facts(
            [
                ("engine", view.name),
                ("type", view.type),
                ("state", _state(view)),
                ("problem", view.problem),
                ("drained", view.drained),
                ("nodes", ", ".join(view.nodes)),
                ("last look", _age(view)),
                *_pool_facts(view),
                ("jobs", f"{view.live}, of which {view.waiting} wait there"),
                (
                    "orphans",
                    f"{counted(view.orphans_ended, 'foreign job')} ended, because no job wanted them",
                ),
            ]
        )
        print()
        _show_parts(view, output)
    else:
        _show_parts(view, output)
    return 0


def _show_parts(view: EngineView, output: Format) -> None:
    """Print the machines of a machine pool, or the jobs of another execution engine."""
    if view.pool is not None:
        machine_table().show(output, view.pool.machines)
    else:
        job_table().show(output, view.jobs)


def _pool_facts(view: EngineView) -> list[tuple[str, str]]:
    pool = view.pool
    if pool is None:
        return []
    cap = "" if pool.daily_cap is None else f" of {pool.daily_cap:g}"
    paused = [f"{each.shape} {each.zone}".strip() + f": {each.why}" for each in pool.paused]
    return [
        ("money today", f"{pool.spent_today:.2f}{cap}"),
        ("orders", f"{pool.ordered}, of which {pool.failures} failed"),
        ("no order", pool.refused),
        ("paused", "; ".join(paused)),
    ]


@app.command("test", epilog=examples("corral engines test slurm"))
def look_at(name: Name, output: Output = Format.TABLE) -> int:
    """Ask an execution engine once for its nodes and jobs, and show how long the answer took.

    The exit code is 1 if the engine does not answer. Nothing is changed.
    """
    found = Client().test_engine(name)
    if output.is_data:
        write_data(output, found)
    else:
        listed = f"{counted(found.nodes, 'node')}, {counted(found.jobs, 'job')} of this cluster"
        limits = [(each.name, f"{each.used:g} of {each.limit:g}") for each in found.limits]
        write_facts(
            [
                ("engine", found.name),
                ("answer", f"failed: {found.problem}" if found.problem else f"in {found.took_s:.2f} s"),
                ("lists", "" if found.problem else listed),
                ("complete", "" if found.problem else "yes" if found.complete else "no"),
                *limits,
            ]
        )
    return FAILED if found.problem else 0


@app.command(epilog=examples("corral engines drain slurm --why 'new version'"))
def drain(
    name: Name,
    why: Annotated[
        str, option("--why", "TEXT", "Reason why the engine is drained, shown to all users.")
    ] = "",
    output: Output = Format.TABLE,
) -> int:
    """Drain an execution engine: no more jobs start there. Its running jobs continue."""
    view = Client().drain_engine(name, why)
    engine_table().show_changed(output, view, f"{printable(view.name)} is drained: {printable(view.drained)}")
    return 0


@app.command(epilog=examples("corral engines resume slurm"))
def resume(name: Name, output: Output = Format.TABLE) -> int:
    """Resume a drained execution engine, so that jobs start there again."""
    view = Client().resume_engine(name)
    engine_table().show_changed(output, view, f"{printable(view.name)} gets jobs again")
    return 0


def _state(view: EngineView) -> str:
    if view.open:
        return "failing"
    return "drained" if view.drained else "up" if view.looked_at is not None else "starting"


def _age(view: EngineView) -> str:
    return "never" if view.looked_at is None else f"{duration(max(0.0, time.time() - view.looked_at))} ago"


_COLOURS = {"up": GREEN, "failing": RED}


def engine_table() -> Table[EngineView]:
    """Return the table of execution engines."""
    return Table(
        [
            Column("ENGINE", lambda view: view.name, narrow=8),
            Column("TYPE", lambda view: view.type, rank=3),
            Column("STATE", _state, colour=lambda view: _COLOURS.get(_state(view), YELLOW)),
            Column("NODES", lambda view: str(len(view.nodes)), right=True),
            Column("JOBS", lambda view: str(view.live), right=True),
            Column("WAITING", lambda view: str(view.waiting), right=True, rank=2),
            Column("WHY", lambda view: view.problem or view.drained, rank=1, narrow=8),
        ],
        lambda view: view.name,
        kind=EngineView,
    )


def machine_table() -> Table[EngineMachine]:
    """Return the table of the machines of a machine pool."""
    return Table(
        [
            Column("NODE", lambda each: each.node or "-", narrow=8),
            Column("STATE", lambda each: each.state),
            Column("SHAPE", lambda each: each.shape),
            Column("ZONE", lambda each: each.zone, rank=3),
            Column("PRICE", lambda each: f"{each.price_per_hour:g}/h", right=True),
            Column("COST", lambda each: f"{each.cost:.2f}", right=True, rank=2),
            Column("PROJECT", lambda each: each.project, rank=4),
            Column("MACHINE", lambda each: each.ref, rank=5, narrow=12),
            Column("WHY", lambda each: each.why, rank=1, narrow=8),
        ],
        lambda each: each.ref,
        kind=EngineMachine,
    )


def job_table() -> Table[EngineJob]:
    """Return the table of the jobs on one execution engine."""
    return Table(
        [
            Column("JOB", lambda each: str(each.job), right=True),
            Column("ATTEMPT", lambda each: str(each.attempt), right=True, rank=3),
            Column("NODE", lambda each: each.node, narrow=8),
            Column("STATE", lambda each: each.state),
            Column("FOREIGN JOB", lambda each: each.ref, rank=1, narrow=12),
            Column("WAITS FOR", lambda each: each.reason, rank=2, narrow=8),
        ],
        lambda each: str(each.job),
        kind=EngineJob,
    )
