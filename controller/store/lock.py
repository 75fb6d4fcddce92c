"""One owner per file: a lock that dies with its process, and a name to tell the next one."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path

from controller.store.failures import StoreRefused


class FileLock:
    """An flock on a file of its own; closing any descriptor of the database would drop SQLite's own locks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def take(self, what: str) -> None:
        """Own `what` until release or the end of the process, or refuse, naming the owner."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 1024, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise StoreRefused(
                f"Another controller ({owner or 'just starting'}) owns {what}",
                "Stop it first, or give this controller a database of its own.",
            ) from None
        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}, since {since}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Give it up; the file stays, for removing it would let two owners hold two files of one name."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
