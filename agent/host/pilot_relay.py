"""Runs agents inside an allocation of a batch system, and connects the controller to them.

An agent ends when its connection to the controller ends, and its jobs must continue. Therefore the relay
(`serve`) is the foreground process of the allocation, and starts an agent for each connection. The controller
connects with a second process in the same allocation (`join`), which may end at any time.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress

from agent.processes import process_tree
from wire import trusted_paths

_SOCKET = "relay"
_CHUNK = 1 << 16
_LOOK_S = 1.0
"""Seconds between two searches for processes that have ended."""
_MOST_PATH = 4_096


def serve(directory: str) -> None:
    """Start an agent for each connection, until the allocation ends.

    1. Become the parent of all orphans, so that the batch system finds the processes of jobs below this
       process, and ends them with the allocation.
    2. Listen at a socket in `directory`, which only this user can enter.
    3. The first line of a connection is the path of the agent program. Start the agent, with the connection
       as stdin and stdout.
    """
    process_tree.become_subreaper("corral-pilot")
    os.close(trusted_paths.open_directory(directory, make=True))
    path = os.path.join(directory, _SOCKET)
    with suppress(FileNotFoundError):
        os.unlink(path)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(_LOOK_S)
        agents: dict[int, subprocess.Popen[bytes]] = {}
        while True:
            with suppress(socket.timeout):
                connection, _ = listener.accept()
                with connection:
                    started = _start_agent(connection)
                    if started is not None:
                        agents[started.pid] = started
            with suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG)[0]) > 0:
                    agents.pop(ended, None)


def join(directory: str, agent: str) -> None:
    """Connect stdin and stdout to a new agent in this allocation, until the agent ends."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.path.join(directory, _SOCKET))
        connection.sendall(os.fsencode(agent) + b"\n")
        threading.Thread(target=_copy_input, args=(connection,), daemon=True).start()
        while data := connection.recv(_CHUNK):
            _write(data)


def _start_agent(connection: socket.socket) -> subprocess.Popen[bytes] | None:
    """Start the agent that the first line of a connection names. Return None if the line is not complete."""
    connection.settimeout(_LOOK_S)
    line = b""
    with suppress(OSError):
        while not line.endswith(b"\n") and len(line) < _MOST_PATH:
            byte = connection.recv(1)
            if not byte:
                return None
            line += byte
    if not line.endswith(b"\n"):
        return None
    connection.settimeout(None)
    words = [sys.executable, "-I", "-S", "-X", "utf8", os.fsdecode(line[:-1]), "-"]
    return subprocess.Popen(
        words, stdin=connection.fileno(), stdout=connection.fileno(), start_new_session=True
    )


def _copy_input(connection: socket.socket) -> None:
    with suppress(OSError):
        while data := os.read(0, _CHUNK):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]
