"""corral nodes …: nodes and their GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from cli import complete, facts, joining, marks
from cli.bulk import each
from cli.commands import application, examples
from cli.exits import Mistake
from cli.messages import note
from cli.output import Format, Output, write, write_facts, write_json
from cli.tables import gpu_table, node_table, process_table, processes_of
from wire.api.nodes import NodeView
from wire.client import Client
from wire.text import counted

Name = Annotated[str, typer.Argument(metavar="NODE", autocompletion=complete.nodes, show_default=False)]
Names = Annotated[
    list[str], typer.Argument(metavar="NODE", autocompletion=complete.nodes, show_default=False)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show which nodes, change nothing.")]

app = application(invoke_without_command=True)


@app.callback(
    epilog=examples("corral nodes", "corral nodes show gpu01", "corral nodes drain gpu01 --why 'new fan'")
)
def bare(context: typer.Context, output: Output = Format.TABLE) -> int:
    """Show nodes and their GPUs; add, drain, label, taint and remove them. Without a command: list them."""
    return listing(output) if context.invoked_subcommand is None else 0


@app.command("list", epilog=examples("corral nodes list -o wide", "corral nodes list -o json"))
def listing(output: Output = Format.TABLE) -> int:
    """List all nodes, and how much of each is taken."""
    body = Client().nodes()
    node_table().show(output, body.nodes, body)
    return 0


@app.command(epilog=examples("corral nodes show gpu01", "corral nodes show gpu01 -o wide"))
def show(name: Name, output: Output = Format.TABLE) -> int:
    """Show one node: its NUMA nodes, its GPUs and what runs on them."""
    node = Client().node(name)
    if output is Format.JSON:
        write_json(node)
    elif output in (Format.NAME, Format.CSV):
        gpu_table().show(output, node.gpus)
    else:
        write_facts(facts.of_node(node))
        if node.gpus:
            write("\n")
            gpu_table().show(output, node.gpus)
        found = processes_of(node.gpus)
        if found:
            write("\n")
            process_table().show(output, found)
    return 0


@app.command(epilog=examples("corral nodes drain gpu01 --why 'new fan'", "corral nodes drain gpu01 gpu02"))
def drain(
    names: Names,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="For everybody to see.")] = "",
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Let nodes finish what they run and take nothing new."""
    client = Client()
    return _each(names, client.node if dry_run else lambda name: client.drain(name, why), output)


@app.command(epilog=examples("corral nodes resume gpu01", "corral nodes resume gpu01:3"))
def resume(names: Names, dry_run: DryRun = False, output: Output = Format.TABLE) -> int:
    """Let drained nodes, or single GPUs as NODE:GPU, take work again."""
    client = Client()

    def act(name: str) -> NodeView:
        node, gpu = _split(name)
        if dry_run:
            return client.node(node)
        return client.resume(node) if gpu is None else client.resume_gpu(node, gpu)

    return _each(names, act, output)


@app.command(epilog=examples("corral nodes cordon gpu01:3 --why 'noisy fan'"))
def cordon(
    names: Annotated[list[str], typer.Argument(metavar="NODE:GPU", show_default=False)],
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="For everybody to see.")] = "",
    dry_run: DryRun = False,
    output: Output = Format.TABLE,
) -> int:
    """Let single GPUs take nothing new until they are resumed; what runs on them goes on."""
    client = Client()

    def act(name: str) -> NodeView:
        node, gpu = _split(name)
        if gpu is None:
            message = f"{name!r} names no GPU"
            raise Mistake(message, f"Write {name}:0; or 'corral nodes drain {name}' for the whole node.")
        return client.node(node) if dry_run else client.cordon_gpu(node, gpu, why)

    return _each(names, act, output)


def _split(name: str) -> tuple[str, int | None]:
    """gpu01 or gpu01:3."""
    node, colon, gpu = name.rpartition(":")
    if not colon:
        return name, None
    if not (gpu.isascii() and gpu.isdigit() and len(gpu) < 6):
        raise Mistake(f"{name!r} names no GPU", "Write NODE:GPU, such as gpu01:3.")
    return node, int(gpu)


app.command("add", epilog=joining.ADD_EXAMPLES)(joining.add)
app.command("check", epilog=examples("corral nodes check gpu01"))(joining.check)
app.command("trust", epilog=examples("corral nodes trust gpu01 --fingerprint SHA256:…"))(joining.trust)
app.command("lost", epilog=examples("corral nodes lost gpu01"))(joining.lost)
app.command("remove", epilog=examples("corral nodes remove gpu01 gpu02"))(joining.remove)
app.command("taint", epilog=marks.TAINT_EXAMPLES)(marks.taint)
app.command(
    "label", epilog=examples("corral nodes label gpu01 rack=r2 disk=nvme", "corral nodes label gpu01 rack-")
)(marks.label)


def _each(names: list[str], act: Callable[[str], NodeView], output: Format) -> int:
    done, refusals = each(dict.fromkeys(names), act)
    if output is not Format.TABLE:
        node_table().show(output, done)
    else:
        for node in done:
            jobs = f", {counted(len(node.jobs), 'job')} on it" if node.jobs else ""
            note(f"node {node.name}: {node.state.value}{jobs}")
    return refusals[0] if refusals else 0
