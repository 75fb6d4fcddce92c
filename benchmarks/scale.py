"""Measures one controller with 500 hosts over SSH: the seconds until all have joined, and the cost while they
are idle.

One process acts as all hosts (benchmarks/farm.py). The connections, handshakes, logins and channels are real,
and the process sends the same messages as agents. It runs on the same machine as the controller.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import asyncssh

from benchmarks.system import System
from benchmarks.table import heading, row
from wire.http.client import Unreachable
from wire.names import NodeState

HOSTS = 500
IDLE_S = 20.0
PATIENCE_S = 300.0
CONFIG = """
[controller]
state_dir = "{home}/state"
socket = "{home}/corral.sock"
"""
NODE = """
[nodes.{name}]
ssh = "farmer@127.0.0.1:{port}"
identity = "{home}/id"
"""


def run() -> None:
    heading(f"Scale: {HOSTS} simulated agents over real SSH connections, all in one process")
    with tempfile.TemporaryDirectory(prefix="corral-scale-") as directory:
        home = Path(directory)
        _make_keys(home)
        farm = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.farm", directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert farm.stdin is not None
        assert farm.stdout is not None
        try:
            _measure(home, int(farm.stdout.readline()), farm)
        finally:
            farm.stdin.close()
            farm.wait(30)


def _make_keys(home: Path) -> None:
    for name in ("id", "host_key"):
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(home / name)
        key.write_public_key(home / f"{name}.pub")
    (home / "home").mkdir()
    (home / "state").mkdir(mode=0o700)


def _measure(home: Path, port: int, farm: subprocess.Popen[str]) -> None:
    names = [f"gpu{number:03}" for number in range(HOSTS)]
    pinned = " ".join((home / "host_key.pub").read_text().split()[:2])
    (home / "state" / "known_hosts").write_text("".join(f"{name} {pinned}\n" for name in names))
    config = home / "scheduler.toml"
    nodes = [NODE.format(name=name, port=port, home=home) for name in names]
    config.write_text(CONFIG.format(home=home) + "".join(nodes))
    began = time.monotonic()
    with (
        open(home / "log", "wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", "controller", "--config", str(config)], stdout=log, stderr=log
        ) as controller,
    ):
        made = System(f"unix://{home}/corral.sock", controller.pid)
        try:
            _await_all(made)
            row("all joined, from the start of the controller", f"{time.monotonic() - began:.1f} s")
            row("CPU of the controller until then", f"{made.cpu_s():.1f} s")
            row("CPU of the controller for each host", f"{made.cpu_s() / HOSTS * 1000:.0f} ms")
            _measure_idle(made, farm)
            row("memory of the controller", f"{_memory_mib(controller.pid):.0f} MB")
        finally:
            controller.send_signal(signal.SIGTERM)
            controller.wait(60)


def _await_all(made: System) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(Unreachable), contextlib.closing(made.client()) as client:
            if client.cluster().nodes.get(NodeState.UP.value, 0) == HOSTS:
                return
        time.sleep(0.1)
    raise SystemExit("benchmarks: the hosts have not all joined")


def _measure_idle(made: System, farm: subprocess.Popen[str]) -> None:
    """Measure the cost of heartbeats while the hosts are idle."""
    time.sleep(2.0)  # Wait, because hosts are not idle directly after they have joined.
    cpu, before, began = made.cpu_s(), _ask(farm), time.monotonic()
    time.sleep(IDLE_S)
    used, after, passed = made.cpu_s() - cpu, _ask(farm), time.monotonic() - began
    sent = after["bytes"] - before["bytes"]
    row("CPU of the controller at rest", f"{used / passed:.1%} of a core", "25 %")
    row("heartbeats", f"{(after['pings'] - before['pings']) / passed:.0f} /s")
    row("traffic of a host at rest, both ways", f"{sent / passed / HOSTS:.0f} bytes/s", "1 kB/s")


def _ask(farm: subprocess.Popen[str]) -> dict[str, int]:
    assert farm.stdin is not None
    assert farm.stdout is not None
    farm.stdin.write("\n")
    farm.stdin.flush()
    counts: dict[str, int] = json.loads(farm.stdout.readline())
    return counts


def _memory_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0
