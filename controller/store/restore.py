"""Puts a backup in the place of a SQLite store.

1. Verify the backup.
2. Own the store, so that no controller runs on it.
3. Compare with the note beside it: if the last acknowledged entry is not in the backup, the backup is older,
   and what came after it would be lost. That takes consent.
4. Move what is there aside, the write-ahead log first: a log must never stand beside another database.
   Nothing is deleted. Copy the backup beside it, sync it, and rename it into place.
5. Write the note for the backup.

A crash in between leaves a store that a start refuses, because the note names an entry that is not there.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from controller.store.backends.sidecars import HeadFile, OwnerLock
from controller.store.chain import Head
from controller.store.errors import StoreRefused
from controller.store.read_only_store import StoreReader


@dataclass(frozen=True, slots=True)
class Restored:
    """The restored store, and where the files of the former one are now."""

    store: str
    head: Head
    jobs: int
    moved_to: str
    lost: int
    """Acknowledged entries that the backup does not have."""


def restore(backup: Path, database: Path, *, replace: bool = False, accept_loss: bool = False) -> Restored:
    """Restore the backup, in the steps above. Raises StoreRefused with what to do."""
    if not backup.is_file():
        raise StoreRefused(f"There is no backup {backup}", "Name the file that 'corral admin backup' wrote.")
    source = StoreReader(f"sqlite:///{backup.resolve()}")
    report = source.verify()
    if not report.good:
        raise StoreRefused(
            f"{backup} is not sound: {report.problems[0]}", "Take another backup; nothing was changed."
        )
    lock, note = OwnerLock(Path(f"{database}.lock")), HeadFile(Path(f"{database}.head"))
    database.parent.mkdir(mode=0o700, exist_ok=True)
    lock.take(str(database))
    try:
        note.open()
        noted = note.read()
        there = database.exists() and database.stat().st_size > 0
        if there and not replace:
            raise StoreRefused(
                f"{database} holds a store already",
                "Add --yes to put the backup in its place; what is there is moved aside, not deleted.",
            )
        lost = 0
        if noted is not None and noted.seq and not source.has(noted):
            lost = max(noted.seq - report.head.seq, 1)
            if not accept_loss:
                raise StoreRefused(
                    f"{backup} ends at entry {report.head.seq}, but entry {noted.seq} was acknowledged "
                    "and is not in it",
                    "Take a newer backup, or add --accept-loss: jobs submitted since are forgotten.",
                )
        moved = _move_aside(database)
        _copy(backup, database)
        os.ftruncate(note.open_descriptor, 0)
        note.write(report.head)
        return Restored(report.store, report.head, report.jobs, moved, lost)
    finally:
        note.close()
        lock.close()


def _move_aside(database: Path) -> str:
    moved = (
        f"{database}.replaced-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{time.time_ns() % 1_000_000}"
    )
    found = [suffix for suffix in ("-wal", "-shm", "") if os.path.exists(f"{database}{suffix}")]
    for suffix in found:
        os.rename(f"{database}{suffix}", f"{moved}{suffix}")
    return moved if found else ""


def _copy(backup: Path, database: Path) -> None:
    partial = Path(f"{database}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with backup.open("rb") as source, open(descriptor, "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
        target.flush()
        os.fsync(target.fileno())
    partial.rename(database)
    directory = os.open(database.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
