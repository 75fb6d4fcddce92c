"""corral nodes add, check, trust, remove: hosts join and leave the cluster."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from cli import complete
from cli.bulk import each
from cli.commands import examples
from cli.exits import FAILED, Mistake
from cli.hosts import requests
from cli.messages import coloured, note, refusal
from cli.output import Format, Output, write, write_json
from wire.api.nodes import Check, NodeRequest, NodeView, Preflight
from wire.client import Client, Refused
from wire.hosts import HostSpec
from wire.text import plain

AT_ONCE = 16
"""Hosts looked at together; the controller has a limit of its own."""
LOOK_S = 300.0
JOIN_S = 20.0
_COLOURS = {"ok": "32", "note": "33", "unknown": "33", "failed": "31"}

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
T = TypeVar("T")


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
    looked = _look(wanted, yes, fingerprint)
    failed = _show(looked, output)
    for request, result in looked:
        if result is not None and result.ready:
            failed = max(failed, _join(replace(request, host_key=result.host_key)))
    return failed


def check(names: Names, output: Output = Format.TABLE) -> int:
    """Look at the hosts of nodes once more: one line each for what joining needs."""
    return _show(_look([NodeRequest(name) for name in names], False, "", keys=False), output)


def trust(names: Names, yes: Yes = False, fingerprint: Fingerprint = "") -> int:
    """Pin the host keys that nodes show now, after their hosts were installed anew."""
    code = 0
    for name in names:
        result = Client(timeout_s=LOOK_S).preflight(NodeRequest(name))
        if not result.host_key:
            _show([(NodeRequest(name), result)], Format.TABLE)
            code = FAILED
        elif _agreed(result, yes, fingerprint):
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


# --- looking ---

Looked = tuple[NodeRequest, Preflight | None]


def _look(wanted: Sequence[NodeRequest], yes: bool, fingerprint: str, keys: bool = True) -> list[Looked]:
    """All at once; then the keys that nobody knows are asked about, and those hosts looked at again."""
    if fingerprint and len(wanted) > 1:
        raise Mistake("--fingerprint is for one host", "Name one host, or pin keys with --yes.")
    looked = _all(wanted, _preflight)
    if not keys:
        return looked
    again = [
        replace(request, host_key=result.host_key)
        for request, result in looked
        if result is not None and _unknown(result) and _agreed(result, yes, fingerprint)
    ]
    seen = dict(zip((each.name for each in again), _all(again, _preflight), strict=True))
    return [seen.get(request.name, (request, result)) for request, result in looked]


def _all(wanted: Sequence[T], look: Callable[[T], Looked]) -> list[Looked]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(look, wanted))


def _preflight(request: NodeRequest) -> Looked:
    try:
        with Client(timeout_s=LOOK_S) as client:
            return request, client.preflight(request)
    except Refused as refused:
        refusal(refused.problem)
        return request, None


def _unknown(result: Preflight) -> bool:
    return any(check.verdict == "unknown" for check in result.checks)


def _agreed(result: Preflight, yes: bool, fingerprint: str) -> bool:
    """Does a person, or what a person said before, vouch for the key?"""
    if fingerprint:
        if fingerprint == result.fingerprint:
            return True
        raise Mistake(
            f"{result.name} shows {result.fingerprint}, not {fingerprint}", "Nothing was told to it.", FAILED
        )
    if yes:
        return True
    if not sys.stdin.isatty():
        note(f"{result.name}: nobody is here to vouch for {result.fingerprint}; use --yes or --fingerprint")
        return False
    question = (
        f"{result.name} ({result.address}) has the host key {result.fingerprint}. Is that its own? [y/N] "
    )
    print(plain(question, 500), end=" ", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


# --- showing ---


def _show(looked: Sequence[Looked], output: Format) -> int:
    """Of one host every line, of many those that somebody should read; gives the exit code."""
    results = [result for _, result in looked if result is not None]
    if output is Format.JSON:
        write_json(results)
    elif output is Format.NAME:
        write("".join(f"{result.name}\n" for result in results if result.ready))
    else:
        write("".join(_told(result, whole=len(looked) == 1) for result in results))
    sys.stdout.flush()
    return 0 if len(results) == len(looked) and all(result.ready for result in results) else FAILED


def _told(result: Preflight, whole: bool) -> str:
    lines = [plain(f"{result.name} at {result.address}: {'ready' if result.ready else 'not ready'}", 300)]
    for one in result.checks:
        if whole or one.verdict != "ok":
            lines += _lines(one)
    return "\n".join(lines) + "\n"


def _lines(one: Check) -> list[str]:
    verdict = f"{one.verdict:8}"
    if coloured(sys.stdout):
        verdict = f"\x1b[{_COLOURS.get(one.verdict, '0')}m{verdict}\x1b[0m"
    found = [f"  {verdict}{plain(one.name):12}{plain(one.found, 500)}"]
    return [*found, f"{'':22}→ {plain(one.remedy, 500)}"] if one.remedy else found


# --- joining ---


def _join(request: NodeRequest) -> int:
    """Add it, and stay until it is up or it is known why not."""
    client = Client()
    try:
        node = client.add_node(request)
        deadline = time.monotonic() + JOIN_S
        while node.state.away and time.monotonic() < deadline:
            time.sleep(0.1)
            node = client.node(request.name)
    except Refused as refused:
        return refusal(refused.problem)
    note(f"node {node.name}: {_joined(node)}")
    return 0 if not node.state.away else FAILED


def _joined(node: NodeView) -> str:
    if node.state.away:
        return f"added, and not there yet: {node.why}"
    models = sorted({gpu.model for gpu in node.gpus})
    gpus = ", ".join(f"{sum(gpu.model == model for gpu in node.gpus)} × {model}" for model in models)
    return f"joined with {gpus or 'no GPUs'}, {node.cpu_milli // 1000} CPUs"
