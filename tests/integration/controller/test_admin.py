"""corral admin on a real controller: verify, backup, restore and compact, also when they are killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.limits import PATIENCE_S
from tests.programs import Program, run_corral
from tests.systems import System
from wire.http.client import Client
from wire.job.spec import JobSpec

Build = Callable[..., System]
HELD = JobSpec(command=("true",), hold=True)


def admin(system: System, *words: str) -> subprocess.CompletedProcess[str]:
    """One admin command, with the configuration of this controller at hand."""
    environment = {**os.environ, "CORRAL_CONFIG": str(system.config), "CORRAL_URL": ""}
    environment["CORRAL_CONTROLLER__SOCKET"] = str(system.socket)
    return run_corral("admin", *words, environment=environment)


def parsed_output(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def submit(client: Client, count: int) -> set[int]:
    return {client.submit(HELD).ids[0] for _ in range(count)}


def test_verify_gives_the_same_result_for_a_running_and_a_stopped_store(build: Build) -> None:
    system = build().start()
    with system.client() as client:
        jobs = submit(client, 20)
        client.cancel(min(jobs))
        running = json.loads(system.corral("admin", "verify", "-o", "json"))
    assert (running["jobs"], running["compared"], running["problems"]) == (20, 20, [])
    system.stop()
    stopped = parsed_output(admin(system, "verify", "-o", "json"))
    same = ("store", "head", "seq", "jobs", "compared", "begins")
    assert [stopped[name] for name in same] == [running[name] for name in same]


def test_verify_of_a_stopped_store_finds_a_changed_entry(build: Build) -> None:
    system = build().start()
    with system.client() as client:
        submit(client, 5)
    system.stop()
    database = system.state / "corral.db"
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE journal SET at = at + 1 WHERE seq = 2")
    connection.close()
    done = admin(system, "verify")
    assert done.returncode == 1
    assert "entry 2 of the journal is not what was written" in done.stderr


def test_backup_during_submits_can_be_restored(build: Build, tmp_path: Path) -> None:
    system = build().start()
    copy = tmp_path / "copy.db"
    with system.client() as client:
        before = submit(client, 10)
        made = parsed_output(admin(system, "backup", str(copy), "-o", "json"))
        after = submit(client, 5)
    assert (made["jobs"], copy.stat().st_mode & 0o777) == (10, 0o600)
    assert admin(system, "backup", str(copy)).returncode == 1  # it never writes over a file
    refused = admin(system, "restore", str(copy), "--yes")
    assert "Another controller" in refused.stderr
    system.stop()
    assert "contains a store already" in admin(system, "restore", str(copy)).stderr
    refused = admin(system, "restore", str(copy), "--yes")
    assert "was acknowledged and is not in it" in refused.stderr
    assert parsed_output(admin(system, "verify", "-o", "json"))["jobs"] == 15
    done = parsed_output(admin(system, "restore", str(copy), "--yes", "--accept-loss", "-o", "json"))
    assert (done["jobs"], done["lost"] > 0, Path(done["moved_to"]).exists()) == (10, True, True)
    system.start()
    assert system.jobs().keys() == before
    assert not system.jobs().keys() & after


def test_backup_copies_the_store_of_the_controller_that_answers(build: Build, tmp_path: Path) -> None:
    """$CORRAL_URL names a controller, and scheduler.toml of the present directory another state directory."""
    system = build().start()
    with system.client() as client:
        submit(client, 3)
    other = tmp_path / "scheduler.toml"
    other.write_text(f'[controller]\nstate_dir = "{tmp_path / "other"}"\n')
    environment = {**os.environ, "CORRAL_CONFIG": str(other), "CORRAL_URL": f"unix://{system.socket}"}
    copy = tmp_path / "copy.db"
    made = parsed_output(
        run_corral("admin", "backup", str(copy), "-o", "json", environment=environment),
    )
    assert (made["jobs"], made["source"]) == (3, f"sqlite:///{system.state / 'corral.db'}")
    named = run_corral("admin", "backup", str(copy), "--config", str(other), environment=environment)
    assert named.returncode == 1


def test_a_damaged_backup_is_not_restored(build: Build, tmp_path: Path) -> None:
    system, copy = build().start(), tmp_path / "copy.db"
    with system.client() as client:
        client.submit(JobSpec(command=("true",), hold=True, name="precious" * 20))
    assert admin(system, "backup", str(copy)).returncode == 0
    system.stop()
    copy.write_bytes(copy.read_bytes().replace(b"preciousprecious", b"preciouspreXious"))
    refused = admin(system, "restore", str(copy), "--yes", "--accept-loss")
    assert (refused.returncode, "is damaged" in refused.stderr) == (1, True)
    assert parsed_output(admin(system, "verify", "-o", "json"))["jobs"] == 1


def test_killed_backup_leaves_no_file_under_its_name(build: Build, tmp_path: Path) -> None:
    system = build().start()
    with system.client() as client:
        client.submit(JobSpec(command=("true",), hold=True, array="0-4999"))
    url = f"sqlite:///{system.state}/corral.db"
    for number in range(6):
        copy = tmp_path / f"copy{number}.db"
        process = Program(["cli", "admin", "backup", str(copy), "--store", url], tmp_path / "log")
        deadline = time.monotonic() + PATIENCE_S
        while not Path(f"{copy}.partial").exists() and not copy.exists():
            assert time.monotonic() < deadline
            time.sleep(0.000_5)  # shorter than a backup takes, so that most are killed in their midst
        process.send(signal.SIGKILL)
        process.wait(PATIENCE_S)
        if copy.exists():  # it was renamed before: then it is whole
            checked = parsed_output(admin(system, "verify", "--store", f"sqlite:///{copy}", "-o", "json"))
            assert checked["jobs"] == 5_000
    assert admin(system, "backup", str(tmp_path / "last.db")).returncode == 0


def test_controller_killed_during_compaction_restarts_with_a_valid_chain(build: Build) -> None:
    system = build()
    system.sections["retention"] = {"jobs": 300, "journal_entries": 1_200}
    system.start()
    for number in range(3):
        with system.client() as client:
            [*ids] = client.submit(JobSpec(command=("true",), hold=True, array="0-1499")).ids
            assert len(ids) == 1_500
            system.corral("job", "cancel", *(f"{ids[0]}_{index}" for index in range(1500)))
        command = [sys.executable, "-P", "-m", "cli", "admin", "compact"]
        environment = {**os.environ, "CORRAL_URL": f"unix://{system.socket}"}
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            time.sleep(0.15 * (number + 1))
            system.kill()
        system.start()
    report = json.loads(system.corral("admin", "verify", "-o", "json"))
    assert report["problems"] == []
    done = json.loads(system.corral("admin", "compact", "-o", "json"))
    assert done["begins"] > 5_000
    report = json.loads(system.corral("admin", "verify", "-o", "json"))
    assert (report["jobs"], report["begins"], report["problems"]) == (300, done["begins"], [])
