"""corral nodes add, check, trust, remove and lost: commands about the hosts of nodes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from cli import completion
from cli.commands.nodes.host_list import requests
from cli.commands.nodes.preflight import CHECK_S, CheckedHost, accepts_key, at_once, check_hosts, show
from cli.exit_codes import FAILED, CommandError
from cli.flags import argument, option, switch
from cli.jobs.for_each import for_each
from cli.output.confirmation import confirmed
from cli.output.formats import Column, Format, Output, Table, write_data
from cli.output.stderr import print_note
from cli.output.table_columns import RED
from cli.registry import examples
from wire.api.nodes import NodeRequest, NodeView, Preflight
from wire.cluster.hosts import HostSpec
from wire.cluster.mig import counted_models
from wire.http.client import Client, Refused
from wire.text import counted

JOIN_S = 20.0

Names = Annotated[list[str], argument("NODE", "Names of nodes.", autocompletion=completion.nodes)]
Hosts = Annotated[
    list[str],
    argument(
        "NAME [ADDRESS]",
        "Name of the new node, and the SSH address of its host if the address is not the name.",
    ),
]
HostsFile = Annotated[
    Path | None,
    option(
        "--hosts-file",
        "FILE",
        "File with one host on each line, written as NAME [ADDRESS] [KEY=VALUE]…. The sign # begins a "
        "comment. KEY is cpus, gpus, memory, label.NAME or another option of this command.",
    ),
]
Yes = Annotated[bool, switch("-y --yes", "Accept the SSH host keys of the hosts without asking.")]
YesLost = Annotated[bool, switch("-y --yes", "Do not ask for confirmation that no job runs on the nodes.")]
Fingerprint = Annotated[
    str,
    option(
        "--fingerprint",
        "SHA256:…",
        "Accept only an SSH host key with this fingerprint, and do not ask.",
    ),
]


def add(
    hosts: Hosts = [],  # noqa: B006 - never changed
    hosts_file: HostsFile = None,
    identity: Annotated[
        str,
        option(
            "--identity", "FILE", "File of the private key for the SSH login, on the controller's machine."
        ),
    ] = "",
    gpus: Annotated[
        str,
        option(
            "--gpus",
            "GPUS",
            "GPUs of the host: auto (NVIDIA GPUs, or none without a driver), none, nvml (NVIDIA GPUs; the "
            "agent does not start without the driver), or simulated GPUs (e.g. simulated:8xH100). "
            "Default: auto.",
        ),
    ] = "auto",
    cpus: Annotated[
        int | None, option("--cpus", "N", "Number of CPUs of the host that jobs may use. Default: all.")
    ] = None,
    memory: Annotated[
        str | None,
        option("--memory", "SIZE", "Memory of the host that jobs may use (e.g. 512G). Default: all."),
    ] = None,
    scratch: Annotated[
        str | None,
        option(
            "--scratch",
            "SIZE",
            "Space on the local disk that jobs may use (e.g. 2T). Default: the free space.",
        ),
    ] = None,
    scratch_dir: Annotated[
        str,
        option(
            "--scratch-dir",
            "DIR",
            "Directory on the host in which jobs get the disk space that they request with "
            "--scratch. Default: /var/tmp.",
        ),
    ] = "",
    label: Annotated[
        list[str],
        option(
            "--label",
            "KEY=VALUE",
            "Label of the node; jobs can request nodes with this label (--select). May be repeated.",
        ),
    ] = [],  # noqa: B006
    python: Annotated[
        str,
        option("--python", "PATH", "Path of Python 3.9 or newer on the host. Default: the Python in PATH."),
    ] = "",
    spool: Annotated[
        str,
        option(
            "--spool",
            "DIR",
            "Directory on the host for the agent's records and the logs of jobs. Default: "
            "~/.corral/nodes/NAME.",
        ),
    ] = "",
    address: Annotated[
        str,
        option("--address", "IP", "Address at which other hosts reach this host. Default: its SSH address."),
    ] = "",
    run_as_self: Annotated[
        bool,
        switch("--run-as-self", "Run all jobs as the user of the SSH login, even if this user is root."),
    ] = False,
    yes: Yes = False,
    fingerprint: Fingerprint = "",
    output: Output = Format.TABLE,
) -> int:
    """Add GPU hosts as nodes: check them over SSH, save their SSH host keys, and start an agent on each.

    The controller logs in to the hosts as its own user, with the keys, SSH agent and ~/.ssh/config (also
    ProxyJump) of this user. Hosts need only SSH and Python 3.9 or newer. If a node with the same name exists,
    the node gets the new address and options.
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
        print_note(f"checking {counted(len(wanted), 'host')}")
    checked = check_hosts(wanted, yes, fingerprint)
    failed = show([result for _, result in checked], output, ready=False)
    return max(failed, _join_all(checked, output))


def check(names: Names, output: Output = Format.TABLE) -> int:
    """Repeat the checks of 'corral nodes add' on the hosts of nodes, and print the result of each check."""
    checked = check_hosts([NodeRequest(name) for name in names], False, "", keys=False)
    return show([result for _, result in checked], output)


