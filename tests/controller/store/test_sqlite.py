"""A store in a file: unusable paths, full disks, other programs, backups."""

from __future__ import annotations

import itertools
import os
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from controller.core.model.rows import Batch
from controller.store.errors import StoreBroken, StoreFull, StoreLocked, StoreRefused
from controller.store.store import Store
from tests import users
from tests.controller.store.samples import Model, batch, entry, history, job

NOBODY = 65_534


def url(database: Path) -> str:
    return f"sqlite:///{database}"


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that every user may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="corral-", dir="/tmp") as made:
        if os.geteuid() == 0:
            os.chown(made, NOBODY, NOBODY)
        os.chmod(made, 0o755)
        yield Path(made)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run as user nobody for a while, because file modes do not restrict root."""
    if os.geteuid() != 0:
        yield
        return
    if users.WHY_NOT:
        pytest.skip(users.WHY_NOT)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    database = tmp_path / "state" / "corral.db"
    before = os.umask(0)
    try:
        with closing(Store.open(url(database))) as store:
            store.commit(batch(entry(1)))
            store.backup(database.with_name("backup.db"))
            modes = {path.name: path.stat().st_mode & 0o777 for path in database.parent.iterdir()}
    finally:
        os.umask(before)
    assert database.parent.stat().st_mode & 0o777 == 0o700
    assert set(modes) == {
        "corral.db",
        "corral.db-wal",
        "corral.db-shm",
        "corral.db.lock",
        "corral.db.head",
        "backup.db",
    }
    assert set(modes.values()) == {0o600}


def missing_parent(directory: Path) -> Path:
    return directory / "mistyped" / "state" / "corral.db"


def a_file_for_a_directory(directory: Path) -> Path:
    (directory / "state").write_text("")
    return directory / "state" / "corral.db"


def a_directory_for_a_file(directory: Path) -> Path:
    (directory / "corral.db").mkdir()
    return directory / "corral.db"


def a_loop_of_links(directory: Path) -> Path:
    (directory / "corral.db").symlink_to(directory / "corral.db")
    return directory / "corral.db"


def a_directory_of_another_user(directory: Path) -> Path:
    directory.chmod(0o555)
    return directory / "corral.db"


def a_file_of_another_user(directory: Path) -> Path:
    database = directory / "corral.db"
    with unprivileged():
        Store.open(url(database)).close()
    for file in directory.iterdir():
        file.chmod(0o400)
    return database


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (missing_parent, "No such file or directory"),
        (a_file_for_a_directory, "Not a directory"),
        (a_directory_for_a_file, "Is a directory"),
        (a_loop_of_links, "Too many levels of symbolic links"),
        (a_directory_of_another_user, "Permission denied"),
        (a_file_of_another_user, "Permission denied"),
    ],
)
def test_unusable_path_is_named(directory: Path, prepare: Callable[[Path], Path], why: str) -> None:
    database = prepare(directory)
    with (
        unprivileged(),
        pytest.raises(StoreRefused, match=rf"{directory}/.* cannot be used: {why}") as refused,
    ):
        Store.open(url(database))
    assert "mounted for writing" in refused.value.hint


@pytest.mark.parametrize(
    "wrong", ["sqlite://", "sqlite:///:memory:", "sqlite:////x.db?mode=ro", "mysql://h/d", "x"]
)
def test_url_of_an_unknown_store_is_refused(wrong: str) -> None:
    with pytest.raises(StoreRefused) as refused:
        Store.open(wrong)
    assert "sqlite:////absolute/path" in refused.value.hint


def test_password_in_a_url_is_hidden() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StoreRefused) as refused:
        Store.open("postgresql://ada:secret@127.0.0.1:1/corral")
    assert "secret" not in refused.value.message + refused.value.hint
    assert "ada:***@127.0.0.1" in refused.value.message


class SmallDisk:
    """A file system of a few hundred pages."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, leave: int = 0) -> Path:
        """Fill the disk except for `leave` bytes."""
        ballast = self.path / "ballast"
        with ballast.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        with ballast.open("ab") as file:
            file.truncate(max(ballast.stat().st_size - leave, 0))
        return ballast

    def remount(self, how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.path)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=755", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        yield SmallDisk(tmp_path)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.parametrize("room", [0, 4_096, 8_192, 20_480, 65_536])
def test_full_disk_loses_nothing_and_commits_work_again_with_room(small_disk: SmallDisk, room: int) -> None:
    database = small_disk.path / "corral.db"
    model, turns = Model(), history(4)
    with closing(Store.open(url(database), keep=10_000)) as store:
        for turn in itertools.islice(turns, 10):
            store.commit(turn)
            model.apply(turn)
        ballast = small_disk.fill(leave=room)
        refused = commit_until_full(store, model, turns)
        for _ in range(3):
            with pytest.raises(StoreFull, match=f"The disk that holds {database} is full"):
                store.commit(refused)
        model.check(store)
        ballast.unlink()
        for turn in (refused, *itertools.islice(turns, 5)):
            store.commit(turn)
            model.apply(turn)
        model.check(store)
        assert store.verify().good
    with closing(Store.open(url(database), keep=10_000)) as store:
        model.check(store)


def commit_until_full(store: Store, model: Model, turns: Iterator[Batch]) -> Batch:
    """The first commit that did not fit on the disk."""
    while True:
        turn = next(turns)
        try:
            store.commit(turn)
        except StoreFull:
            return turn
        model.apply(turn)


