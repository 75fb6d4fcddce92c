"""Creates two kinds of sockets: those on which the agent listens for srun, and those on which task hosts
listen for the agent.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from contextlib import suppress

from wire import trusted_paths

_OLD_S = 3_600.0
"""An unused socket is removed this many seconds after it was created. A socket is unused if no process
listens on it. It is not removed earlier, because srun waits at the socket until the next agent of the same
node starts.
"""


def bind(path: str, *, private: bool = False) -> socket.socket:
    """Return a socket that listens at this path. If `private` is False, all users may connect. Raise OSError
    if the socket cannot be created, or UntrustedPath if another user could replace its directory.
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
        # Bind with a path relative to the open directory, because the full path may be longer than the 107
        # bytes that the address of a unix socket can have.
        listener.bind(f"/proc/self/fd/{directory}/{name}")
        # Let all users connect to a socket that is not private, because StepServer checks each connection.
        os.chmod(name, 0o600 if private else 0o666, dir_fd=directory)
        listener.listen(128)
        listener.setblocking(False)
        return listener
    finally:
        os.close(directory)


def remove(path: str) -> None:
    """Remove the socket at this path, because the process that listens on the socket is about to exit."""
    with suppress(OSError):
        os.unlink(path)


def _remove_old(directory: int) -> None:
    """Remove the unused sockets that are older than _OLD_S, such as sockets of agents of removed nodes."""
    for name in os.listdir(directory):
        with suppress(OSError):
            if name.endswith(".sock") and time.time() - os.stat(name, dir_fd=directory).st_mtime > _OLD_S:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                    sock.settimeout(0.1)
                    if sock.connect_ex(f"/proc/self/fd/{directory}/{name}") == errno.ECONNREFUSED:
                        os.unlink(name, dir_fd=directory)
