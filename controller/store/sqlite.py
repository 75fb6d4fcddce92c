"""A store in one SQLite file: its lock, its sidecars, and what can happen to a file."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Table, create_engine, event
from sqlalchemy.dialects.sqlite import Insert, insert
from sqlalchemy.exc import DBAPIError

from controller.store.chain import Head
from controller.store.failures import StoreBroken, StoreFailure, StoreFull, StoreRefused
from controller.store.lock import FileLock

BUSY_MS = 10_000
WAL_LIMIT = 64 << 20
QUICK_CHECK_LIMIT = 256 << 20


class SqliteFile:
    """The file, `<file>.lock` with its owner, and `<file>.head` with the last acknowledged entry.

    SQLite takes a damaged write-ahead log for one that was never finished and drops its end without a
    word, acknowledged commits included. The note in `.head` is what tells the two apart. It is written
    after each commit and never synced: after a power cut it may be behind, never ahead.
    """

    def __init__(self, url: URL) -> None:
        if not url.database or url.database == ":memory:" or url.query:
            raise StoreRefused(
                f"{url} does not name a database file", "Write sqlite:////absolute/path/to/corral.db"
            )
        self.path = Path(url.database).absolute().resolve()
        self.where = str(self.path)
        self.engine = create_engine(URL.create("sqlite", database=str(self.path)))
        event.listen(self.engine, "connect", _configure)
        event.listen(self.engine, "begin", _begin)
        self._lock = FileLock(self.path.with_name(f"{self.path.name}.lock"))
        self._head = -1

    def open(self) -> Connection:
        try:
            _make_directory(self.path.parent)
            self._lock.take(self.where)
            self._open_head()
            self._make_file()
        except OSError as error:
            raise _not_usable(self.where, error) from error
        return self.engine.connect()

    def close(self) -> None:
        self.engine.dispose()
        if self._head >= 0:
            os.close(self._head)
            self._head = -1
        self._lock.release()

    def insert(self, table: Table) -> Insert:
        return insert(table)

    def quick_check(self, connection: Connection) -> list[str]:
        # It reads the whole file, and a start is promised within seconds. What load reads is sealed row by
        # row and the journal's end is checked at every size, so a large file gives up only the early word
        # on damage in old history; verify() still finds that.
        if self.path.stat().st_size > QUICK_CHECK_LIMIT:
            return []
        return _pragma_check(connection, "quick_check")

    def full_check(self, connection: Connection) -> list[str]:
        return _pragma_check(connection, "integrity_check")

    def note(self, head: Head) -> None:
        # The commit is durable already; a note that cannot be written is only one that is behind.
        with contextlib.suppress(OSError):
            os.pwrite(self._head, f"{head.seq:020d} {head.hash.hex()}\n".encode(), 0)

    def noted(self) -> Head | None:
        try:
            seq, digest = os.pread(self._head, 128, 0).decode().split()
            return Head(int(seq), bytes.fromhex(digest))
        except ValueError:
            return None

    def damaged(self, what: str) -> StoreFailure:
        try:
            kept = f"It was kept as found in {self._keep()}."
        except OSError as error:
            kept = f"No copy of it could be kept ({error.strerror}); copy {self.path}* before anything else."
        return StoreBroken(
            f"{self.where} is damaged: {what}",
            f"{kept} To go back to a backup, move {self.path}* out of the way and put the backup there; "
            f"what can still be read comes out with: sqlite3 {self.path} .recover",
        )

    def failure(self, error: DBAPIError) -> StoreFailure:
        name: str = getattr(error.orig, "sqlite_errorname", "")
        if name in ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"):
            return StoreFull(
                f"The disk that holds {self.where} is full",
                "Free some space; nothing was lost or half written.",
            )
        if name.startswith("SQLITE_CORRUPT") or name == "SQLITE_NOTADB":
            return self.damaged(str(error.orig))
        if name.startswith("SQLITE_BUSY"):
            return StoreBroken(
                f"Another program keeps {self.where} locked for over {BUSY_MS // 1000} s",
                "Close whatever has it open (lsof shows it), such as a sqlite3 shell in a transaction.",
            )
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            return StoreBroken(
                f"{self.where} cannot be written: {error.orig}",
                "Check who owns the file and its directory, and that the disk is mounted for writing.",
            )
        return StoreBroken(
            f"{self.where} failed: {error.orig} ({name or type(error.orig).__name__})",
            "Look for disk errors in the kernel's log (dmesg) before starting again.",
        )

    def backup(self, connection: Connection, path: Path) -> None:
        partial = path.with_name(f"{path.name}.partial")
        try:
            os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            source: Any = connection.connection.driver_connection
            with contextlib.closing(sqlite3.connect(partial)) as copy:
                source.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
            _sync(partial)
            os.link(partial, path)
            _sync(path.parent)
        except FileExistsError as error:
            raise StoreRefused(
                f"{error.filename2 or error.filename} exists already", "Choose another name."
            ) from error
        except OSError as error:
            raise _not_usable(str(path), error) from error
        except sqlite3.Error as error:
            raise StoreRefused(f"No backup was made in {path}: {error}", "Free some space.") from error
        finally:
            partial.unlink(missing_ok=True)

    def _open_head(self) -> None:
        self._head = os.open(
            self.path.with_name(f"{self.path.name}.head"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )

    def _make_file(self) -> None:
        """Scripts and environments of jobs are inside: SQLite would create it with the umask's mode."""
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        _sync(self.path.parent)

    def _keep(self) -> Path:
        """Copy file and log aside, once per damage: a restart loop must not fill the disk with copies."""
        stat = self.path.stat()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(stat.st_mtime))
        kept = self.path.with_name(f"{self.path.name}.damaged-{stamp}")
        for suffix in ("", "-wal"):
            source = Path(f"{self.path}{suffix}")
            target = Path(f"{kept}{suffix}")
            if source.exists() and not target.exists():
                with source.open("rb") as original, open(target, "xb", opener=_private) as copy:
                    shutil.copyfileobj(original, copy)
        return kept


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where SQLAlchemy says, reads included
    for pragma in (
        f"busy_timeout = {BUSY_MS}",
        "journal_mode = WAL",
        "synchronous = FULL",
        f"journal_size_limit = {WAL_LIMIT}",
        "cell_size_check = ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _pragma_check(connection: Connection, pragma: str) -> list[str]:
    found = [str(line) for line in connection.exec_driver_sql(f"PRAGMA {pragma}(20)").scalars()]
    return [] if found == ["ok"] else found


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _make_directory(path: Path) -> None:
    # Only the last one: a missing parent is a typing error, or a disk that is not mounted.
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _not_usable(where: str, error: OSError) -> StoreRefused:
    return StoreRefused(
        f"{where} cannot be used: {error.filename or where}: {error.strerror}",
        "Check that the directory exists, who owns it, and that its disk is mounted for writing with room.",
    )
