"""corral nodes add, check, trust, remove: hosts join and leave the cluster."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cli import complete
from cli.bulk import each
from cli.commands import examples
from cli.exits import FAILED, Mistake
from cli.hosts import requests
from cli.looking import LOOK_S, Looked, agreed, at_once, look, show
from cli.messages import note
from cli.output import Column, Format, Output, Table, write_json
from cli.tables import RED
from wire.api.nodes import NodeRequest, NodeView, Preflight
from wire.client import Client, Refused
from wire.hosts import HostSpec
from wire.text import counted, plain

JOIN_S = 20.0

Names = Annotated[
    list[str], typer.Argument(metavar="NODE", autocompletion=complete.nodes, show_default=False)
]
Hosts = Annotated[list[str], typer.Argument(metavar="NAME [ADDRESS]", show_default=False)]
HostsFile = Annotated[
    Path | None,
    typer.Option(
        "--hosts-file", metavar="FILE", help="Lines of NAME [ADDRESS] [KEY=VALUE]…; # begins a comment."
    ),
]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Ask nothing: host keys are taken as they are shown.")]
Fingerprint = Annotated[
    str,
    typer.Option(
        "--fingerprint", metavar="SHA256:…", help="The host key it must have; then nothing is asked."
    ),
]


def add(
    hosts: Hosts = [],  # noqa: B006 - never changed
    hosts_file: HostsFile = None,
    identity: Annotated[
        str,
        typer.Option(
            "--identity", metavar="FILE", help="The key to log in with, on the controller's machine."
        ),
    ] = "",
    gpus: Annotated[
        str, typer.Option("--gpus", metavar="WHAT", help="auto, none, nvml or simulated:8xH100.")
    ] = "auto",
    cpus: Annotated[
        int | None, typer.Option("--cpus", metavar="N", help="CPUs for jobs, if not all.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="512G", help="Memory for jobs, if not all.")
    ] = None,
    scratch: Annotated[
        str | None, typer.Option("--scratch", metavar="2T", help="Local disk for jobs, if not what is free.")
    ] = None,
    scratch_dir: Annotated[
        str, typer.Option("--scratch-dir", metavar="DIR", help="Where that lies there; otherwise /var/tmp.")
    ] = "",
    label: Annotated[
        list[str], typer.Option("--label", metavar="KEY=VALUE", help="For --select; repeatable.")
    ] = [],  # noqa: B006
    python: Annotated[str, typer.Option("--python", metavar="PATH", help="Python 3.9 or newer there.")] = "",
    spool: Annotated[
        str, typer.Option("--spool", metavar="DIR", help="Where attempts and logs are kept there.")
    ] = "",
    address: Annotated[str, typer.Option("--address", metavar="IP", help="Where other hosts reach it.")] = "",
    run_as_self: Annotated[
        bool, typer.Option("--run-as-self", help="Run all jobs as whom we log in as, even as root.")
    ] = False,
    yes: Yes = False,
    fingerprint: Fingerprint = "",
    output: Output = Format.TABLE,
) -> int:
    """Add GPU hosts that SSH reaches: look at them first, pin their keys, and let them join.

    The controller logs in as its own user, with the keys, SSH agent and ~/.ssh/config (ProxyJump too) of that
    user. Hosts need nothing but SSH and Python 3.9. A node that is there gets the new address and options.
    """
    common = HostSpec(
        "",
        identity,
        python,
        spool,
        address,
        gpus,
        cpus,
        memory,
        dict(_label(text) for text in label),
        run_as_self,
        scratch,
        scratch_dir,
    )
    wanted = requests(hosts, hosts_file, common)
    if len(wanted) > 1:
        note(f"looking at {counted(len(wanted), 'host')}")
    looked = look(wanted, yes, fingerprint)
    failed = show([result for _, result in looked], output, ready=False)
    return max(failed, _join_all(looked, output))


def check(names: Names, output: Output = Format.TABLE) -> int:
    """Look at the hosts of nodes once more: one line each for what joining needs."""
    looked = look([NodeRequest(name) for name in names], False, "", keys=False)
    return show([result for _, result in looked], output)


def trust(names: Names, yes: Yes = False, fingerprint: Fingerprint = "") -> int:
    """Pin the host keys that nodes show now, after their hosts were installed anew."""
    code = 0
    for name in names:
        result = Client(timeout_s=LOOK_S).preflight(NodeRequest(name))
        if not result.host_key:
            show([result], Format.TABLE)
            code = FAILED
        elif agreed(result, yes, fingerprint):
            Client().trust(name, result.host_key)
            note(f"node {name}: {result.fingerprint} is pinned")
        else:
            code = FAILED
    return code


def remove(names: Names, output: Output = Format.TABLE) -> int:
    """Remove nodes that no job needs any more; what their agents have on disk stays."""
    client = Client()
    done, refusals = each(dict.fromkeys(names), client.remove_node)
    if output is Format.JSON:
        write_json(done)
    for node in done:
        note(f"node {node.name}: removed")
    return refusals[0] if refusals else 0


def lost(names: Names, yes: Yes = False) -> int:
    """Declare that nothing runs on nodes any more: you have looked, or pulled the plug.

    Jobs whose on_node_lost is manual or requeue-after-lease start anew elsewhere at once, all others end as
    failed. If they do run on after all, they run twice.
    """
    if not yes and sys.stdin.isatty():
        question = f"Does nothing run on {', '.join(names)} any more? [y/N]"
        print(plain(question, 500), end=" ", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
            return FAILED
    done, refusals = each(dict.fromkeys(names), Client().declare_lost)
    for node in done:
        note(f"node {node.name}: declared lost")
    return refusals[0] if refusals else 0


ADD_EXAMPLES = examples(
    "corral nodes add gpu01                          as ~/.ssh/config knows it",
    "corral nodes add gpu01 ada@10.0.0.7:2222",
    "corral nodes add gpu01 gpu02 gpu03 --label rack=r1 --yes",
    "corral nodes add --hosts-file hosts.txt",
)


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise Mistake(f"cannot read label {text!r}", "Write KEY=VALUE.")
    return key, value


# --- joining ---


@dataclass(frozen=True)
class Arrival:
    """What came of one host."""

    name: str
    address: str
    joined: bool
    result: str
    why: str


def _join_all(looked: Sequence[Looked], output: Format) -> int:
    """Those that are ready, all at once; whoever is interrupted learns how far it went."""
    ready = [replace(request, host_key=result.host_key) for request, result in looked if result.ready]
    added: list[str] = []
    try:
        come = {arrival.name: arrival for arrival in at_once(ready, partial(_join, added=added))}
    except KeyboardInterrupt:
        note(f"interrupted: {', '.join(sorted(added)) or 'none'} added; the same command goes on from here")
        raise
    arrivals = [come.get(request.name) or _not_ready(request, result) for request, result in looked]
    if len(arrivals) > 1 and output in (Format.TABLE, Format.WIDE):
        _table().show(output, arrivals)
        joined = sum(arrival.joined for arrival in arrivals)
        note(f"{joined} of {counted(len(arrivals), 'host')} joined")
    else:
        for arrival in come.values():
            note(f"node {arrival.name}: {arrival.result}{' with ' if arrival.joined else ': '}{arrival.why}")
    return 0 if all(arrival.joined for arrival in arrivals) else FAILED


def _table() -> Table[Arrival]:
    return Table(
        [
            Column("NODE", lambda each: each.name, least=8),
            Column("ADDRESS", lambda each: each.address, keep=1, least=12),
            Column("RESULT", lambda each: each.result, colour=lambda each: "" if each.joined else RED),
            Column("WHY", lambda each: each.why, least=20),
        ],
        lambda each: each.name,
    )


def _not_ready(request: NodeRequest, result: Preflight) -> Arrival:
    first = next(check for check in result.checks if check.verdict not in ("ok", "note"))
    why = f"{first.name}: {first.found}" if first.verdict == "failed" else "its host key is not known"
    return Arrival(request.name, result.address, False, "not ready", why)


def _join(request: NodeRequest, added: list[str]) -> Arrival:
    """Add it, and stay until it is up or it is known why not."""
    address = request.host.ssh if request.host is not None else ""
    try:
        with Client() as client:
            node = client.add_node(request)
            added.append(node.name)
            deadline = time.monotonic() + JOIN_S
            while node.state.away and time.monotonic() < deadline:
                time.sleep(0.1)
                node = client.node(request.name)
    except Refused as refused:
        problem = refused.problem
        return Arrival(request.name, address, False, "refused", f"{problem.message} {problem.hint}".strip())
    if node.state.away:
        return Arrival(
            request.name, address, False, "added, and not there yet", node.why or "it says nothing"
        )
    return Arrival(request.name, address, True, "joined", _what(node))


def _what(node: NodeView) -> str:
    models = sorted({gpu.model for gpu in node.gpus})
    gpus = ", ".join(f"{sum(gpu.model == model for gpu in node.gpus)} × {model}" for model in models)
    return f"{gpus or 'no GPUs'}, {node.cpu_milli // 1000} CPUs"
