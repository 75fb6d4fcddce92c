"""The newest journal entry that a host remembers. A database without this entry went back in time: an old
backup was restored, or a standby server that lagged behind was promoted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from controller.store.chain import Head
from wire import trusted_paths


class Remembered(NamedTuple):
    """A journal entry, and the epoch of the leader when the host remembered the entry."""

    epoch: int
    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.epoch} {self.seq} {self.hash}"


def parse(text: str) -> Remembered | None:
    """Return the entry in a text such as `7 1200 9f3a…`; None if the text has another form."""
    words = text.split()
    if len(words) != 3 or not (words[0].isdecimal() and words[1].isdecimal()):
        return None
    return Remembered(int(words[0]), int(words[1]), words[2])


def is_lost(entry: Remembered | None, accepted: str, begins: int, hash_of: Callable[[int], str]) -> bool:
    """Return whether the journal lacks an entry that it must have.

    An entry of an epoch before the last `corral admin accept-loss` need not be there; `accepted` is the epoch
    and the entry of this command, as in LeaderRow. Entries up to the number `begins` were deleted by
    retention.
    """
    if entry is None or entry.seq <= begins:
        return False
    loss = parse(accepted)
    if loss is not None and entry.epoch < loss.epoch:
        return False
    return hash_of(entry.seq) != entry.hash


class HeadMemory:
    """The file `<state_dir>/journal-head` with the newest acknowledged entry. A write is not synced to disk:
    after a power failure the file may name an older entry, which the journal has too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def read(self) -> Remembered | None:
        try:
            return parse(self.path.read_text(errors="replace"))
        except FileNotFoundError:
            return None

    def write(self, epoch: int, head: Head) -> None:
        """Replace the remembered entry. Ignore a failed write, because an older entry is also correct."""
        with contextlib.suppress(OSError):
            if self._descriptor < 0:
                os.close(trusted_paths.open_directory(str(self.path.parent), make=True))
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._descriptor = os.open(self.path, flags, 0o600)
            os.pwrite(self._descriptor, f"{epoch:020d} {head.seq:020d} {head.hash.hex()}\n".encode(), 0)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
