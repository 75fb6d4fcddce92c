"""corral rebalance …: jobs that could be moved, what that costs and brings, and moving them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from cli.commands import application, examples
from cli.exits import Mistake
from cli.messages import note
from cli.output import Column, Format, Output, Table
from cli.tables import GREEN, RED, YELLOW, clock
from wire.api.jobs import Moved
from wire.api.moves import MoveView, ProposalView, aim, fate, place, purpose
from wire.client import Client
from wire.text import counted

OFF = 'Rebalancing is off: set [rebalance] mode = "propose" in scheduler.toml to see what could be moved.'
ALL = "all"

Which = Annotated[
    str,
    typer.Argument(metavar="PROPOSAL|all", help="As 'corral rebalance' names it.", show_default=False),
]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Only show what would be moved.")]

app = application(invoke_without_command=True)


@app.callback(
    epilog=examples(
        "corral rebalance",
        "corral rebalance -o wide",
        "corral rebalance run 3f9a2c41",
        "corral rebalance run all",
        "corral rebalance history",
    )
)
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Show which running jobs could be moved, at what cost and what for; only 'run' moves any."""
    return listing(output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral rebalance list", "corral rebalance list -o json"))
def listing(output: Output = Format.TABLE) -> int:
    """List what could be done now; each proposal stands by itself, and is worked out anew when it is run."""
    body = Client().rebalance()
    if body.proposals or output is not Format.TABLE:
        proposal_table().show(output, body.proposals, body)
    if output in (Format.TABLE, Format.WIDE):
        _say_what_there_is(body.mode, body.proposals, body.moves)
    return 0


def _say_what_there_is(mode: str, proposals: Sequence[ProposalView], moves: Sequence[Moved]) -> None:
    under_way = [move for move in moves if fate(move) == "under way"]
    if mode == "off":
        note(OFF)
    elif not proposals:
        note("Nothing to propose: no move would be worth its cost.")
    elif mode == "auto":
        note("The controller does this by itself from time to time.")
    if under_way:
        note(f"{counted(len(under_way), 'job')} on the move: 'corral rebalance history'.")


@app.command(epilog=examples("corral rebalance run 3f9a2c41", "corral rebalance run all --dry-run"))
def run(which: Which, dry_run: DryRun = False, output: Output = Format.TABLE) -> int:
    """Move jobs as proposed: they save their state, end, and go on in the place that is kept for them.

    A proposal that does not hold any more is refused. If the place is lost before a job runs there, the job
    goes back to where it was, or to its old place in the queue.
    """
    client = Client()
    if dry_run:
        return _would(client, which, output)
    done = client.run_rebalance("" if which == ALL else which)
    if output is Format.TABLE:
        for move in done.moves:
            note(f"job {move.label}: moves from {','.join(move.origin)} to {','.join(move.to)}")
        if not done.moves:
            note("Nothing to propose: nobody is moved.")
    else:
        move_table().show(output, done.moves, done)
    return 0


def _would(client: Client, which: str, output: Format) -> int:
    body = client.rebalance()
    if body.mode == "off":
        raise Mistake(OFF)
    found = [each for each in body.proposals if which in (ALL, each.id)]
    if not found and which != ALL:
        raise Mistake(
            f"there is no proposal {which!r} (any more)", "'corral rebalance' shows what there is now."
        )
    proposal_table().show(output, found, found)
    return 0


@app.command(epilog=examples("corral rebalance history", "corral rebalance history -o json"))
def history(output: Output = Format.TABLE) -> int:
    """List the latest moves, what was to come of them, and what did."""
    moves = Client().rebalance().moves
    move_table().show(output, moves, moves)
    return 0


def proposal_table() -> Table[ProposalView]:
    """Proposals: who moves where, what for, at what cost."""
    return Table(
        [
            Column("PROPOSAL", lambda each: each.id),
            Column("KIND", lambda each: each.kind, keep=5),
            Column("SO THAT", aim, least=12),
            Column("MOVES", lambda each: ", ".join(map(_told, each.moves)), least=12),
            Column("COST", lambda each: f"{each.gpu_hours:.2f}", right=True, keep=1),
            Column(
                "WORTH", lambda each: f"{each.worth:.2f}" if each.kind != "load" else "-", right=True, keep=2
            ),
            Column(
                "FREE GPUS",
                lambda each: f"{each.before.free_gpus} > {each.after.free_gpus}",
                right=True,
                wide=True,
            ),
            Column(
                "ON FREE NODES",
                lambda each: f"{each.before.whole_gpus} > {each.after.whole_gpus}",
                right=True,
                wide=True,
            ),
            Column(
                "FRAGMENTED",
                lambda each: f"{each.before.fragmentation:.0%} > {each.after.fragmentation:.0%}",
                right=True,
                keep=4,
            ),
        ],
        lambda each: each.id,
    )


def _told(move: MoveView) -> str:
    return f"{move.label} {place(move.origin)} > {place(move.target)}"


def move_table() -> Table[Moved]:
    """Moves: which job, from where to where, and what came of it."""
    return Table(
        [
            Column("AT", lambda move: clock(move.at), keep=2),
            Column("JOB", lambda move: move.label),
            Column("NAME", lambda move: move.name, keep=4, least=6),
            Column("USER", lambda move: move.user, keep=5, least=6),
            Column("FROM", lambda move: ",".join(move.origin), keep=1, least=6),
            Column("TO", lambda move: ",".join(move.to), keep=1, least=6),
            Column("SO THAT", purpose, keep=3, least=8),
            Column("COST", lambda move: f"{move.gpu_hours:.2f}", right=True, keep=3),
            Column("STATE", fate, colour=lambda move: _COLOURS[fate(move)]),
            Column("WHY", lambda move: move.undone, keep=2, least=8),
        ],
        lambda move: move.label,
    )


_COLOURS = {"under way": YELLOW, "moved": GREEN, "undone": RED}
