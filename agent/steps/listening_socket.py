"""Makes the socket on which the agent listens for srun."""

from __future__ import annotations

import errno
import os
import socket
import time
from contextlib import suppress

from wire import trusted_paths

_OLD_S = 7 * 86_400.0


def bind(path: str) -> socket.socket:
    """Return a socket that listens at this path, for all users. Raise OSError or UntrustedPath."""
    folder, name = os.path.split(path)
    directory = trusted_paths.open_directory(folder, make=True, mode=0o755)
    try:
        if os.geteuid() == 0:
            os.fchmod(directory, 0o755)
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        _remove_old(directory)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Bind below the open directory: its path may be longer than the address of a socket.
        listener.bind(f"/proc/self/fd/{directory}/{name}")
        os.chmod(name, 0o666, dir_fd=directory)  # noqa: S103 - StepServer proves each connection
        listener.listen(128)
        listener.setblocking(False)
        return listener
    finally:
        os.close(directory)


def _remove_old(directory: int) -> None:
    """Remove the sockets of agents that have not listened for long, such as those of removed nodes."""
    for name in os.listdir(directory):
        with suppress(OSError):
            if name.endswith(".sock") and time.time() - os.stat(name, dir_fd=directory).st_mtime > _OLD_S:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                    sock.settimeout(0.1)
                    if sock.connect_ex(f"/proc/self/fd/{directory}/{name}") == errno.ECONNREFUSED:
                        os.unlink(name, dir_fd=directory)
