"""corral nodes: shows and changes nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from cli import completion, exit_codes
from cli.commands.nodes import join, labels_and_taints, smoke_test
from cli.exit_codes import CommandError
from cli.flags import argument, option, switch
from cli.jobs.for_each import for_each
from cli.output.confirmation import confirmed
from cli.output.details import node_details
from cli.output.formats import Format, Output, write, write_data, write_facts
from cli.output.listing import list_command
from cli.output.stderr import print_note
from cli.output.table_columns import gpu_table, node_table, process_table, processes_of
from cli.registry import application, examples
from wire import amounts
from wire.api.nodes import NodeView
from wire.http.client import Client
from wire.http.transport import Refused
from wire.text import counted

Name = Annotated[str, argument("NODE", "Name of the node.", autocompletion=completion.nodes)]
Names = Annotated[list[str], argument("NODE", "Names of nodes.", autocompletion=completion.nodes)]
NamesOrNone = Annotated[list[str], argument("[NODE]...", "Names of nodes.", autocompletion=completion.nodes)]
NodesOrGpus = Annotated[
    list[str],
    argument(
        "[NODE[:GPU]]...",
        "Names of nodes (e.g. gpu01), or GPUs by node and number (e.g. gpu01:3).",
        autocompletion=completion.nodes,
    ),
]
Select = Annotated[
    list[Any],
    option(
        "--select",
        "KEY=VALUE",
        "Also choose all nodes with this label. May be repeated; a node must then have all these labels.",
        parser=amounts.pair,
    ),
]
DryRun = Annotated[
    bool, switch("--dry-run", "Change nothing. Only show which nodes the command would change.")
]

app = application(invoke_without_command=True)


@app.callback(
    epilog=examples("corral nodes", "corral nodes show gpu01", "corral nodes drain gpu01 --why 'new fan'")
)
@list_command
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Show nodes and their GPUs; add, drain, label, taint and remove nodes. Without a command: list nodes."""
    return listing(output=output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral nodes list -o wide", "corral nodes list -o json"))
@list_command
def listing(output: Output = Format.TABLE) -> int:
    """List all nodes with their used resources and their total resources."""
    body = Client().nodes()
    node_table().show(output, body.nodes, body)
    return 0


@app.command(epilog=examples("corral nodes show gpu01", "corral nodes show gpu01 -o wide"))
def show(name: Name, output: Output = Format.TABLE) -> int:
    """Show one node: its NUMA nodes, its GPUs and its jobs."""
    node = Client().node(name)
    if output.is_data:
        write_data(output, node)
    elif output in (Format.NAME, Format.CSV):
        gpu_table().show(output, node.gpus)
    else:
        write_facts(node_details.of_node(node))
        if node.gpus:
            write("\n")
            gpu_table().show(output, node.gpus)
        found = processes_of(node.gpus)
        if found:
            write("\n")
            process_table().show(output, found)
    return 0


@app.command(
    epilog=examples(
        "corral nodes drain gpu01 --why 'new fan'",
        "corral nodes drain gpu01 --by 18:00 --dry-run",
        "corral nodes drain gpu01 gpu02 --by 2h --yes",
        "corral nodes drain --select rack=r2",
    )
)
def drain(
    names: NamesOrNone = [],  # noqa: B006 - never changed
    select: Select = [],  # noqa: B006 - never changed
    why: Annotated[
        str, option("--why", "TEXT", "Reason why the nodes are drained, shown to all users.")
    ] = "",
    by: Annotated[
        float | None,
        option(
            "--by",
            "WHEN",
            "Empty the nodes by this time (e.g. 18:30, 2030-05-01T08:00, or 2h for two hours from now). "
            "Until "
            "then, only jobs "
            "that end before this time start on the nodes. At this time, jobs that still run there "
            "continue on other nodes from their checkpoints; jobs that may not be preempted are ended. The "
            "owners of the jobs are warned at once.",
            parser=amounts.moment_or_delay,
        ),
    ] = None,
    yes: Annotated[bool, switch("--yes -y", "Do not ask for confirmation if --by would end jobs.")] = False,
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Drain nodes: running jobs continue, but no new job starts on these nodes.

    With --by, list the jobs that would be moved or ended, and ask for confirmation if jobs would be ended.
    """
    client = Client()
    names = _selected(client, names, select)
    if dry_run:
        planned = client.node if by is None else lambda name: _drained(client, name, why, by, True)
        return _each(names, planned, output, would_be="drained")
    if by is None:
        return _each(names, lambda name: client.drain(name, why), output)
    if not yes:
        asked = [_drained(client, name, why, by, True) for name in dict.fromkeys(names)]
        ended = [
            each.label for node in asked if node.drain for each in node.drain.jobs if each.how == "ended"
        ]
        if ended:
            for node in asked:
                _note_leaving(node)
            if not confirmed(f"{counted(len(ended), 'job')} would be ended. Drain?"):
                return exit_codes.FAILED
    return _each(names, lambda name: _drained(client, name, why, by), output)


@app.command(
    epilog=examples(
        "corral nodes resume gpu01", "corral nodes resume gpu01:3", "corral nodes resume --select rack=r2"
    )
)
def resume(
    names: NodesOrGpus = [],  # noqa: B006 - never changed
    select: Select = [],  # noqa: B006 - never changed
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Resume drained nodes (NODE) or cordoned GPUs (NODE:GPU), so that new jobs may start there again."""
    client = Client()

    def act(name: str) -> NodeView:
        node, gpu = node_and_gpu(name)
        if dry_run:
            return client.node(node)
        return client.resume(node) if gpu is None else client.resume_gpu(node, gpu)

    return _each(_selected(client, names, select), act, output, would_be="resumed" if dry_run else "")


@app.command(epilog=examples("corral nodes cordon gpu01:3 --why 'noisy fan'"))
def cordon(
    names: Annotated[
        list[str],
        argument(
            "NODE:GPU",
            "GPUs to cordon, each written as NODE:GPU with the number of the GPU (e.g. gpu01:3). A MIG"
            " instance is written as NODE:GPU:INSTANCE (e.g. gpu01:2:1).",
        ),
    ],
    why: Annotated[
        str, option("--why", "TEXT", "Reason why the GPUs are cordoned, shown to all users.")
    ] = "",
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Cordon single GPUs. Running jobs continue, but no new job gets these GPUs before 'corral
    nodes resume'.
    """
    client = Client()

    def act(name: str) -> NodeView:
        node, gpu = node_and_gpu(name)
        if gpu is None:
            message = f"{name!r} names no GPU"
            raise CommandError(message, f"Write {name}:0; or 'corral nodes drain {name}' for the whole node.")
        return client.node(node) if dry_run else client.cordon_gpu(node, gpu, why)

    return _each(names, act, output, would_be="cordoned" if dry_run else "")


def _selected(client: Client, names: list[str], labels: list[tuple[str, str]]) -> list[str]:
    """Return the named nodes and the nodes that have all of these labels, without repetitions.

    Raise CommandError if `names` and `labels` are empty, or if there are labels but no node has all of them.
    """
    if not names and not labels:
        raise CommandError("no node is named", "Name nodes, or choose them by --select KEY=VALUE.")
    found = [each.name for each in client.nodes().nodes if has_labels(each.labels, labels)] if labels else []
    if labels and not found:
        wanted = " and ".join(f"{key}={value}" for key, value in labels)
        raise CommandError(
            f"no node has the label {wanted}",
            "'corral nodes list -o wide' shows labels.",
            exit_codes.NOT_FOUND,
        )
    return list(dict.fromkeys([*names, *found]))


def has_labels(labels: Mapping[str, str], wanted: Iterable[tuple[str, str]]) -> bool:
    return all(labels.get(key) == value for key, value in wanted)


def node_and_gpu(name: str) -> tuple[str, str | None]:
    """Return the name of the node, and the number of the GPU or None, from a text such as `gpu01` (no GPU),
    `gpu01:3`, or `gpu01:2:1` (MIG instance 1 of GPU 2).
    """
    node, colon, gpu = name.partition(":")
    if not colon:
        return name, None
    if not re.fullmatch(r"[0-9]{1,5}(:[0-9]{1,3})?", gpu):
        raise CommandError(f"{name!r} names no GPU", "Write NODE:GPU, such as gpu01:3, or gpu01:2:1 for MIG.")
    return node, gpu


app.command("add", epilog=join.ADD_EXAMPLES)(join.add)
app.command("check", epilog=examples("corral nodes check gpu01"))(join.check)
app.command("test", epilog=smoke_test.EXAMPLES)(smoke_test.run_test)
app.command("trust", epilog=examples("corral nodes trust gpu01 --fingerprint SHA256:…"))(join.trust)
app.command("lost", epilog=examples("corral nodes lost gpu01"))(join.lost)
app.command("remove", epilog=examples("corral nodes remove gpu01 gpu02"))(join.remove)
app.command("taint", epilog=labels_and_taints.TAINT_EXAMPLES)(labels_and_taints.taint)
app.command(
    "label", epilog=examples("corral nodes label gpu01 rack=r2 disk=nvme", "corral nodes label gpu01 rack-")
)(labels_and_taints.label)


def _drained(client: Client, name: str, why: str, by: float, dry_run: bool = False) -> NodeView:
    """Drain a node by the time `by`. If the controller refuses the time, raise Refused with the flag --by in
    place of the API field.
    """
    try:
        return client.drain(name, why, by, dry_run)
    except Refused as refused:
        if refused.problem.where != "empty_by":
            raise
        raise Refused(refused.status, replace(refused.problem, where="--by")) from None


def _each(names: list[str], act: Callable[[str], NodeView], output: Format, would_be: str = "") -> int:
    """Call `act` for each node or GPU in `names`, and print the state of the returned node. With --dry-run,
    `act` changes nothing, and `would_be`, the state that the command would set (such as "drained"), is
    printed in place of the present state.
    """
    done, refusals = for_each(dict.fromkeys(names), lambda name: (name, act(name)))
    if output != Format.TABLE:
        node_table().show(output, [node for _, node in done])
    else:
        for name, node in done:
            print_note(_line(name, node, f"would be {would_be}" if would_be else ""))
            # With 'resume --dry-run', do not print the jobs that a timed drain would move or end, because the
            # resume would end the drain.
            if ":" not in name and would_be != "resumed":
                _note_leaving(node)
    return refusals[0] if refusals else 0


def _note_leaving(node: NodeView) -> None:
    """Print for each job on a node with a timed drain whether the job ends before the drain, is moved, or is
    ended. Print nothing for a node without a timed drain.
    """
    if node.drain is None:
        return
    for line in node_details.drain_lines(node.drain):
        print_note(f"  {line}")


def _line(name: str, node: NodeView, state: str = "") -> str:
    """Return one line that shows the state of the node. If `state` is not empty, the line shows this text in
    place of the state. If `name` is the name of a GPU, the line shows the state of this GPU.
    """
    number = name.partition(":")[2]
    gpu = next((each for each in node.gpus if number in (each.number, str(each.index))), None)
    if number and gpu is not None:
        why = f" ({gpu.why})" if gpu.why else ""
        jobs = f", {counted(len(gpu.jobs), 'job')} on it" if gpu.jobs else ""
        return f"GPU {node.name}:{gpu.number}: {state or f'{gpu.health.value}{why}'}{jobs}"
    jobs = f", {counted(len(node.jobs), 'job')} on it" if node.jobs else ""
    return f"node {node.name}: {state or node.state_word}{jobs}"
