"""The two files next to a SQLite store: the lock file, and the file with the last acknowledged journal
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
    """Base class of the files next to the SQLite database. The file is open from open() to close(), and is
    never deleted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    @property
    def open_descriptor(self) -> int:
        """Return the descriptor of the open file. The descriptor is valid only between open() and close()."""
        return self._descriptor

    def open(self) -> int:
        """Open the file; create the file if it does not exist."""
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class OwnerLock(Sidecar):
    """A lock file. Its text names the process that holds the lock. The kernel releases the lock when the
    process ends.

    The lock is not on the database file, because closing any descriptor of that file would release SQLite's
    locks. The lock file is never removed, because a second process could then create and lock a new file with
    the same name.
    """

    def take(self, what: str) -> None:
        """Lock the file until close() or the end of the process. Raise StoreRefused if another process has
        the lock.

        `what` names the store in the message of the error.
        """
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
    """The number and hash of the last acknowledged journal entry, written after each commit without an fsync.

    If SQLite's write-ahead log is damaged, SQLite drops the end of the log without an error, even if that
    part has acknowledged commits. A comparison with this file reveals the loss. After a power failure the
    file may name an entry that is older than the newest entry in the database, but never a newer entry.
    """

    def write(self, head: Head) -> None:
        """Record that all journal entries up to `head` are durable."""
        # Ignore a failed write, because the journal entries are in the database, and the file may name an
        # older entry.
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, f"{head.seq:020d} {head.hash.hex()}\n".encode(), 0)

    def read(self) -> Head | None:
        """Return the number and hash of the recorded journal entry; None if the file is empty or cannot be
        parsed."""
        try:
            seq, digest = os.pread(self._descriptor, 200, 0).decode().split()
            return Head(int(seq), bytes.fromhex(digest))
        except ValueError:
            return None
