"""Makes the sockets on which the agent listens for srun, and task hosts for the agent."""

from __future__ import annotations

import errno
import os
import socket
import time
from contextlib import suppress

from wire import trusted_paths

_OLD_S = 3_600.0
"""The number of seconds after its making at which an unused socket is removed. A socket is unused if no
process listens on it. Until then, its agent may come back, and srun waits for the agent.
"""


def bind(path: str, *, private: bool = False) -> socket.socket:
    """Return a socket that listens at this path. If `private` is False, all users may connect. Raise OSError
    or UntrustedPath.
    """
    folder, name = os.path.split(path)
    directory = trusted_paths.open_directory(folder, make=True, mode=0o700 if private else 0o755)
    try:
        if os.geteuid() == 0 and not private:
            os.fchmod(directory, 0o755)
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        if not private:
            _remove_old(directory)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Bind with a path relative to the open directory, because the full path may be longer than the
        # address of a unix socket may be.
        listener.bind(f"/proc/self/fd/{directory}/{name}")
        # All users may connect to a socket that is not private, because StepServer proves each connection.
        os.chmod(name, 0o600 if private else 0o666, dir_fd=directory)
        listener.listen(128)
        listener.setblocking(False)
        return listener
    finally:
        os.close(directory)


def remove(path: str) -> None:
    """Remove the socket, because the process that listens on the socket ends."""
    with suppress(OSError):
        os.unlink(path)


def _remove_old(directory: int) -> None:
    """Remove the sockets of agents that have ended long ago, such as agents of removed nodes."""
    for name in os.listdir(directory):
        with suppress(OSError):
            if name.endswith(".sock") and time.time() - os.stat(name, dir_fd=directory).st_mtime > _OLD_S:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                    sock.settimeout(0.1)
                    if sock.connect_ex(f"/proc/self/fd/{directory}/{name}") == errno.ECONNREFUSED:
                        os.unlink(name, dir_fd=directory)
