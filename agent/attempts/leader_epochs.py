"""Remembers two facts in the spool: the highest epoch of a controller that this node has served, and the
newest journal entry that a controller has named in a Ping.

Of several controllers on one database, one leads, and each change of the leader raises the epoch. A
controller with a lower epoch than an earlier one is no longer the leader, or uses an old copy of the
database.
"""

from __future__ import annotations

import os
from pathlib import Path

_EPOCH = "epoch"
_JOURNAL = "journal"


class LeaderEpochs:
    def __init__(self, root: Path) -> None:
        self._root = root

    def highest(self) -> int:
        """Return the highest epoch of a controller that has used this spool; 0 if there is none."""
        text = _read(self._root / _EPOCH)
        return int(text) if text.isdecimal() else 0

    def refusal(self, epoch: int) -> str:
        """Return the reason why a controller with this epoch must not use the spool; empty if the controller
        may use it. Epoch 0 is always accepted: such a controller is the only one of its cluster, or of an
        earlier version of Corral.
        """
        highest = self.highest()
        if not epoch or epoch >= highest:
            return ""
        return (
            f"the controller has epoch {epoch}, and this node has served epoch {highest}. Another controller "
            "has taken over, or the database went back in time. In the second case stop all controllers, and "
            f"run 'corral admin accept-loss --epoch {highest}'"
        )

    def raise_to(self, epoch: int) -> None:
        """Store this epoch, if it is higher than the stored one."""
        if epoch > self.highest():
            _replace(self._root / _EPOCH, f"{epoch}\n", sync=True)

    def journal(self) -> str:
        """Return the newest journal entry that a controller has named; empty if none has."""
        return _read(self._root / _JOURNAL)

    def remember_journal(self, entry: str) -> None:
        """Store the newest journal entry. If that fails, keep the older entry, which is also correct."""
        try:
            _replace(self._root / _JOURNAL, f"{entry}\n", sync=False)
        except OSError:
            return


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return ""


def _replace(path: Path, text: str, *, sync: bool) -> None:
    new = path.with_name(f".{path.name}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(descriptor, text.encode())
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(new, path)