def test_a_full_disk_refuses_a_new_store_until_there_is_room(small_disk: SmallDisk) -> None:
    database = small_disk.path / "corral.db"
    ballast = small_disk.fill()
    with pytest.raises(StoreRefused, match=r"No space left on device|is full") as refused:
        Store.open(url(database))
    assert str(small_disk.path) in refused.value.message
    ballast.unlink()
    with closing(Store.open(url(database))) as store:
        store.commit(batch(entry(1)))
        assert store.verify().good


def test_a_disk_that_turned_read_only_is_named(small_disk: SmallDisk) -> None:
    database = small_disk.path / "corral.db"
    Store.open(url(database)).close()
    small_disk.remount("ro")
    with pytest.raises(StoreRefused, match="Read-only file system") as refused:
        Store.open(url(database))
    assert "mounted for writing" in refused.value.hint
    small_disk.remount("rw")
    Store.open(url(database)).close()


def test_locked_database_is_distinguished_from_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.store.backends.sqlite.BUSY_S", 0)
    database = tmp_path / "corral.db"
    with closing(Store.open(url(database))) as store:
        with closing(sqlite3.connect(database, isolation_level=None)) as shell:
            shell.execute("BEGIN IMMEDIATE")
            for _ in range(2):
                with pytest.raises(StoreLocked, match=r"Another program keeps .* locked") as locked:
                    store.commit(batch(entry(1)))
        assert "lsof" in locked.value.hint
        store.commit(batch(entry(1)))
        assert store.verify().good


@pytest.mark.parametrize("how", ["moved", "replaced"])
def test_replaced_database_file_is_not_written(tmp_path: Path, how: str) -> None:
    database, aside, backup = (tmp_path / name for name in ("corral.db", "aside.db", "backup.db"))
    with closing(Store.open(url(database))) as store:
        store.commit(batch(entry(1)))
        store.backup(backup)
        database.rename(aside)
        if how == "replaced":
            backup.rename(database)
        for _ in range(2):
            with pytest.raises(StoreBroken, match="was moved, deleted or replaced") as broken:
                store.commit(batch(entry(2)))
    assert "Put the file back" in broken.value.hint
    aside.rename(database)
    with closing(Store.open(url(database))) as store:
        assert store.journal(0, 1) == [entry(1)]
        assert store.verify().good


def test_removed_write_ahead_log_loses_nothing(tmp_path: Path) -> None:
    """The removal is found at the next commit, when the content can still be written to the file."""
    database = tmp_path / "corral.db"
    with closing(Store.open(url(database))) as store:
        for number in range(1, 4):
            store.commit(batch(entry(number)))
        Path(f"{database}-wal").unlink()
        with pytest.raises(StoreBroken, match="-wal was moved, deleted or replaced"):
            store.commit(batch(entry(4)))
    with closing(Store.open(url(database))) as store:
        assert store.journal(0, 3) == [entry(number) for number in range(1, 4)]
        assert store.verify().good


def test_note_that_names_a_deleted_entry_after_a_power_failure_is_accepted(tmp_path: Path) -> None:
    database = tmp_path / "corral.db"
    note = Path(f"{database}.head")
    with closing(Store.open(url(database))) as store:
        store.commit(batch(*(entry(number) for number in range(1, 11))))
        older = note.read_bytes()
        store.commit(batch(*(entry(number) for number in range(11, 21))))
        store.delete_entries(10, 100)
    # The note is written without fsync, so a power failure can bring its earlier content back.
    note.write_bytes(older)
    with closing(Store.open(url(database))) as store:
        assert (store.begins, store.load().last_seq) == (10, 20)
        newest = note.read_bytes()
    assert newest != older
    note.write_bytes(older.replace(b"10 ", b"21 ", 1))
    with pytest.raises(StoreRefused, match="entry 21 was acknowledged"):
        Store.open(url(database))


def test_database_under_two_names_has_one_owner(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "corral.db")
    with closing(Store.open(url(tmp_path / "corral.db"))), pytest.raises(StoreRefused, match="owns"):
        Store.open(url(tmp_path / "link.db"))


def test_backup_during_work_is_a_complete_store(tmp_path: Path) -> None:
    model, turns = Model(), history(7)
    backup = tmp_path / "backups.db"
    with closing(Store.open(url(tmp_path / "corral.db"))) as store:
        for turn in itertools.islice(turns, 20):
            store.commit(turn)
            model.apply(turn)
        store.backup(backup)
        store.commit(next(turns))
        with pytest.raises(StoreRefused, match="exists already"):
            store.backup(backup)
    assert sorted(path.name for path in tmp_path.glob("backups*")) == ["backups.db"]
    with closing(Store.open(url(backup), keep=10_000)) as store:
        model.check(store)
        assert store.verify().good
        store.commit(batch(entry(len(model.entries) + 1)))


@pytest.mark.parametrize("room", [0, 40_960])
def test_backup_without_room_leaves_no_file(small_disk: SmallDisk, tmp_path_factory, room: int) -> None:
    source = tmp_path_factory.mktemp("source")
    small_disk.fill(leave=room)
    with closing(Store.open(url(source / "corral.db"))) as store:
        store.commit(batch(job(1, spec="s" * 100_000)))
        with pytest.raises(StoreRefused) as refused:
            store.backup(small_disk.path / "backup.db")
        assert str(small_disk.path) in refused.value.message
        store.commit(batch(entry(1)))
    assert [path.name for path in small_disk.path.iterdir()] == ["ballast"]
