"""corral doctor on real controllers: a sound site, and sites with one defect each."""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cli.doctor.connection import check_certificate
from cli.doctor.machine import read_units
from tests.programs import run_corral
from tests.systems import System

Build = Callable[..., System]


def doctor(system: System, *words: str, url: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CORRAL_URL": url or f"unix://{system.socket}", "HOME": str(system.place)}
    return run_corral("doctor", "--config", str(system.config), *words, environment=environment)


def findings(done: subprocess.CompletedProcess[str]) -> dict[str, list[dict[str, Any]]]:
    """The findings by the names of the checks."""
    body = json.loads(done.stdout)
    assert body["healthy"] == (done.returncode == 0)
    found: dict[str, list[dict[str, Any]]] = {}
    for each in body["findings"]:
        found.setdefault(each["name"], []).append(each)
    return found


def problems(done: subprocess.CompletedProcess[str], verdict: str = "fail") -> list[tuple[str, str]]:
    return [
        (name, each["found"])
        for name, all_of in findings(done).items()
        for each in all_of
        if each["verdict"] == verdict
    ]


def test_sound_site_has_no_problem(build: Build) -> None:
    system = build("gpu01", "gpu02").start()
    assert problems(doctor(system, "--fast", "-o", "json"), "warn") == [
        ("backup", "the store was never backed up")
    ]
    system.corral("admin", "backup", str(system.place / "backup.db"))
    done = doctor(system)
    assert done.returncode == 0, done.stdout
    # Agents of other tests may run on this machine. The doctor then warns of them instead.
    assert re.search(r"gpu01, gpu02: (all checks passed|.*agent)", done.stdout)
    assert not {"fail"} & {line.split()[0] for line in done.stdout.splitlines()}


def test_lost_node_and_failing_engine_are_named(build: Build) -> None:
    system = build("gpu01")
    system.sections["engines"] = {"slurm": {"type": "slurm", "login": "ada@127.0.0.1:1"}}
    system.sections["nodes"]["gpu09"] = {"ssh": "ada@127.0.0.1:1"}
    system.launch()
    system.await_answer()
    system.await_nodes("gpu01")
    found = dict(problems(doctor(system, "-o", "json")))
    assert {*found} == {"node", "engine"}
    assert found["node"].startswith("gpu09 is down")
    assert found["engine"].startswith("slurm does not answer")


def test_refused_configuration_explains_why_the_controller_is_down(build: Build) -> None:
    system = build().start()
    system.stop()
    with system.config.open("a") as file:
        file.write("\n[scheduler]\nbackfil = 3\n")
    found = dict(problems(doctor(system, "-o", "json")))
    assert "it cannot start" in found["controller"]
    assert "backfil" in found["controller"]
    assert "scheduler.toml" in found["configuration"]


def test_stopped_controller_and_one_at_another_socket_are_told_apart(build: Build) -> None:
    system = build().start()
    other = f"unix://{system.place}/other.sock"
    [(name, found)] = problems(doctor(system, "-o", "json", url=other))
    assert (name, f"process {system.controller.pid} owns the store" in found) == ("controller", True)
    system.stop()
    [(name, found)] = problems(doctor(system, "-o", "json"))
    assert (name, found.endswith("; no controller runs")) == ("controller", True)


def test_files_that_others_can_read_or_change_are_named(build: Build) -> None:
    system = build()
    system.sections["api"] = {"listen": "127.0.0.1:0"}
    system.start()
    (system.state / "token").chmod(0o644)
    assert (
        "permissions",
        f"other users may have access to {system.state}/token: it has mode 0644",
    ) in problems(doctor(system, "--fast", "-o", "json"), "warn")
    system.state.chmod(0o777)
    assert any(
        "can be written to by others" in found
        for _, found in problems(doctor(system, "--fast", "-o", "json"))
    )
    system.state.chmod(0o700)


def test_damaged_store_and_full_disk_are_named(build: Build, small_disk: Any) -> None:
    system = build()
    system.sections["controller"]["state_dir"] = str(small_disk.path / "state")
    system.sections["nodes"] = {}
    system.launch()
    system.await_answer()
    found = dict(problems(doctor(system, "--fast", "-o", "json")))
    assert f"free at {small_disk.path}/state" in found["disk"]
    system.stop()
    database = small_disk.path / "state" / "corral.db"
    database.write_bytes(b"not a database" * 1_000)
    assert "store" in dict(problems(doctor(system, "-o", "json")))


def test_token_that_is_refused_is_named(build: Build, tmp_path: Path) -> None:
    system = build()
    system.sections["api"] = {"listen": "127.0.0.1:0"}
    system.start()
    with system.client() as client:
        url = client.controllers().leader
    environment = {**os.environ, "CORRAL_URL": url, "CORRAL_TOKEN": "wrong", "HOME": str(tmp_path)}
    done = run_corral("doctor", "-o", "json", environment=environment)
    assert [name for name, _ in problems(done)] == ["token"]


def test_ends_of_certificates_are_told() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "head1")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)

    def ends_after(days: int) -> bytes:
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 90 * day)
            .not_valid_after(now + days * day)
            .sign(key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

    verdicts = [check_certificate(ends_after(days), "here").verdict for days in (-3, 3, 300)]
    assert verdicts == ["fail", "warn", "ok"]


def test_failed_units_are_named() -> None:
    listed = (
        "corral-controller.service loaded failed failed Corral controller (GPU cluster scheduler)\n"
        "corral-backup.timer loaded active waiting Backup\n"
        "corral-web.service loaded active running Corral web UI\n"
    )
    assert [(each.verdict, each.found) for each in read_units(listed)] == [
        ("fail", "corral-controller.service has failed"),
        ("ok", "corral-web.service is active (running)"),
    ]
