"""The two small files beside a database file: who owns it, and how far it was acknowledged."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from pathlib import Path

from controller.store.chain import Head
from controller.store.failures import StoreRefused
from wire.text import plain


class Sidecar:
    """A file kept open from open() to close(); it stays when its owner goes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def open(self) -> int:
        """Open it, making it if it is not there."""
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._descriptor

    def close(self) -> None:
        """Close it, if it is open."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class OwnerLock(Sidecar):
    """A lock that dies with its process, and its holder's name for whoever comes second.

    It is on a file of its own, because closing any descriptor of the database drops SQLite's own locks,
    and the file is never removed, because then two owners could hold two files of one name.
    """

    def take(self, what: str) -> None:
        """Own `what` until close() or the end of the process, or refuse, naming the owner."""
        lock = self.open()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = plain(os.pread(lock, 200, 0).decode(errors="replace").strip())
            self.close()
            raise StoreRefused(
                f"Another controller ({owner or 'just starting'}) owns {what}",
                "Stop it first, or give this controller a database of its own.",
            ) from None
        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"pid {os.getpid()} on {socket.gethostname()}, since {since}\n".encode(), 0)


class HeadNote(Sidecar):
    """The last acknowledged entry, noted after each commit and never synced.

    SQLite takes a damaged write-ahead log for one that was never finished and drops its end without a
    word, acknowledged commits included; this note tells the two apart. After a power cut it may be
    behind the database, never ahead of it.
    """

    def write(self, head: Head) -> None:
        """Note that everything up to here is durable."""
        # It is already: a note that cannot be written is only one that is behind.
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, f"{head.seq:020d} {head.hash.hex()}\n".encode(), 0)

    def read(self) -> Head | None:
        """The note, unless there is none that makes sense."""
        try:
            seq, digest = os.pread(self._descriptor, 200, 0).decode().split()
            return Head(int(seq), bytes.fromhex(digest))
        except ValueError:
            return None
