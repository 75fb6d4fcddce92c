"""Real OpenSSH servers on the loopback interface, with their own users and unusual settings."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncssh

from tests import users
from tests.limits import PATIENCE_S

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
SETTINGS = {
    "PidFile": "none",
    "UsePAM": "no",
    "StrictModes": "no",
    "PasswordAuthentication": "no",
    "Subsystem": "sftp internal-sftp",
}
numbers = itertools.count(1)


def lacking() -> str:
    """Name a requirement of these tests that this machine lacks; empty if it has all."""
    if os.geteuid() != 0:
        return "making users needs root"
    for program in ("useradd", "userdel"):
        if shutil.which(program) is None:
            return f"there is no {program} here"
    if SSHD is None:
        return "there is no OpenSSH server here (Debian: apt-get install openssh-server)"
    if PYTHON is None:
        return "there is no python3 that any user may run"
    return ""


class OpenSshServer:
    """One server and one user on it."""

    def __init__(self, place: Path, shell: str = "/bin/bash", home: str = "home", **settings: str) -> None:
        self.user = f"co{os.getpid()}x{next(numbers)}"
        self.place = place
        self.home = place / home
        subprocess.run(
            ["useradd", "-m", "-k", "/dev/null", "-d", str(self.home), "-s", shell, "-p", "*", self.user],
            check=True,
            capture_output=True,
        )
        self.uid = pwd.getpwnam(self.user).pw_uid
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.host_key.write_private_key(place / "host_key")
        (place / "host_key").chmod(0o600)
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        self.identity = place / "id"
        self.key.write_private_key(self.identity)
        self.identity.chmod(0o600)
        self.authorize("")
        self.settings = {**SETTINGS, **settings}
        self.port = 0
        self._sshd: subprocess.Popen[bytes] | None = None
        self.listen()

    def authorize(self, options: str) -> None:
        """Sets the options before the key in authorized_keys."""
        line = f"{options} {self.key.export_public_key().decode()}".lstrip()
        (self.place / "authorized_keys").write_text(line)

    def rc(self, text: str, name: str = ".bashrc") -> None:
        """A start-up file of its user's shell."""
        path = self.home / name
        path.write_text(text)
        os.chown(path, self.uid, self.uid)

    def listen(self) -> None:
        """Start the server, on its previous port after a restart."""
        assert SSHD is not None
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.port = self.port or free_port()
        settings = {
            "ListenAddress": f"127.0.0.1:{self.port}",
            "HostKey": f"{self.place}/host_key",
            "AuthorizedKeysFile": f"{self.place}/authorized_keys",
            **self.settings,
        }
        config = self.place / "sshd_config"
        config.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        with (self.place / "sshd.log").open("wb") as log:
            self._sshd = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": "/usr/bin:/bin"},
            )
        deadline = time.monotonic() + PATIENCE_S
        while b"listening" not in (log_text := (self.place / "sshd.log").read_bytes()):
            assert self._sshd.poll() is None, log_text
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def stop_listening(self) -> None:
        """Stop listening; open connections continue."""
        if self._sshd is not None:
            self._sshd.terminate()
            self._sshd.wait(PATIENCE_S)
            self._sshd = None

    def processes(self) -> list[int]:
        """Everything that runs as the host's user."""
        return users.processes(self.uid)

    def end(self) -> None:
        """Stop the server and remove its user and processes."""
        self.stop_listening()
        users.remove(self.user, self.uid)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def running_openssh_server(
    shell: str = "/bin/bash", home: str = "home", **settings: str
) -> Iterator[OpenSshServer]:
    """A server for one test. Its directory is not in $TMPDIR, which other users may not be allowed to
    enter.
    """
    place = Path(tempfile.mkdtemp(prefix="corral-openssh-", dir="/tmp"))
    place.chmod(0o755)
    try:
        made = OpenSshServer(place, shell, home, **settings)
        try:
            yield made
        finally:
            made.end()
    finally:
        shutil.rmtree(place)
