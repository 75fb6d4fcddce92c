"""corral doctor: checks a site from end to end, and says what to correct."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cli.doctor.cluster import check_cluster
from cli.doctor.connection import TIMEOUT_S, NoController, check_connection
from cli.doctor.findings import FAIL, OK, WARN, Diagnosis, Finding, diagnosis
from cli.doctor.machine import check_machine, why_down
from cli.exit_codes import FAILED
from cli.flags import option, switch
from cli.output.formats import Column, Format, Output, Table, write
from cli.output.stderr import coloured, print_note
from cli.output.table_columns import GREEN, RED, YELLOW
from cli.registry import application, examples
from wire.http import addresses
from wire.http.client import Client, Unreachable
from wire.text import counted, printable

app = application()
_COLOURS = {OK: GREEN, WARN: YELLOW, FAIL: RED}


@app.command(
    epilog=examples(
        "corral doctor",
        "corral doctor --fast                           do not log in to nodes, and test no engine",
        "corral doctor --config /etc/corral/scheduler.toml",
        "corral doctor -o json",
    )
)
def doctor(
    config: Annotated[
        str,
        option(
            "--config", "FILE", "The configuration to check. Default: the file of the running controller."
        ),
    ] = "",
    fast: Annotated[
        bool, switch("--fast", "Do not log in to the nodes, and do not test the engines.")
    ] = False,
    output: Output = Format.TABLE,
) -> int:
    """Check the whole site: the way to the controller, its configuration, store and files, the leader and its
    standbys, nodes, engines and notifications. Each line has a result (ok, warn or fail) and the remedy.

    If no controller answers, the command says why. The configuration, the store and the files are checked
    only on the controller's machine. Root or the controller's user can check all of them. The exit code is 1
    if a check has failed; warnings do not change the exit code.
    """
    found = _examine(config, thorough=not fast)
    if output in (Format.TABLE, Format.WIDE):
        for each in found.findings:
            write(_lines(each))
        sys.stdout.flush()
        count = {word: sum(each.verdict == word for each in found.findings) for word in (FAIL, WARN)}
        print_note(f"{counted(count[FAIL], 'problem')}, {counted(count[WARN], 'warning')}")
    else:
        finding_table().show(output, found.findings, found)
    return 0 if found.healthy else FAILED


def _examine(config: str, *, thorough: bool) -> Diagnosis:
    """Run all checks that are possible here.

    1. Check the way to the controller.
    2. If the controller runs on this machine, or if none answers at a unix socket, check the machine.
    3. If the controller answers, check the cluster. Otherwise find out why no controller answers.
    """
    try:
        client = Client(timeout_s=TIMEOUT_S)
    except Unreachable as failure:
        return diagnosis([Finding("address", FAIL, str(failure), failure.hint)])
    with client:
        here = client.url.startswith("unix:")
        try:
            connection = check_connection(client)
        except NoController as failed:
            file = addresses.find_config(config)
            machine = check_machine(file) if here or config else []
            explains = failed.down and machine
            reason = why_down(machine, file, failed.failure) if explains else failed.failure
            return diagnosis([*failed.findings, reason, *machine])
        named = config or client.config().file
        machine = check_machine(Path(named) if named else None) if here or config else []
        return diagnosis([*connection, *machine, *check_cluster(client, thorough=thorough)])


def _lines(finding: Finding) -> str:
    verdict = f"{finding.verdict:6}"
    if coloured(sys.stdout):
        verdict = f"\x1b[{_COLOURS[finding.verdict]}m{verdict}\x1b[0m"
    lines = [f"{verdict}{printable(finding.name):15}{printable(finding.found, 500)}"]
    lines += [f"{'':21}→ {printable(each, 500)}" for each in finding.remedy.splitlines()]
    return "".join(f"{line}\n" for line in lines)


def finding_table() -> Table[Finding]:
    """Return the table of findings for -o csv and -o name."""
    return Table(
        [
            Column("VERDICT", lambda each: each.verdict),
            Column("CHECK", lambda each: each.name),
            Column("FOUND", lambda each: each.found),
            Column("REMEDY", lambda each: each.remedy),
        ],
        lambda each: each.name.replace(" ", "-"),
        kind=Finding,
    )
