"""Hosts with an OpenSSH server each, in network namespaces, and links that can be cut in one direction."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncssh

from tests import users
from tests.limits import PATIENCE_S

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
CONFIG = """\
Port 22
ListenAddress {address}
HostKey {place}/host_key
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
AuthorizedKeysFile {place}/authorized_keys
"""
numbers = itertools.count(1)


def lacking() -> str:
    """Name a requirement of these tests that this machine lacks; empty if it has all."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "useradd", "userdel"):
        if shutil.which(program) is None:
            return f"there is no {program} here"
    if SSHD is None:
        return "there is no OpenSSH server here (Debian: apt-get install openssh-server)"
    if PYTHON is None:
        return "there is no python3 that any user may run"
    probe = f"corral-probe-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True).returncode != 0:
        return "network namespaces cannot be made here"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return ""


def ip(*words: str, inside: str = "") -> None:
    subprocess.run(
        ["ip", *(["-n", inside] if inside else []), *words], check=True, capture_output=True, text=True
    )


class NetworkHost:
    """A host behind a network link. It has a separate user, and all processes of this user belong to the
    host.
    """

    def __init__(self, head: str, place: Path, key: asyncssh.SSHKey) -> None:
        number = next(numbers)
        self.name = f"far{number}"
        self.head = head
        self.namespace = f"{head}-{number}"
        self.user = f"cf{os.getpid()}x{number}"
        self.near, self.address = f"10.231.{number}.1", f"10.231.{number}.2"
        self.place = place / self.name
        self.place.mkdir(mode=0o755)
        self._lay_cable(number)
        self.home = self.place / "home"
        subprocess.run(
            ["useradd", "-m", "-d", str(self.home), "-s", "/bin/sh", "-p", "*", self.user],
            check=True,
            capture_output=True,
        )
        self.uid = pwd.getpwnam(self.user).pw_uid
        (self.place / "authorized_keys").write_bytes(key.export_public_key())
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.host_key.write_private_key(self.place / "host_key")
        (self.place / "host_key").chmod(0o600)
        self._sshd = self._listen()

    def _lay_cable(self, number: int) -> None:
        inner, outer = f"c{number}far", f"c{number}near"
        ip("netns", "add", self.namespace)
        ip(
            "link",
            "add",
            outer,
            "netns",
            self.head,
            "type",
            "veth",
            "peer",
            "name",
            inner,
            "netns",
            self.namespace,
        )
        for name, address, where in ((outer, self.near, self.head), (inner, self.address, self.namespace)):
            ip("addr", "add", f"{address}/30", "dev", name, inside=where)
            ip("link", "set", name, "up", inside=where)
        ip("link", "set", "lo", "up", inside=self.namespace)

    def _listen(self) -> subprocess.Popen[bytes]:
        assert SSHD is not None
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        config = self.place / "sshd_config"
        config.write_text(CONFIG.format(address=self.address, place=self.place))
        command = ["ip", "netns", "exec", self.namespace, SSHD, "-D", "-e", "-f", str(config)]
        with (self.place / "sshd.log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE_S
        while b"listening" not in (self.place / "sshd.log").read_bytes():
            assert process.poll() is None, (self.place / "sshd.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return process

    def cut(self, direction: str = "both") -> None:
        """Cut the link `to_host`, `from_host`, or in both directions."""
        if direction in ("to_host", "both"):
            ip("route", "add", "blackhole", f"{self.address}/32", inside=self.head)
        if direction in ("from_host", "both"):
            ip("route", "add", "blackhole", f"{self.near}/32", inside=self.namespace)

    def mend(self) -> None:
        """Repair the link."""
        for address, where in ((self.address, self.head), (self.near, self.namespace)):
            with suppress(subprocess.CalledProcessError):
                ip("route", "del", "blackhole", f"{address}/32", inside=where)

    def processes(self) -> list[int]:
        """Everything that runs as the host's user."""
        return users.processes(self.uid)

    def end(self) -> None:
        """Stop the server, and remove its user and namespace."""
        self._sshd.terminate()
        self._sshd.wait(PATIENCE_S)
        users.remove(self.user, self.uid)
        ip("netns", "del", self.namespace)


class Network:
    """A head node's namespace, and hosts around it."""

    def __init__(self) -> None:
        self.head = f"corral{os.getpid()}x{next(numbers)}"
        # Not in $TMPDIR, which other users may not be allowed to enter.
        self.place = Path(tempfile.mkdtemp(prefix="corral-network-", dir="/tmp"))
        self.place.chmod(0o755)
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        self.identity = self.place / "id"
        self.key.write_private_key(self.identity)
        self.hosts: list[NetworkHost] = []
        ip("netns", "add", self.head)
        ip("link", "set", "lo", "up", inside=self.head)

    def host(self) -> NetworkHost:
        """Add a host."""
        self.hosts.append(NetworkHost(self.head, self.place, self.key))
        return self.hosts[-1]

    def end(self) -> None:
        """Remove all hosts, namespaces and files."""
        for host in self.hosts:
            host.end()
        ip("netns", "del", self.head)
        shutil.rmtree(self.place)


@contextmanager
def network() -> Iterator[Network]:
    """A network for one test."""
    made = Network()
    try:
        yield made
    finally:
        made.end()
