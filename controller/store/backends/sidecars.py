"""The two files in the directory of a SQLite store: the lock with its owner, and the last acknowledged
entry."""

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
    """A file that stays open from open() to close() and is never deleted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    @property
    def open_descriptor(self) -> int:
        """The descriptor of the open file. Valid only between open() and close()."""
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
    """A lock that the operating system releases when the process ends. The file names the owner for errors.

    The lock has its own file, because closing any descriptor of the database would release SQLite's locks.
    The file is never removed: otherwise two processes could lock two different files with the same name.
    """

    def take(self, what: str) -> None:
        """Lock the file until close() or the end of the process. Raises StoreRefused with the owner if it is
        locked."""
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
    """The number and hash of the last acknowledged entry, written after each commit without an fsync.

    SQLite treats a damaged write-ahead log as an unfinished one and drops its end without an error, even if
    that end has acknowledged commits. This file shows the difference. After a power failure it may name an
    older entry than the newest in the database, never a newer one.
    """

    def write(self, head: Head) -> None:
        """Record that all entries up to this one are durable."""
        # Ignore a failed write: the entries are durable, and an older entry in this file does no harm.
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, f"{head.seq:020d} {head.hash.hex()}\n".encode(), 0)

    def read(self) -> Head | None:
        """The recorded entry; None if there is none or the file cannot be parsed."""
        try:
            seq, digest = os.pread(self._descriptor, 200, 0).decode().split()
            return Head(int(seq), bytes.fromhex(digest))
        except ValueError:
            return None
