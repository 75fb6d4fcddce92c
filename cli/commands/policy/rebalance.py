"""corral rebalance: lists proposed moves of running jobs to other nodes, and carries these moves out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from cli.exit_codes import CommandError
from cli.flags import argument, switch
from cli.output.formats import Column, Format, Output, Table
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.output.table_columns import GREEN, RED, YELLOW, clock
from cli.registry import application, examples
from wire.api.jobs import Moved
from wire.api.policy.rebalance import (
    MoveView,
    ProposalView,
    move_purpose,
    move_status,
    nodes_and_gpus,
    proposal_benefit,
)
from wire.http.client import Client
from wire.text import counted

OFF = 'Rebalancing is off: set [rebalance] mode = "propose" in scheduler.toml to see what could be moved.'
ALL = "all"

Which = Annotated[
    str,
    argument("PROPOSAL|all", "Id of a proposed move in the list of 'corral rebalance', or all."),
]
DryRun = Annotated[bool, switch("--dry-run -n", "Move nothing. Only show which jobs would be moved.")]

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
@list_command
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Show which running jobs could move to other nodes, with the cost and the benefit of each move. Only
    'corral rebalance run' moves jobs.
    """
    return listing(output=output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral rebalance list", "corral rebalance list -o json"))
@list_command
def listing(output: Output = Format.TABLE) -> int:
    """List the moves of jobs that are proposed now. 'corral rebalance run' checks each proposed move again
    before it moves jobs.
    """
    body = Client().rebalance()
    if body.proposals or output != Format.TABLE:
        proposal_table().show(output, body.proposals, body)
    if output in (Format.TABLE, Format.WIDE):
        _print_counts(body.mode, body.proposals, body.moves)
    return 0


def _print_counts(mode: str, proposals: Sequence[ProposalView], moves: Sequence[Moved]) -> None:
    under_way = [move for move in moves if move_status(move) == "under way"]
    if mode == "off":
        print_note(OFF)
    elif not proposals:
        print_note("No proposals: no move is worth its cost.")
    elif mode == "auto":
        print_note("The controller carries out such moves automatically, at intervals.")
    if under_way:
        print_note(f"{counted(len(under_way), 'job')} being moved: see 'corral rebalance history'.")


@app.command(epilog=examples("corral rebalance run 3f9a2c41", "corral rebalance run all --dry-run"))
def run(which: Which, dry_run: DryRun = False, output: Output = Format.TABLE) -> int:
    """Move jobs as proposed: the jobs save their state, stop, and continue on the nodes that are kept for
    these jobs.

    A proposal that is no longer possible is refused. If a kept node is lost before the job runs on this node,
    the job returns to its old nodes, or to its old place in the queue.
    """
    client = Client()
    if dry_run:
        return _would(client, which, output)
    done = client.run_rebalance("" if which == ALL else which)
    if output == Format.TABLE:
        for move in done.moves:
            print_note(f"job {move.label}: moves from {','.join(move.origin)} to {','.join(move.to)}")
        if not done.moves:
            print_note("No proposals: no job is moved.")
    else:
        move_table().show(output, done.moves, done)
    return 0


def _would(client: Client, which: str, output: Format) -> int:
    body = client.rebalance()
    if body.mode == "off":
        raise CommandError(OFF)
    found = [each for each in body.proposals if which in (ALL, each.id)]
    if not found and which != ALL:
        raise CommandError(
            f"there is no proposal {which!r} now", "'corral rebalance' lists the current proposals."
        )
    proposal_table().show(output, found, found)
    return 0


@app.command(epilog=examples("corral rebalance history", "corral rebalance history -o json"))
@list_command
def history(output: Output = Format.TABLE) -> int:
    """List the latest moves, with the purpose and the result of each."""
    moves = Client().rebalance().moves
    move_table().show(output, moves, moves)
    return 0


def proposal_table() -> Table[ProposalView]:
    return Table(
        [
            Column("PROPOSAL", lambda each: each.id),
            Column("KIND", lambda each: each.kind, rank=5),
            Column("PURPOSE", proposal_benefit, narrow=12),
            Column("MOVES", lambda each: ", ".join(map(_move_text, each.moves)), narrow=12),
            Column("COST", lambda each: f"{each.gpu_hours:.2f}", right=True, rank=1),
            Column(
                "WORTH", lambda each: f"{each.worth:.2f}" if each.kind != "load" else "-", right=True, rank=2
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
                rank=4,
            ),
        ],
        lambda each: each.id,
        kind=ProposalView,
    )


def _move_text(move: MoveView) -> str:
    return f"{move.label} {nodes_and_gpus(move.origin)} > {nodes_and_gpus(move.target)}"


def move_table() -> Table[Moved]:
    return Table(
        [
            Column("AT", lambda move: clock(move.at), rank=2),
            Column("JOB", lambda move: move.label),
            Column("NAME", lambda move: move.name, rank=4, narrow=6),
            Column("USER", lambda move: move.user, rank=5, narrow=6),
            Column("FROM", lambda move: ",".join(move.origin), rank=1, narrow=6),
            Column("TO", lambda move: ",".join(move.to), rank=1, narrow=6),
            Column("PURPOSE", move_purpose, rank=3, narrow=8),
            Column("COST", lambda move: f"{move.gpu_hours:.2f}", right=True, rank=3),
            Column("STATE", move_status, colour=lambda move: _COLOURS[move_status(move)]),
            Column("WHY", lambda move: move.undone, rank=2, narrow=8),
        ],
        lambda move: move.label,
        kind=Moved,
    )


_COLOURS = {"under way": YELLOW, "moved": GREEN, "undone": RED}
