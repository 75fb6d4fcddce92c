"""corral maintain: takes nodes out of service for maintenance, and brings them back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

import typer

from cli import completion, exit_codes
from cli.commands.nodes.preflight import show as show_checks
from cli.commands.nodes.smoke_test import TestOptions, tested
from cli.exit_codes import CommandError
from cli.flags import argument, option, switch
from cli.jobs.for_each import for_each
from cli.output.confirmation import confirmed
from cli.output.details import node_details
from cli.output.formats import Column, Format, Output, Table
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.output.table_columns import GREEN, RED, YELLOW, clock, node_table
from cli.registry import application, examples
from wire import amounts
from wire.api.nodes import NodeView
from wire.api.policy.reservations import ReservationView
from wire.api.problem import Problem
from wire.cluster.reservation import ReservationSpec
from wire.http.client import Client, Refused, Unreachable
from wire.names import NodeState
from wire.text import counted, duration, printable

PREFIX = "maintain-"
"""The beginning of the name of a reservation for maintenance. The name of the node follows."""
WHY = "maintenance"
"""The beginning of the reason of a drain for maintenance."""
TEST_PREFIX = "maintain-test-"
_PAUSE_S = 1.0
_TEST_S = 1_800.0
_MOST_JOBS = 5

Names = Annotated[list[str], argument("NODE", "Names of nodes.", autocompletion=completion.nodes)]
NoWait = Annotated[
    bool, switch("--no-wait", "Do not wait until the nodes are empty. 'corral maintain' shows the progress.")
]
DryRun = Annotated[bool, switch("--dry-run", "Change nothing. Only show what happens to the jobs.")]

app = application(invoke_without_command=True)


@dataclass(frozen=True)
class Maintenance:
    """A node in maintenance. `state` is planned, emptying, empty, overdue (the end of the maintenance has
    passed, and the node is still drained) or lost (the node does not answer).
    """

    node: str
    state: str
    starts_at: float | None
    ends_at: float | None
    jobs: tuple[str, ...]
    why: str
    by: str


@app.callback(
    epilog=examples(
        "corral maintain",
        "corral maintain start gpu01 --for 2h --why 'new fan'",
        "corral maintain start gpu01 gpu02 --start 18:00 --for 4h",
        "corral maintain end gpu01 --test",
    )
)
@list_command
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Take nodes out of service for maintenance, and bring them back. Without a command: list the nodes in
    maintenance.
    """
    return listing(output=output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral maintain list", "corral maintain list --watch"))
@list_command
def listing(output: Output = Format.TABLE) -> int:
    """List the nodes in maintenance: the jobs that are still there, and the end of the maintenance.

    A node is overdue if the end of its maintenance has passed and the node is still drained. 'corral maintain
    end' brings the node back.
    """
    rows = _rows(Client())
    _table().show(output, rows, list(rows))
    if not rows and output in (Format.TABLE, Format.WIDE):
        print_note(
            "No node is in maintenance. 'corral maintain start NODE --for 2h' takes a node out of service."
        )
    return 0


@app.command(
    epilog=examples(
        "corral maintain start gpu01 --for 2h --why 'new fan'",
        "corral maintain start gpu01 --start 18:00 --for 4h --dry-run",
        "corral maintain start gpu01 gpu02 --start 30m --for 1h --yes --no-wait",
    )
)
def start(
    names: Names,
    length: Annotated[
        float,
        option("--for", "TIME", "Expected length of the maintenance (e.g. 2h).", parser=amounts.seconds),
    ],
    begin: Annotated[
        float | None,
        option(
            "--start",
            "WHEN",
            "Empty the nodes by this time (e.g. 18:00, 2030-05-01T08:00, or 30m for 30 minutes from now). "
            "Jobs that still run then are moved or ended. Default: drain the nodes now, and let their jobs "
            "end by themselves.",
            parser=amounts.moment_or_delay,
        ),
    ] = None,
    why: Annotated[str, option("--why", "TEXT", "Reason for the maintenance, shown to all users.")] = "",
    yes: Annotated[bool, switch("--yes -y", "Do not ask for confirmation if jobs would be ended.")] = False,
    no_wait: NoWait = False,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Take nodes out of service: reserve them for the time of the maintenance, drain them, and wait until no
    job runs there.

    The reservation shows all users the time of the maintenance, and the scheduler plans with this time. The
    drain keeps new jobs away until 'corral maintain end', also if the maintenance takes longer. With --start,
    the jobs that would be moved or ended are listed, and the command asks before it ends jobs. Ctrl-C ends
    only the waiting.
    """
    client = Client()
    names = list(dict.fromkeys(names))
    present = {name: client.node(name) for name in names}
    if begin is not None:
        _announce(client, names, begin, why, yes=yes or dry_run)
    elif dry_run or output == Format.TABLE:
        for node in present.values():
            _print_jobs(node)
    if dry_run:
        node_table().show(output, list(present.values()))
        return 0
    done, refusals = for_each(names, lambda name: _take_out(client, name, begin, length, why))
    taken = [node.name for node in done]
    if taken and not no_wait and not _wait_until_empty(client, taken):
        return exit_codes.INTERRUPTED
    if output != Format.TABLE:
        node_table().show(output, [client.node(name) for name in taken])
    elif taken:
        print_note(f"When the work is done: corral maintain end {' '.join(map(printable, taken))}")
    return refusals[0] if refusals else 0


@app.command(epilog=examples("corral maintain end gpu01", "corral maintain end gpu01 --test"))
def end(
    names: Names,
    test: Annotated[
        bool,
        switch(
            "--test",
            "Run 'corral nodes test' first, while only jobs of yours may start on the node. If a check "
            "fails, the node stays in maintenance.",
        ),
    ] = False,
    output: Output = Format.TABLE,
) -> int:
    """Bring nodes back into service: resume them and cancel their reservations."""
    client = Client()
    code = 0

    def bring_back(name: str) -> NodeView:
        nonlocal code
        held = _reservation(client, name)
        node = client.node(name)
        if held is None and node.state is not NodeState.DRAINED and node.drain is None:
            message = f"node {printable(name)} is not in maintenance"
            hint = "'corral maintain' lists the nodes in maintenance."
            raise Refused(404, Problem("not_found", message, "", hint))
        if test:
            if not _passes(client, node, held, output):
                code = exit_codes.FAILED
            return client.node(name)
        node = client.resume(name)
        _cancel(client, f"{PREFIX}{name}")
        return node

    done, refusals = for_each(dict.fromkeys(names), bring_back)
    if output != Format.TABLE and not test:
        node_table().show(output, done)
    else:
        for node in done:
            print_note(f"node {printable(node.name)}: {node.state_word}")
    return refusals[0] if refusals else code


def _announce(client: Client, names: Sequence[str], begin: float, why: str, *, yes: bool) -> None:
    """Print what a timed drain would do to the jobs on the nodes. If the drain would end jobs, ask for
    confirmation; raise CommandError if the user does not confirm.
    """
    ended = 0
    for name in names:
        planned = client.drain(name, _why(why), begin, dry_run=True)
        lines = node_details.drain_lines(planned.drain) if planned.drain is not None else []
        print_note("\n  ".join([f"node {printable(name)}", *lines]))
        ended += sum(each.how == "ended" for each in planned.drain.jobs) if planned.drain is not None else 0
    if ended and not yes and not confirmed(f"{counted(ended, 'job')} would be ended. Start the maintenance?"):
        raise CommandError("nothing was changed", "", exit_codes.FAILED)


def _print_jobs(node: NodeView) -> None:
    jobs = (
        f"{counted(len(node.jobs), 'job')} on it, which may run to the end" if node.jobs else "no job on it"
    )
    print_note(f"node {printable(node.name)}: {jobs}")


def _take_out(client: Client, name: str, begin: float | None, length: float, why: str) -> NodeView:
    """Reserve and drain one node. If the controller refuses the drain, cancel the reservation."""
    at = amounts.present() if begin is None else begin
    spec = ReservationSpec(f"{PREFIX}{name}", at, length, (name,), why=why or WHY)
    client.reserve(spec, anyway=True)
    try:
        return client.drain(name, _why(why), begin)
    except Refused:
        _cancel(client, spec.name)
        raise


def _wait_until_empty(client: Client, names: Sequence[str]) -> bool:
    """Print the progress until no job runs on the nodes. Return False after Ctrl-C."""
    said: dict[str, str] = {}
    try:
        while True:
            try:
                nodes = [client.node(name) for name in names]
            except Unreachable as error:
                print_note(f"corral: {error}; trying again")
                time.sleep(_PAUSE_S)
                continue
            for node in nodes:
                line = _progress(node)
                if said.get(node.name) != line:
                    said[node.name] = line
                    print_note(f"{time.strftime('%H:%M:%S')}  {printable(node.name)}: {line}")
            if all(_is_empty(node) for node in nodes):
                return True
            time.sleep(_PAUSE_S)
    except KeyboardInterrupt:
        names_text = " ".join(map(printable, names))
        print_note(
            "\nThe maintenance goes on: 'corral maintain --watch' shows the progress. "
            f"Undo it with: corral maintain end {names_text}"
        )
        return False


def _is_empty(node: NodeView) -> bool:
    return node.state in (NodeState.DRAINED, NodeState.DOWN) and not node.jobs


def _progress(node: NodeView) -> str:
    if _is_empty(node):
        return "empty" if node.state is NodeState.DRAINED else f"empty, and {node.state.value}"
    listed = ", ".join(node.job_labels[:_MOST_JOBS])
    more = f" and {len(node.jobs) - _MOST_JOBS} more" if len(node.jobs) > _MOST_JOBS else ""
    jobs = f"{counted(len(node.jobs), 'job')} left: {listed}{more}" if node.jobs else "no job left"
    return f"{jobs}; to be empty by {clock(node.drain.empty_by)}" if node.drain is not None else jobs


def _passes(client: Client, node: NodeView, held: ReservationView | None, output: Format) -> bool:
    """Test a node before other jobs start there. Return whether all checks have passed.

    1. Cancel the reservation for maintenance, and reserve the node for the user of this command. The node is
       still drained, so no job starts between these two commands.
    2. Resume the node, and test it.
    3. If a check fails, or the command is interrupted, drain the node again. Create the reservation for
       maintenance again, for the rest of its time.
    4. Cancel the reservation for the user.
    """
    name, passed = node.name, False
    spec = ReservationSpec(
        f"{TEST_PREFIX}{name}", amounts.present(), _TEST_S, (name,), users=(client.health().user,), why="test"
    )
    _cancel(client, f"{PREFIX}{name}")
    try:
        client.reserve(spec, anyway=True)
        client.resume(name)
        result = tested(name, TestOptions(None, 60.0, "default", "default", job_only=False))
        passed = show_checks([result], output) == 0
    finally:
        if not passed:
            client.drain(name, node.why or WHY)
            left = held.ends_at - amounts.present() if held is not None else 0.0
            if held is not None and left > 0:
                why = held.spec.why
                again = ReservationSpec(held.spec.name, amounts.present(), left, (name,), why=why)
                client.reserve(again, anyway=True)
        _cancel(client, spec.name)
    return passed


def _cancel(client: Client, name: str) -> None:
    """Cancel a reservation, if there is one with this name."""
    try:
        client.cancel_reservation(name)
    except Refused as refused:
        if refused.problem.code != "not_found":
            raise


def _reservation(client: Client, node: str) -> ReservationView | None:
    with suppress(Refused):
        return client.reservation(f"{PREFIX}{node}")
    return None


def _why(why: str) -> str:
    return f"{WHY}: {why}" if why else WHY


def _rows(client: Client) -> list[Maintenance]:
    """Return the nodes with a reservation for maintenance, and the nodes that are drained for maintenance."""
    held = {
        each.spec.name.removeprefix(PREFIX): each
        for each in client.reservations().reservations
        if each.spec.name.startswith(PREFIX) and not each.spec.name.startswith(TEST_PREFIX)
    }
    rows = []
    for node in client.nodes().nodes:
        view = held.get(node.name)
        drained = node.state is NodeState.DRAINED and node.why.startswith(WHY)
        if view is None and not drained:
            continue
        rows.append(
            Maintenance(
                node.name,
                _state(node, view),
                view.starts_at if view is not None else node.since,
                view.ends_at if view is not None else None,
                node.job_labels,
                (view.spec.why if view is not None else node.why.removeprefix(f"{WHY}: ")),
                view.by if view is not None else "",
            )
        )
    return rows


def _state(node: NodeView, view: ReservationView | None) -> str:
    if node.state.away:
        return "lost"
    if view is None:
        return "overdue"
    if node.drain is not None and not view.on:
        return "planned"
    return "emptying" if node.jobs else "empty" if node.state is NodeState.DRAINED else "planned"


def _left(each: Maintenance) -> str:
    return "-" if each.ends_at is None else duration(max(0.0, each.ends_at - time.time()))


_COLOURS = {"empty": GREEN, "emptying": YELLOW, "overdue": RED, "lost": RED}


def _table() -> Table[Maintenance]:
    return Table(
        [
            Column("NODE", lambda each: each.node, narrow=8),
            Column("STATE", lambda each: each.state, colour=lambda each: _COLOURS.get(each.state, "")),
            Column("BEGINS", lambda each: clock(each.starts_at), rank=2),
            Column("ENDS", lambda each: clock(each.ends_at), rank=1),
            Column("LEFT", _left, rank=3, right=True),
            Column("JOBS", lambda each: ",".join(each.jobs) or "-", rank=4, narrow=6),
            Column("WHY", lambda each: each.why, rank=5, narrow=8),
            Column("BY", lambda each: each.by, rank=6, wide=True),
        ],
        lambda each: each.node,
        kind=Maintenance,
    )
