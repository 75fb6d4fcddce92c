"""Connects to the unix socket of a controller on another machine, through ssh."""

from __future__ import annotations

import atexit
import os
import re
import select
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from contextlib import suppress

from wire.http import addresses

MARK = b"corral-tunnel-ready"
_URL = re.compile(
    r"ssh://(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})@)?"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9._-]{0,252})(?::(?P<port>\d{1,5}))?"
    r"(?P<socket>/[A-Za-z0-9/._+-]*)?"
)
_open: dict[str, Tunnel] = {}
_lock = threading.Lock()


class TunnelBroken(OSError):
    """Raised if the tunnel cannot be opened. The message is the reason, often the last error line of ssh."""


class Tunnel:
    """A running ssh process that connects a local socket to the socket of a controller on another machine.

    1. Start ssh with `-L LOCAL:REMOTE` and a remote command that prints a word and then waits for the end of
       its stdin.
    2. Wait for the word. ssh opens the tunnel before it starts the command, so the tunnel is open then.
    3. When the process that opened the tunnel ends, even by SIGKILL, the stdin of the remote command ends.
       Then the command and ssh end.

    On the other machine, sshd connects to the controller as the remote user, and the controller gets the name
    of this user from the kernel. So the client needs no token, and has the rights of the remote user.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        # mkdtemp creates the directory with mode 0700, so that other users cannot reach the socket.
        self._directory = tempfile.mkdtemp(prefix="corral-")
        self.socket = f"{self._directory}/s"
        words = ssh_command(url, self.socket)
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise TunnelBroken(f"{words[0]} cannot be run: {error.strerror}") from None
        self._errors = b""
        try:
            self._await_mark(timeout_s)
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End ssh and remove the local socket."""
        with suppress(OSError):
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _await_mark(self, timeout_s: float) -> None:
        out, errors = self._process.stdout, self._process.stderr
        assert out is not None
        assert errors is not None
        output, open_ones, deadline = b"", {out, errors}, time.monotonic() + timeout_s
        while MARK not in output:
            left = deadline - time.monotonic()
            ready = select.select(list(open_ones), [], [], max(left, 0))[0]
            if not ready:
                raise TunnelBroken(f"ssh has not connected within {timeout_s:g} s")
            for stream in ready:
                piece = os.read(stream.fileno(), 65_536)
                if not piece:
                    open_ones.discard(stream)
                elif stream is out:
                    output = (output + piece)[-65_536:]
                else:
                    self._errors = (self._errors + piece)[-4_096:]
            if not open_ones:
                raise TunnelBroken(self._why())
        threading.Thread(target=_drain, args=(errors.fileno(),), daemon=True).start()

    def _why(self) -> str:
        lines = [line for line in self._errors.decode("utf-8", "replace").splitlines() if line.strip()]
        code = self._process.wait()
        return f"ssh: {lines[-1]}" if lines else f"ssh ended with code {code}"


def ssh_command(url: str, local: str) -> list[str]:
    """Return the ssh command line that opens a tunnel to `url`. $CORRAL_SSH_COMMAND replaces the word
    `ssh`. Raise ValueError for a wrong URL.
    """
    match = _parsed(url)
    words = shlex.split(os.environ.get("CORRAL_SSH_COMMAND", "")) or ["ssh"]
    words += ["-T", "-o", "ExitOnForwardFailure=yes", "-o", "ControlMaster=no", "-o", "ControlPath=none"]
    words += ["-o", "ServerAliveInterval=15", "-L", f"{local}:{remote_socket(url)}"]
    words += ["-l", match["user"]] if match["user"] else []
    words += ["-p", match["port"]] if match["port"] else []
    return [*words, "--", match["host"].strip("[]"), f"echo {MARK.decode()}; exec cat"]


def remote_socket(url: str) -> str:
    """Return the path of the controller's socket on the other machine. Raise ValueError for a wrong URL."""
    path = _parsed(url)["socket"]
    return path if (path or "/") != "/" else str(addresses.SYSTEM_SOCKET)


def _parsed(url: str) -> re.Match[str]:
    match = _URL.fullmatch(url)
    if match is None or int(match["port"] or 22) > 65_535:
        raise ValueError("write ssh://[user@]host[:port][/path/of/the/socket]")
    return match


def open_tunnel(url: str, timeout_s: float) -> str:
    """Open a tunnel to this URL, and return the path of its local socket. A tunnel that this process has
    already opened is reused.
    """
    with _lock:
        tunnel = _open.get(url)
        if tunnel is None or not tunnel.alive:
            if tunnel is not None:
                tunnel.close()
                del _open[url]
            tunnel = _open[url] = Tunnel(url, timeout_s)
        return tunnel.socket


def close_all() -> None:
    with _lock:
        for tunnel in _open.values():
            tunnel.close()
        _open.clear()


def _drain(descriptor: int) -> None:
    # Read and discard the messages of ssh, because ssh would block on a full pipe.
    with suppress(OSError):
        while os.read(descriptor, 65_536):
            pass


atexit.register(close_all)