def trust(names: Names, yes: Yes = False, fingerprint: Fingerprint = "") -> int:
    """Accept the SSH host keys that the hosts of these nodes have now, for example after a reinstallation."""
    code = 0
    for name in names:
        result = Client(timeout_s=CHECK_S).preflight(NodeRequest(name))
        if not result.host_key:
            show([result], Format.TABLE)
            code = FAILED
        elif accepts_key(result, yes, fingerprint):
            Client().trust(name, result.host_key)
            print_note(f"node {name}: {result.fingerprint} is pinned")
        else:
            code = FAILED
    return code


def remove(names: Names, output: Output = Format.TABLE) -> int:
    """Remove nodes that have no jobs. The files of the agent stay on the host."""
    client = Client()
    done, refusals = for_each(dict.fromkeys(names), client.remove_node)
    if output.is_data:
        write_data(output, done)
    for node in done:
        print_note(f"node {node.name}: removed")
    return refusals[0] if refusals else 0


def lost(names: Names, yes: YesLost = False) -> int:
    """Declare nodes lost, after you have switched them off or checked that no job runs on them.

    Jobs with --on-node-lost manual or requeue-after-lease are queued again at once. All other jobs of these
    nodes end as failed, unless their --restart option queues them again. If a job still runs on a lost node,
    the job may run twice.
    """
    question = f"Is it certain that no job runs on {', '.join(names)} any more?"
    if not yes and sys.stdin.isatty() and not confirmed(question):
        return FAILED
    done, refusals = for_each(dict.fromkeys(names), Client().declare_lost)
    for node in done:
        print_note(f"node {node.name}: declared lost")
    return refusals[0] if refusals else 0


ADD_EXAMPLES = examples(
    "corral nodes add gpu01                          with the address from ~/.ssh/config",
    "corral nodes add gpu01 ada@10.0.0.7:2222",
    "corral nodes add gpu01 gpu02 gpu03 --label rack=r1 --yes",
    "corral nodes add --hosts-file hosts.txt",
)


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise CommandError(f"cannot read label {text!r}", "Write KEY=VALUE.")
    return key, value


@dataclass(frozen=True)
class Arrival:
    name: str
    address: str
    joined: bool
    result: str
    why: str


def _join_all(checked: Sequence[CheckedHost], output: Format) -> int:
    """Add all hosts that have passed the checks, in parallel. After Ctrl-C, print which hosts have already
    been added.
    """
    ready = [replace(request, host_key=result.host_key) for request, result in checked if result.ready]
    added: list[str] = []
    try:
        by_name = {arrival.name: arrival for arrival in at_once(ready, partial(_join, added=added))}
    except KeyboardInterrupt:
        print_note(
            f"interrupted: {', '.join(sorted(added)) or 'none'} added; run the command again for the others"
        )
        raise
    arrivals = [by_name.get(request.name) or _not_ready(request, result) for request, result in checked]
    if len(arrivals) > 1 and output in (Format.TABLE, Format.WIDE):
        _table().show(output, arrivals)
        joined = sum(arrival.joined for arrival in arrivals)
        print_note(f"{joined} of {counted(len(arrivals), 'host')} joined")
    else:
        for arrival in by_name.values():
            print_note(
                f"node {arrival.name}: {arrival.result}{' with ' if arrival.joined else ': '}{arrival.why}"
            )
    return 0 if all(arrival.joined for arrival in arrivals) else FAILED


def _table() -> Table[Arrival]:
    return Table(
        [
            Column("NODE", lambda each: each.name, narrow=8),
            Column("ADDRESS", lambda each: each.address, rank=1, narrow=12),
            Column("RESULT", lambda each: each.result, colour=lambda each: "" if each.joined else RED),
            Column("WHY", lambda each: each.why, narrow=20),
        ],
        lambda each: each.name,
        kind=Arrival,
    )


def _not_ready(request: NodeRequest, result: Preflight) -> Arrival:
    first = next(check for check in result.checks if check.verdict not in ("ok", "note"))
    why = f"{first.name}: {first.found}" if first.verdict == "failed" else "its host key is not known"
    return Arrival(request.name, result.address, False, "not ready", why)


def _join(request: NodeRequest, added: list[str]) -> Arrival:
    """Add one host, and wait at most JOIN_S seconds until its node is up. Return the result, with the reason
    if the node is not up. The name of an added node is appended to `added` at once, so that the caller can
    print the name after Ctrl-C.
    """
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
            request.name,
            address,
            False,
            "added, but its agent has not connected yet",
            node.why or "the reason is unknown",
        )
    return Arrival(request.name, address, True, "joined", _what(node))


def _what(node: NodeView) -> str:
    gpus = counted_models((gpu.number, gpu.model) for gpu in node.gpus)
    return f"{gpus or 'no GPUs'}, {node.cpu_milli // 1000} CPUs"
