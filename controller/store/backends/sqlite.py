"""A store in one SQLite file, with checks that detect a deleted, replaced or damaged file."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, func, select
from sqlalchemy.dialects.sqlite import Insert, insert
from sqlalchemy.pool import NullPool

from controller.store.backends.sidecars import HeadFile, OwnerLock
from controller.store.chain import Head
from controller.store.errors import StoreBroken, StoreFailure, StoreFull, StoreLocked, StoreRefused
from controller.store.leader.lease import Lease
from controller.store.tables import journal
from wire import trusted_paths
from wire.trusted_paths import UntrustedPath

BUSY_S = 10
WAL_LIMIT = 64 << 20
QUICK_CHECK_LIMIT = 256 << 20


class SqliteFile:
    """The database file and two files next to it. `<file>.lock` names the process that uses the database, and
    `<file>.head` has the number and hash of the last acknowledged journal entry.
    """

    lease: Lease | None = None
    warnings: Sequence[str] = ()

    def __init__(self, url: URL) -> None:
        if not url.database or url.database == ":memory:" or url.query:
            raise StoreRefused(
                f"{url} does not name a database file", "Write sqlite:////absolute/path/to/corral.db"
            )
        self.path = Path(os.path.realpath(url.database))
        self.where = str(self.path)
        self.engine = create_engine(URL.create("sqlite", database=self.where))
        event.listen(self.engine, "connect", _configure)
        event.listen(self.engine, "begin", _begin)
        self._lock = OwnerLock(Path(f"{self.path}.lock"))
        self._head_file = HeadFile(Path(f"{self.path}.head"))
        self._damaged_copy: Path | None = None
        self._opened: os.stat_result | None = None
        self._log = Path(f"{self.path}-wal")
        self._log_opened: os.stat_result | None = None

    def open(self) -> Connection:
        try:
            _make_directory(self.path.parent)
            os.close(trusted_paths.open_directory(str(self.path.parent)))
            self._lock.take(self.where)
            self._head_file.open()
            self._make_file()
        except UntrustedPath as error:
            raise StoreRefused(f"The store {self.where} is not used: {error}", "") from None
        except OSError as error:
            raise _unusable(self.path, error) from error
        writer = self.engine.connect()
        self._opened = self.path.stat()
        return writer

    def try_open(self) -> Connection:
        return self.open()

    def reopen(self) -> Connection:
        self.close()
        return self.open()

    def check_lease(self) -> None:
        pass

    def prove(self, _transaction: Connection) -> None:
        pass

    def reader(self) -> Engine:
        if not self.path.is_file():
            raise StoreRefused(
                f"There is no store {self.where}", "Check the path, or [store] in scheduler.toml."
            )
        engine = create_engine("sqlite://", creator=self._read_only, poolclass=NullPool)
        event.listen(engine, "begin", _begin)
        return engine

    def _read_only(self) -> sqlite3.Connection:
        uri = f"file:{quote(self.where)}?mode=ro"
        return sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)

    def close(self) -> None:
        self.engine.dispose()
        self._head_file.close()
        self._lock.close()

    def insert(self, table: Table) -> Insert:
        return insert(table)

    def quick_check(self, connection: Connection) -> list[str]:
        # Skip the check of a large file, because the check reads the whole file, and a start of the
        # controller must take only seconds. Each start also checks the rows that it loads and the newest
        # journal entries. verify() finds all other damage.
        if self.path.stat().st_size > QUICK_CHECK_LIMIT:
            return []
        return _check(connection, "quick_check")

    def full_check(self, connection: Connection) -> list[str]:
        return _check(connection, "integrity_check")

    def settle(self, connection: Connection, head: Head) -> None:
        noted = self._head_file.read()
        if noted and noted.seq:
            with connection.begin():
                there = connection.scalar(select(journal.c.hash).where(journal.c.seq == noted.seq))
                first = connection.scalar(select(func.min(journal.c.seq))) or 0
            # After a power failure the file may name an entry that retention has deleted since. Because the
            # journal continues behind this entry, the journal has lost no acknowledged entry.
            if there != noted.hash and noted.seq >= first:
                raise self._entry_lost(noted.seq, head.seq)
        # If an earlier fsync of the write-ahead log failed, the pages of the log may be correct in memory but
        # wrong on the disk. Therefore copy the whole log into the database file, which includes another
        # fsync.
        driver: Any = connection.connection.driver_connection
        try:
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise self.failure(error) from error
        self._log_opened = self._log.stat()
        self._head_file.write(head)

    def acknowledge(self, head: Head) -> None:
        # Check the database file before each acknowledgement, because SQLite keeps writing to a deleted or
        # replaced file.
        if not _same_file(self.path, self._opened):
            raise StoreBroken(
                f"{self.where} was moved, deleted or replaced while it was in use",
                "Put the file back where it was and start again; stop the controller before changing it.",
            )
        # Check the write-ahead log too, because it contains commits that are not in the database file yet.
        # These commits are not lost: after this error, SQLite closes the database and copies the commits from
        # the open log into the database file.
        if not _same_file(self._log, self._log_opened):
            raise StoreBroken(
                f"{self._log} was moved, deleted or replaced while it was in use",
                "Start the controller again. This file belongs to the database; do not change it separately.",
            )
        self._head_file.write(head)

    def damaged(self, what: str) -> StoreFailure:
        try:
            self._damaged_copy = self._damaged_copy or self._copy_damaged()
            kept = f"A copy of the damaged file is {self._damaged_copy}."
        except OSError as error:
            kept = f"No copy of it could be kept ({error.strerror}): first copy {self.path}* to another disk."
        return StoreBroken(
            f"{self.where} is damaged: {what}",
            f"{kept} To use a backup, move {self.path}* to another directory, and copy the backup to "
            f"{self.path}. To read the undamaged data: sqlite3 {self.path} .recover",
        )

    def failure(self, error: BaseException | None) -> StoreFailure:
        name: str = getattr(error, "sqlite_errorname", "")
        if name in ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"):
            return StoreFull(
                f"The disk that holds {self.where} is full",
                "Free some space there; nothing was lost or half written.",
            )
        if name.startswith("SQLITE_CORRUPT") or name == "SQLITE_NOTADB":
            return self.damaged(str(error))
        # A stored text is not valid UTF-8. The module sqlite3 sets no error code in this case. Do not show
        # its message, because the message contains the whole text.
        if str(error).startswith("Could not decode"):
            return self.damaged("a text in it is not UTF-8")
        if name.startswith("SQLITE_BUSY"):
            return StoreLocked(
                f"Another program keeps {self.where} locked for over {BUSY_S} s",
                "Close the program that has the file open (lsof shows it), for example a sqlite3 shell.",
            )
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            return StoreBroken(
                f"{self.where} cannot be written: {error}",
                "Check who owns the file and its directory, and that its disk is mounted for writing.",
            )
        return StoreBroken(
            f"{self.where} failed: {error} ({name or type(error).__name__})",
            "Look for disk errors in the kernel's log (dmesg) before starting again.",
        )

    def backup(self, connection: Connection, path: Path) -> None:
        if path.exists():
            raise StoreRefused(f"{path} exists already", "Choose another name, or move it away.")
        partial = Path(f"{path}.partial")
        source: Any = connection.connection.driver_connection
        try:
            partial.unlink(missing_ok=True)
            os.close(_private(str(partial), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            with contextlib.closing(sqlite3.connect(partial)) as copy:
                source.backup(copy)
                # Make the copy a single file without a write-ahead log.
                copy.execute("PRAGMA journal_mode = DELETE")
            _sync(partial)
            partial.rename(path)
            _sync(path.parent)
        except OSError as error:
            raise _unusable(path, error) from error
        except sqlite3.Error as error:
            raise StoreRefused(
                f"No backup was made in {path}: {error}", "Check that its disk has room, then try again."
            ) from error
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)

    def _make_file(self) -> None:
        """Create the database file with mode 0600, because the environments of jobs can contain secrets.
        SQLite would create the file with the mode that the umask permits. Raise StoreRefused if the file is
        missing although it contained acknowledged entries.
        """
        noted = self._head_file.read()
        if noted and noted.seq and not (self.path.exists() and self.path.stat().st_size):
            raise StoreRefused(
                f"{self.where} is gone, but {noted.seq} entries in it were acknowledged",
                "Restore this file or a backup. To begin with an empty queue instead, "
                f"delete {self._head_file.path}.",
            )
        os.close(trusted_paths.open_file(self.where, os.O_CREAT | os.O_RDWR))
        _sync(self.path.parent)

    def _entry_lost(self, noted: int, last: int) -> StoreFailure:
        damage = self.damaged(
            f"entry {noted} was acknowledged, but the journal ends at entry {last} without it; "
            "its write-ahead log was lost, or an older copy was put in its place"
        )
        return StoreBroken(
            damage.message, f"{damage.hint} To go on without the lost entries, delete {self._head_file.path}."
        )

    def _copy_damaged(self) -> Path:
        """Copy the damaged database and its write-ahead log. Make no copy if the database has not changed
        since the last copy, because a copy at each restart could fill the disk.
        """
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self.path.stat().st_mtime))
        kept = Path(f"{self.path}.damaged-{stamp}")
        for suffix in ("", "-wal"):
            source, target = Path(f"{self.path}{suffix}"), Path(f"{kept}{suffix}")
            if source.exists() and not target.exists():
                with source.open("rb") as original, open(target, "xb", opener=_private) as copy:
                    shutil.copyfileobj(original, copy)
        return kept


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    # Turn off the driver's own transactions, because SQLAlchemy begins all transactions, also for reading.
    connection.isolation_level = None
    for pragma in (
        f"busy_timeout = {BUSY_S * 1000}",
        "journal_mode = WAL",
        "synchronous = FULL",
        f"journal_size_limit = {WAL_LIMIT}",
        "cell_size_check = ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _check(connection: Connection, pragma: str) -> list[str]:
    found = connection.exec_driver_sql(f"PRAGMA {pragma}(20)").scalars()
    lines = [line for text in found for line in str(text).splitlines()]
    return [line for line in lines if line != "ok" and not line.startswith("***")]


def _same_file(path: Path, opened: os.stat_result | None) -> bool:
    try:
        return opened is not None and os.path.samestat(path.stat(), opened)
    except OSError:
        return False


def _make_directory(path: Path) -> None:
    # Create only the last directory: if its parent is missing, the path is wrong or a disk is not mounted.
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(path: Path, error: OSError) -> StoreRefused:
    return StoreRefused(
        f"{error.filename or path} cannot be used: {error.strerror}",
        "Check that its directory exists, and who owns it. Its disk must be mounted for writing, "
        "and must have free space.",
    )
