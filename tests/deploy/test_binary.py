"""The binary in an empty Debian without Python: demo, controller, jobs, terminal UI, and a host over SSH."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.registry import COMMANDS
from cli.slurm.programs import PROGRAMS
from tests.clients.real_slurm import free_ports
from tests.controller.nodes import openssh_server
from tests.deploy import bare_root
from tests.deploy.bare_root import ENVIRONMENT, BareRoot
from tests.deploy.built import BINARY, outdated
from tests.limits import PATIENCE_S

WHY_NOT = outdated() or bare_root.lacking() or openssh_server.lacking()
pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "everything is there"), pytest.mark.slow]
CONFIG = """
[controller]
state_dir = "/srv/state"
socket = "/run/corral.sock"

[nodes.local1]
link = "local"
gpus = "simulated:8xH100"
run_as_self = true
"""
TLS = """
[controller]
state_dir = "/srv/tls"
socket = "/run/tls.sock"

[api]
listen = "127.0.0.1:{port}"
tls = "auto"

[engines.kube]
type = "kubernetes"
"""
URL = {"CORRAL_URL": "unix:///run/corral.sock"}


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[openssh_server.OpenSshServer]:
    """An SSH server whose user is made before the root is copied."""
    with openssh_server.running_openssh_server() as made:
        yield made


@pytest.fixture(scope="module")
def root(server: openssh_server.OpenSshServer) -> Iterator[BareRoot]:
    """An empty Debian with the binary and a running controller."""
    with bare_root.bare_root() as made:
        shutil.copy(BINARY, made.path / "usr/bin/corral")
        (made.path / "srv").mkdir(exist_ok=True)
        (made.path / "srv/scheduler.toml").write_text(CONFIG)
        made.start("corral", "controller", "--config", "/srv/scheduler.toml", log="srv/log")
        until(lambda: " up " in corral(made, "nodes", check=False), made)
        yield made


def corral(root: BareRoot, *words: str, check: bool = True) -> str:
    """What a command prints in the root."""
    return root.run("corral", *words, more=URL, check=check).stdout


def until(true: Callable[[], bool], root: BareRoot) -> None:
    """Wait for it."""
    deadline = time.monotonic() + 3 * PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, (root.path / "srv/log").read_text()
        time.sleep(0.2)


def test_job_runs_explains_itself_and_ends(root: BareRoot) -> None:
    job = corral(root, "submit", "--gpus", "2", "--workdir", "/", "--", "sh", "-c", "env; sleep 300").strip()
    until(lambda: "CORRAL_JOB_ID" in corral(root, "job", "logs", job, check=False), root)
    assert "running on local1" in corral(root, "explain", job)
    # The program's own libraries must not reach other programs.
    shown = corral(root, "job", "logs", job) + corral(root, "exec", job, "--", "env")
    assert not [line for line in shown.splitlines() if line.startswith(("LD_", "_PYI", "PYTHON"))]
    corral(root, "job", "cancel", job)
    until(lambda: "CANCELLED" in corral(root, "job", "show", job), root)
    assert "The store has no errors." in corral(root, "admin", "verify")


@pytest.mark.parametrize("name", COMMANDS)
def test_command_prints_its_help(root: BareRoot, name: str) -> None:
    """The module of a command is imported only when the command runs."""
    done = root.run("corral", name, "--help", check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: corral {name}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_command_of_slurm_prints_its_help(root: BareRoot, name: str) -> None:
    done = root.run("corral", "slurm", name, "--help", check=False)
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith(f"Usage: {name}") or f"Corral has no {name}" in done.stderr


def test_engine_types_are_known(root: BareRoot) -> None:
    """Engine types are loaded by entry points."""
    for name in ("docker", "kubernetes", "pbs", "slurm"):
        (root.path / "srv/engines.toml").write_text(f'[engines.x]\ntype = "{name}"\n')
        assert f'type = "{name}"' in corral(root, "config", "check", "/srv/engines.toml")
    for name in ("corral", "ec2", "http-function", "ipmi", "lambda", "redfish"):
        (root.path / "srv/engines.toml").write_text(f'[engines.x]\ntype = "{name}"\n')
        done = root.run("corral", "config", "check", "/srv/engines.toml", check=False)
        assert (done.returncode, "is missing" in done.stderr) == (2, True), done


def test_tls_tokens_engines_and_controllers(root: BareRoot) -> None:
    """A controller with its own certificate authority, and a client that pins it."""
    [port] = free_ports(1)
    (root.path / "srv/tls.toml").write_text(TLS.format(port=port))
    root.start("corral", "controller", "--config", "/srv/tls.toml", log="srv/tls-log")
    own = {"CORRAL_URL": "unix:///run/tls.sock"}

    def answers() -> bool:
        return root.run("corral", "token", "list", more=own, check=False).returncode == 0

    until(answers, root)
    made = root.run("corral", "token", "create", "laptop", more=own).stdout
    assert "laptop" in root.run("corral", "token", "list", more=own).stdout
    address = {"CORRAL_URL": f"https://127.0.0.1:{port}", "CORRAL_TOKEN": made.strip()}
    refused = root.run("corral", "whoami", more=address, check=False)
    assert refused.returncode != 0, "nothing trusts the authority of the controller yet"
    trusted = {**address, "CORRAL_CA": "/srv/tls/tls/ca.pem"}
    assert "root" in root.run("corral", "whoami", more=trusted).stdout
    fingerprint = re.findall(r"SHA256:\w+", (root.path / "srv/tls-log").read_text())[0]
    root.run("corral", "config", "trust", address["CORRAL_URL"], "--fingerprint", fingerprint)
    assert "root" in root.run("corral", "whoami", more=address).stdout
    assert "kubernetes" in root.run("corral", "engines", more=own).stdout
    tested = root.run("corral", "engines", "test", "kube", more=own, check=False)
    assert "/.kube/config cannot be read" in tested.stdout
    assert "leader" in root.run("corral", "controllers", more=own).stdout


def test_demo_runs_to_its_end(root: BareRoot) -> None:
    done = root.run("corral", "demo", "--no-tui")
    assert "39 jobs in" in done.stdout
    assert list((root.path / "tmp").glob("corral-demo-*")) == []


def test_simulations_run_in_processes(root: BareRoot) -> None:
    (root.path / "srv/jobs.csv").write_text("submit,gpus,duration,user\n0,1,60,ada\n10,8,60,ben\n")
    words = ("/srv/jobs.csv", "--nodes", "2", "--gpus", "8", "--compare", "fcfs,easy")
    done = root.run("corral", "sim", "run", *words)
    assert [line.split()[:2] for line in done.stdout.splitlines()[1:]] == [["fcfs", "2"], ["easy", "2"]]
    assert "corral:" not in done.stderr


def test_terminal_ui_draws_itself_and_quits(root: BareRoot) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        root.command("corral", "tui"),
        env={**ENVIRONMENT, **URL, "COLUMNS": "120", "LINES": "40"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    deadline = time.monotonic() + 3 * PATIENCE_S
    while b"GPU" not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([ours], [], [], 0.2)[0]:
            seen += os.read(ours, 65_536)
    os.write(ours, b"q")
    while process.poll() is None:
        assert time.monotonic() < deadline, seen
        if select.select([ours], [], [], 0.2)[0]:
            try:
                seen += os.read(ours, 65_536)
            except OSError:  # the terminal is closed
                break
    assert process.wait(PATIENCE_S) == 0
    os.close(ours)


def test_host_over_ssh_without_python_runs_a_job(
    root: BareRoot, server: openssh_server.OpenSshServer
) -> None:
    server.stop_listening()
    server.settings["ChrootDirectory"] = str(root.path)
    server.listen()
    home = root.path / server.home.relative_to("/")
    home.mkdir(parents=True)
    os.chown(home, server.uid, server.uid)
    shutil.copy(server.identity, root.path / "srv/id")
    address = f"{server.user}@127.0.0.1:{server.port}"
    corral(
        root,
        "nodes",
        "add",
        "far",
        address,
        "--identity",
        "/srv/id",
        "--gpus",
        "simulated:4xA100",
        "--yes",
        "--run-as-self",
    )
    until(lambda: [line.split()[1] for line in corral(root, "nodes").splitlines()[1:]] == ["up", "up"], root)
    job = corral(
        root,
        "submit",
        "--gpu-model",
        "A100",
        "--gpus",
        "1",
        "--workdir",
        "/",
        "--",
        "sh",
        "-c",
        "echo far away",
    ).strip()
    until(lambda: "COMPLETED" in corral(root, "job", "show", job), root)
    assert corral(root, "job", "logs", job) == "far away\n"
    [unpacked] = (home / ".corral/agents").iterdir()
    assert (unpacked / "corral-agent").stat().st_uid == server.uid


def test_commands_of_slurm_start_the_binary(root: BareRoot) -> None:
    corral(root, "slurm", "install", "/srv")
    assert "exec /usr/bin/corral slurm scancel" in Path(root.path / "srv/scancel").read_text()
