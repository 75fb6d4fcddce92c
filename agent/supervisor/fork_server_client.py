"""The agent's connection to the fork server: starts it, sends launch specs without blocking, and detects
its exit.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
from pathlib import Path

from agent.attempts.launch_spec import LaunchSpec
from wire.program_parts import FORK_SERVER

JOB_OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""The limit of open files for jobs: the limit that the agent had before it raised its own."""


class ForkServerClient:
    def __init__(self, hints: Path, log: Path) -> None:
        agent_end, server_end = socket.socketpair()
        with server_end, open(log, "ab", opener=_private) as stderr:
            self._process = subprocess.Popen(
                FORK_SERVER.command(str(hints), str(JOB_OPEN_FILES)),
                stdin=server_end.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd="/",
                env={"LANG": "C.UTF-8", "LD_BIND_NOW": "1", "CORRAL_SPOOL": str(hints.parent)},
                start_new_session=True,
            )
        agent_end.setblocking(False)
        self._socket = agent_end
        self._unsent = bytearray()

    def fileno(self) -> int:
        """Return the descriptor of the socket. It becomes readable when the fork server has exited."""
        return self._socket.fileno()

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def send(self, launch: LaunchSpec) -> None:
        """Queue the launch spec of an attempt. The next `flush` writes it to the socket."""
        self._unsent += launch.pack()

    def flush(self) -> None:
        """Write queued launch specs as far as the socket accepts them. Ignore errors, because the event
        loop detects that the socket was closed.
        """
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()

    def reap(self) -> None:
        """Close the socket, kill the fork server and collect its exit status."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
