"""Checks hosts before they are added as nodes, and asks the user about host keys that are not known yet."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from cli.exit_codes import FAILED, CommandError
from cli.output.confirmation import confirmed
from cli.output.formats import Format, write, write_data
from cli.output.stderr import coloured, print_note
from wire.api.nodes import Check, NodeRequest, Preflight
from wire.http.client import Client, Refused
from wire.text import printable

AT_ONCE = 16
"""The most hosts that one command checks in parallel. The controller may check fewer hosts in parallel."""
CHECK_S = 300.0
MOST_NAMES = 5
_COLOURS = {"ok": "32", "note": "33", "unknown": "33", "failed": "31"}
ONE_MACHINE = Check(
    "agents",
    "note",
    "these nodes are one machine: they have the same boot id",
    "Its CPUs and memory count once for each node: keep one node, or divide them (--cpus, --memory).",
)
CheckedHost = tuple[NodeRequest, Preflight]
T = TypeVar("T")
R = TypeVar("R")


def at_once(things: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """Call `work` for each item in parallel threads, and return the results in the order of the items. The
    threads do not delay the end of the program after Ctrl-C.
    """
    waiting: queue.SimpleQueue[tuple[int, T]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, R | Exception]] = queue.SimpleQueue()

    def go_on() -> None:
        while not waiting.empty():
            try:
                place, thing = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((place, work(thing)))
            except Exception as error:
                done.put((place, error))

    for pair in enumerate(things):
        waiting.put(pair)
    for _ in range(min(AT_ONCE, len(things))):
        threading.Thread(target=go_on, daemon=True).start()
    found: dict[int, R] = {}
    while len(found) < len(things):
        place, result = done.get()
        if isinstance(result, Exception):
            raise result
        found[place] = result
    return [found[place] for place in range(len(things))]


def check_hosts(
    wanted: Sequence[NodeRequest], yes: bool, fingerprint: str, keys: bool = True
) -> list[CheckedHost]:
    """Check all hosts. If `keys` is true, ask the user about unknown SSH host keys, and check a host again
    after its key was accepted.
    """
    if fingerprint and len(wanted) > 1:
        raise CommandError(
            "--fingerprint works with one host only",
            "Name one host, or accept the keys of all hosts with --yes.",
        )
    checked = at_once(wanted, _preflight)
    if not keys:
        return checked
    again = [
        replace(request, host_key=result.host_key)
        for request, result in checked
        if _unknown(result) and accepts_key(result, yes, fingerprint)
    ]
    seen = {request.name: (request, result) for request, result in at_once(again, _preflight)}
    return [seen.get(request.name, (request, result)) for request, result in checked]


def _preflight(request: NodeRequest) -> CheckedHost:
    try:
        with Client(timeout_s=CHECK_S) as client:
            return request, client.preflight(request)
    except Refused as refused:
        problem = refused.problem
        address = request.host.ssh if request.host is not None else ""
        check = Check("controller", "failed", problem.message, problem.hint)
        return request, Preflight(request.name, address, False, (check,))


def _unknown(result: Preflight) -> bool:
    return any(check.verdict == "unknown" for check in result.checks)


def accepts_key(result: Preflight, yes: bool, fingerprint: str) -> bool:
    """Return True if --yes, --fingerprint or the user's answer on the terminal accepts the host key. Raise
    CommandError if the host key has another fingerprint than --fingerprint.
    """
    if fingerprint:
        if fingerprint == result.fingerprint:
            return True
        raise CommandError(
            f"host {result.name} has the key {result.fingerprint}, not {fingerprint}",
            "Nothing was sent to that host.",
            FAILED,
        )
    if yes:
        return True
    if not sys.stdin.isatty():
        print_note(f"{result.name}: no terminal to confirm {result.fingerprint}; use --yes or --fingerprint")
        return False
    return confirmed(
        f"{result.name} ({result.address}) has the host key {result.fingerprint}. Is this the right key?"
    )


def show(results: Sequence[Preflight], output: Format, *, ready: bool = True) -> int:
    """Print all checks of a single host, or only the problems and notes of several hosts. Return the exit
    code of the command.

    If `ready` is false and there are several hosts, hosts without a problem are not printed.
    """
    if output.is_data:
        write_data(output, list(results))
    elif output == Format.NAME:
        write("".join(f"{result.name}\n" for result in results if result.ready))
    elif len(results) == 1:
        write(_checks_text(results[0], results[0].checks))
    else:
        for result in results:
            if ready or not result.ready:
                grave = [check for check in result.checks if check.verdict not in ("ok", "note")]
                write(_checks_text(result, grave))
        write(_notes(results))
    sys.stdout.flush()
    return 0 if all(result.ready for result in results) else FAILED


def _checks_text(result: Preflight, checks: Sequence[Check]) -> str:
    where = f" at {result.address}" if result.address else ""
    lines = [printable(f"{result.name}{where}: {'ready' if result.ready else 'not ready'}", 300)]
    for one in checks:
        lines += _lines(one)
    return "\n".join(lines) + "\n"


def _notes(results: Sequence[Preflight]) -> str:
    """Return the notes of all hosts as text. Each note is written once, below the names of the hosts that
    have this note.
    """
    noted: dict[Check, list[str]] = {}
    machines: dict[str, list[str]] = {}
    for result in results:
        machines.setdefault(result.boot_id, []).append(result.name)
        for check in result.checks:
            if check.verdict == "note":
                noted.setdefault(check, []).append(result.name)
    lines = [line for check, names in noted.items() for line in (f"{_listed(names)}:", *_lines(check))]
    for names in (names for boot_id, names in machines.items() if boot_id and len(names) > 1):
        lines += [f"{_listed(names)}:", *_lines(ONE_MACHINE)]
    return "".join(f"{line}\n" for line in lines)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return printable(f"{', '.join(names[:MOST_NAMES])}{more}", 300)


def _lines(one: Check) -> list[str]:
    verdict = f"{one.verdict:8}"
    if coloured(sys.stdout):
        verdict = f"\x1b[{_COLOURS.get(one.verdict, '0')}m{verdict}\x1b[0m"
    found = [f"  {verdict}{printable(one.name):12}{printable(one.found, 500)}"]
    return [*found, f"{'':22}→ {printable(one.remedy, 500)}"] if one.remedy else found
