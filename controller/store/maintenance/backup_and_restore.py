"""Backs up a store to one SQLite file, and replaces a SQLite store with such a backup.

The steps of a restore
1. Verify the backup.
2. Lock the store, so that no controller uses the store.
3. Read the last acknowledged entry of the store from its head file. If the backup does not contain this
   entry, the entries after the backup would be lost, and the operator must agree to this.
4. Rename the files of the old store, but delete none. Rename the write-ahead log first, because a log must
   never be next to another database. Copy the backup next to the store, sync the copy, and rename it to the
   name of the store.
5. Write the head file for the backup.

After a crash during a restore, the controller refuses to start, because the database lacks the entry that the
head file names.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from controller.store.backends.sidecars import HeadFile, OwnerLock
from controller.store.chain import Head
from controller.store.errors import StoreRefused
from controller.store.maintenance.verify import VerifyReport
from controller.store.read_only_store import StoreReader

SQLITE = "sqlite:///"


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore: the contents of the new store, and the path to which the old store was moved
    (empty if there was no old store).
    """

    store: str
    head: Head
    jobs: int
    moved_to: str
    lost: int
    """Number of acknowledged entries that are not in the backup."""


def back_up(url: str, path: Path) -> VerifyReport:
    """Copy the store at this database URL to a new SQLite file, and verify the copy. Then record the backup
    in a file next to a SQLite store.
    """
    StoreReader(url).backup(path)
    report = StoreReader(f"sqlite:///{path}").verify()
    # Ignore a failed record, because the backup itself is complete.
    with contextlib.suppress(OSError):
        if report.good and url.startswith(SQLITE):
            _record_backup(_record_of(url), path, report.head.seq)
    return report


def last_backup(url: str) -> float | None:
    """Return the time of the last recorded backup of a SQLite store, in seconds since 1970; None if there is
    none.
    """
    try:
        return _record_of(url).stat().st_mtime
    except OSError:
        return None


def _record_of(url: str) -> Path:
    return Path(f"{url.removeprefix(SQLITE)}.backup")


def _record_backup(record: Path, path: Path, seq: int) -> None:
    """Replace the record. Its modification time is the time of the backup. Root may make the record in a
    directory of the controller's user, so no existing name is opened for writing.
    """
    descriptor, draft = tempfile.mkstemp(dir=record.parent, prefix=f"{record.name}.")
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{seq} {path}\n")
    os.replace(draft, record)


def restore(backup: Path, database: Path, *, replace: bool = False, accept_loss: bool = False) -> Restored:
    """Replace the store `database` by the file `backup`, in the steps of the module's docstring.

    Raise StoreRefused if the backup is missing or damaged, if a store exists and `replace` is False, or if
    journal entries would be lost and `accept_loss` is False.
    """
    if not backup.is_file():
        raise StoreRefused(f"There is no backup {backup}", "Name the file that 'corral admin backup' wrote.")
    source = StoreReader(f"sqlite:///{backup.resolve()}")
    report = source.verify()
    if not report.good:
        raise StoreRefused(
            f"{backup} is damaged: {report.problems[0]}", "Take another backup; nothing was changed."
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
                f"{database} contains a store already",
                "Add --yes to put the backup in its place; the present store is renamed, not deleted.",
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
