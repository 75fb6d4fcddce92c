"""The agent's connection to the fork server: starts the fork server, sends launch specs without blocking, and
detects the exit of the fork server.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

from agent.attempts.launch.launch_spec import LaunchSpec
from agent.controller_channel import AgentExit
from agent.event_loop import EventLoop
from wire.program_parts import FORK_SERVER

JOB_OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""The limit of open files for jobs: the agent's own limit before the agent raised it."""


RESTART_PAUSE_S = 0.1
EARLY_END_S = 1.0
"""A fork server that ends within this many seconds after its start counts as failed."""
MAX_FAILURES = 20


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
        """Return the descriptor of the socket. The descriptor becomes readable when the fork server has
        exited.
        """
        return self._socket.fileno()

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def send(self, launch: LaunchSpec) -> None:
        """Queue the launch spec of an attempt. The next `flush` writes the launch spec to the socket."""
        self._unsent += launch.pack()

    def flush(self) -> None:
        """Write queued launch specs, as many bytes as the socket accepts. Ignore errors, because the event
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


class RestartedForkServer:
    """A fork server that is started again whenever it has ended. `on_restart` is called after each restart.
    It must send again the launch specs that the earlier fork server has not carried out.
    """

    def __init__(self, hints: Path, log: Path, loop: EventLoop, on_restart: Callable[[], None]) -> None:
        self._hints = hints
        self._log = log
        self._loop = loop
        self._on_restart = on_restart
        self._client = ForkServerClient(hints, log)
        self._started_at = time.monotonic()
        self._failures = 0

    def watch(self) -> None:
        """From now on, start another fork server whenever the present one ends."""
        self._loop.on_readable(self._client.fileno(), self._restart)

    def send(self, launch: LaunchSpec) -> None:
        """Queue the launch spec of an attempt for the next `flush`."""
        self._client.send(launch)

    def flush(self) -> None:
        """Write queued launch specs. If the socket does not accept all bytes now, the event loop writes the
        remaining bytes later.
        """
        client = self._client
        client.flush()
        self._loop.on_writable(client.fileno(), client.flush if client.has_unsent else None)

    def _restart(self) -> None:
        """Start another fork server. Raise AgentExit if the fork server cannot be started, or if more than
        MAX_FAILURES fork servers in a row ended early.
        """
        early = time.monotonic() - self._started_at < EARLY_END_S
        self._failures = self._failures + 1 if early else 0
        if self._failures > MAX_FAILURES:
            print(f"agent: supervisors cannot be started; see {self._log}", file=sys.stderr)
            raise AgentExit
        print("agent: the fork server has ended; another one is started", file=sys.stderr)
        self._loop.on_readable(self._client.fileno(), None)
        self._loop.on_writable(self._client.fileno(), None)
        self._client.reap()
        # Pause before the restart, because restarts without a pause would use a whole core if each fork
        # server fails at once.
        time.sleep(RESTART_PAUSE_S)
        try:
            self._client = ForkServerClient(self._hints, self._log)
        except OSError as error:
            print(f"agent: supervisors cannot be started: {error}", file=sys.stderr)
            raise AgentExit from None
        self._started_at = time.monotonic()
        self.watch()
        self._on_restart()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
