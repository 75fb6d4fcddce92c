"""The two files beside a SQLite file: its owner, and the last acknowledged entry."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from pathlib import Path

from controller.store.chain import Head
from controller.store.errors import StoreRefused
from wire.text import printable


class Sidecar:
    """A file that is open from open() to close(), and is not deleted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    @property
    def open_descriptor(self) -> int:
        """Between open() and close()."""
        return self._descriptor

    def open(self) -> int:
        """Open the file, or create it."""
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._descriptor

    def close(self) -> None:
        """Close the file if it is open."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class OwnerLock(Sidecar):
    """A lock that ends with its process, and the name of its holder for the error message.

    It is on a file of its own, because closing any descriptor of the database drops SQLite's own locks,
    and the file is never removed, because then two owners could hold two files of one name.
    """

    def take(self, what: str) -> None:
        """Take the lock until close() or the end of the process, or refuse and name the owner."""
        lock = self.open()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = printable(os.pread(lock, 200, 0).decode(errors="replace").strip())
            self.close()
            raise StoreRefused(
                f"Another controller ({owner or 'just starting'}) owns {what}",
                "Stop it first, or give this controller a database of its own.",
            ) from None
        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"pid {os.getpid()} on {socket.gethostname()}, since {since}\n".encode(), 0)


class HeadFile(Sidecar):
    """The last acknowledged entry, written after each commit and never synced.

    SQLite takes a damaged write-ahead log for one that was never finished and drops its end without a
    word, acknowledged commits included; this note tells the two apart. After a power cut it may be
    behind the database, never ahead of it.
    """

    def write(self, head: Head) -> None:
        """Record that all entries up to this one are durable."""
        # It is already: a note that cannot be written is only one that is behind.
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, f"{head.seq:020d} {head.hash.hex()}\n".encode(), 0)

    def read(self) -> Head | None:
        """The recorded entry; None if there is none or it is not readable."""
        try:
            seq, digest = os.pread(self._descriptor, 200, 0).decode().split()
            return Head(int(seq), bytes.fromhex(digest))
        except ValueError:
            return None
