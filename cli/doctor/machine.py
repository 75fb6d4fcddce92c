"""Checks the controller's machine: configuration, store, backup, files and systemd units. The controller does
not have to run.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cli.commands.service.config import NO_FILE, check_file
from cli.doctor.connection import DAY_S, check_certificate
from cli.doctor.findings import FAIL, OK, WARN, Finding, failures
from cli.doctor.permissions import as_owner_of, check_permissions
from wire.text import duration, memory

if TYPE_CHECKING:
    from controller.config import Config

BACKUP_DAYS = 7.0
"""A store whose last backup is older than this is a warning."""
LOW_MIB, MIN_MIB = 5 * 1024, 200
"""Less free space than this on the disk of the store is a warning, and a failure."""
UNIT = "corral-controller.service"


def check_machine(file: Path | None) -> list[Finding]:
    """Return the findings about the configuration `file` and what it names: store, files and certificates.

    If the configuration is refused, only the findings about the configuration and the units are returned.
    """
    checked = check_file(file)
    if checked.config is None:
        remedy = "Correct the file: corral config check"
        found = [Finding("configuration", FAIL, str(each), remedy) for each in checked.problems]
        return [*found, *check_units()]
    found = [Finding("configuration", OK, f"{file or NO_FILE}: no problem")]
    found += [Finding("configuration", WARN, str(each), each.hint) for each in checked.warnings]
    config = checked.config
    if not config.state_dir.exists():
        remedy = "Start the controller once, or mount the disk of [controller] state_dir."
        return [*found, Finding("store", FAIL, f"{config.state_dir} does not exist", remedy), *check_units()]
    with as_owner_of(config.state_dir) as possible:
        if not possible:
            message = f"{config.state_dir} belongs to another user, so its files were not checked"
            found.append(Finding("store", WARN, message, "Run 'corral doctor' as root on this machine."))
        else:
            found += check_permissions(config)
            found += check_store(config)
            found += _certificates(config)
    return [*found, *check_units()]


def check_store(config: Config) -> list[Finding]:
    """Return the findings about the store: readable, writable, free space and the age of the last backup."""
    from controller.store.errors import StoreFailure
    from controller.store.maintenance.backup_and_restore import last_backup
    from controller.store.read_only_store import StoreReader

    url = config.store_url
    try:
        head = StoreReader(url).head()
    except StoreFailure as failure:
        return [Finding("store", FAIL, failure.message, failure.hint)]
    found = [Finding("store", OK, f"the journal ends at entry {head.seq}"), _space(config.state_dir)]
    if not url.startswith("sqlite:///"):
        return found
    database = Path(url.removeprefix("sqlite:///"))
    if not os.access(database, os.W_OK) or not os.access(database.parent, os.W_OK):
        remedy = "Mount the disk for writing, or correct the owner and the mode of the directory."
        found.append(Finding("store", FAIL, f"{database} cannot be written", remedy))
    if database.parent != config.state_dir:
        found.append(_space(database.parent))
    return [*found, _backup_age(last_backup(url))]


def _space(directory: Path) -> Finding:
    there = os.statvfs(directory)
    free = there.f_bavail * there.f_frsize // (1024 * 1024)
    verdict = FAIL if free < MIN_MIB else WARN if free < LOW_MIB else OK
    remedy = (
        "" if verdict == OK else "Make room there: corral admin compact, and shorter times in [retention]."
    )
    return Finding("disk", verdict, f"{memory(free)} free at {directory}", remedy)


def _backup_age(at: float | None) -> Finding:
    remedy = "Run 'corral admin backup FILE' every night from cron or a timer."
    if at is None:
        return Finding("backup", WARN, "the store was never backed up", remedy)
    age_s = max(0.0, time.time() - at)
    words = f"the last backup is {duration(age_s)} old"
    return (
        Finding("backup", WARN, words, remedy)
        if age_s > BACKUP_DAYS * DAY_S
        else Finding("backup", OK, words)
    )


def _certificates(config: Config) -> list[Finding]:
    """Return the findings about the certificate of the controller and, with tls = "auto", its authority."""
    own = config.state_dir / "tls"
    files = [Path(config.api.certificate)] if config.api.certificate else []
    if config.api.tls == "auto" and config.api.listen:
        files += [own / "ca.pem", own / "certificate.pem"]
    found = []
    for file in files:
        try:
            found.append(check_certificate(file.read_bytes(), f"in {file}"))
        except (OSError, ValueError) as error:
            remedy = "Correct [api] certificate, or start the controller, which makes its own."
            found.append(Finding("certificate", FAIL, f"{file} cannot be read: {error}", remedy))
    return found


def check_units() -> list[Finding]:
    """Return the findings about the systemd units of Corral. Without systemd, or without such a unit, there
    are none.
    """
    command = ["systemctl", "list-units", "--all", "--plain", "--no-legend", "--no-pager", "corral*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10.0, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return read_units(done.stdout) if done.returncode == 0 else []


def read_units(listed: str) -> list[Finding]:
    """Return a finding for each unit in the output of `systemctl list-units --plain --no-legend`."""
    found = []
    for unit, _, active, sub in re.findall(r"^(\S+)\s+(\S+)\s+(\S+)\s+(\S+)", listed, re.MULTILINE):
        if active == "failed":
            remedy = f"journalctl -u {unit} -n 50, then systemctl start {unit}"
            found.append(Finding("unit", FAIL, f"{unit} has failed", remedy))
        elif unit == UNIT and active == "inactive":
            found.append(Finding("unit", WARN, f"{unit} is not running", f"systemctl start {unit}"))
        elif unit.endswith(".service"):
            found.append(Finding("unit", OK, f"{unit} is {active} ({sub})"))
    return found


def why_down(machine: list[Finding], config: Path | None, unreachable: Finding) -> Finding:
    """Return the finding `unreachable` with the reason why no controller answers on this machine.

    1. If a check of the machine has failed, the controller cannot start: name the first such check.
    2. If a process has locked the store, a controller runs and does not answer, or listens at another socket.
    3. Otherwise no controller was started.
    """
    if failed := failures(machine):
        why, remedy = f"it cannot start: {failed[0].found}", failed[0].remedy
    elif pid := _owner_of_store(config):
        why = f"process {pid} owns the store, but does not answer at this address"
        remedy = f"Use its address ([controller] socket), or look at its log. If it hangs: kill {pid}"
    else:
        why, remedy = "no controller runs", f"Start it: systemctl start {UNIT}, or corral controller"
    return replace(unreachable, found=f"{unreachable.found}; {why}", remedy=remedy)


def _owner_of_store(file: Path | None) -> int | None:
    """Return the process that has locked the SQLite store of this configuration; None if there is none."""
    from controller.config import load

    url = load(file).store_url
    lock = Path(f"{url.removeprefix('sqlite:///')}.lock")
    if not url.startswith("sqlite:///") or not lock.exists():
        return None
    inode = lock.stat().st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] == "FLOCK" and words[5].endswith(f":{inode}"):
            return int(words[4])
    return None
