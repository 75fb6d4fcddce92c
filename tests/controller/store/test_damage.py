"""A damaged store is refused and its files are kept, or the store has its whole content."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.store.errors import StoreBroken, StoreFailure, StoreRefused
from controller.store.store import Store
from tests.controller.store.samples import Model, history
from tests.controller.store.scratch import scratch

SEED = 3
IN_FILE, IN_LOG = 120, 30


@pytest.fixture(scope="module")
def crashed() -> Iterator[Path]:
    """The files of a killed controller: most of the history in the database, its end in the write-ahead
    log.
    """
    with scratch() as directory:
        at_work, left = directory / "at-work", directory / "left"
        left.mkdir()
        crash(at_work, left)
        yield left


def crash(at_work: Path, left: Path) -> None:
    turns = history(SEED)
    with closing(Store.open(f"sqlite:///{at_work}/corral.db")) as store:
        for turn in itertools.islice(turns, IN_FILE):
            store.commit(turn)
    with closing(Store.open(f"sqlite:///{at_work}/corral.db")) as store:
        for turn in itertools.islice(turns, IN_LOG):
            store.commit(turn)
        for file in at_work.iterdir():
            if not file.name.endswith("-shm"):
                shutil.copy(file, left)
    assert (left / "corral.db-wal").stat().st_size > 100_000


@pytest.fixture
def database(crashed: Path) -> Iterator[Path]:
    """Return a copy of the database, which the test damages."""
    with scratch() as directory:
        yield shutil.copytree(crashed, directory / "state") / "corral.db"


@pytest.fixture(scope="module")
def whole() -> Model:
    model = Model()
    for turn in itertools.islice(history(SEED), IN_FILE + IN_LOG):
        model.apply(turn)
    return model


def url(database: Path) -> str:
    return f"sqlite:///{database}"


def flip(path: Path, at: int) -> None:
    """Change one bit."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << (at % 8)
    path.write_bytes(content)


def beside(database: Path, suffix: str) -> Path:
    return Path(f"{database}{suffix}")


def test_undamaged_store_verifies(database: Path, whole: Model) -> None:
    with closing(Store.open(url(database), keep=100_000)) as store:
        whole.check(store)
        assert store.verify().good


def garbage(database: Path) -> None:
    beside(database, "-wal").unlink()
    database.write_bytes(random.Random(1).randbytes(100_000))


def first_bit(database: Path) -> None:
    beside(database, "-wal").unlink()
    flip(database, 0)


def empty_pages(database: Path) -> None:
    content = bytearray(database.read_bytes())
    content[4096 * 5 : 4096 * 9] = bytes(4096 * 4)
    database.write_bytes(content)


def truncated(database: Path) -> None:
    beside(database, "-wal").unlink()
    content = database.read_bytes()
    database.write_bytes(content[: len(content) // 2])


def short_by_a_page(database: Path) -> None:
    beside(database, "-wal").unlink()
    database.write_bytes(database.read_bytes()[:-4096])


def log_gone(database: Path) -> None:
    beside(database, "-wal").unlink()


def log_of_garbage(database: Path) -> None:
    beside(database, "-wal").write_bytes(random.Random(1).randbytes(100_000))


def log_cut(database: Path) -> None:
    log = beside(database, "-wal")
    log.write_bytes(log.read_bytes()[:60_000])


def log_one_bit(database: Path) -> None:
    flip(beside(database, "-wal"), 50_000)


def log_last_bit(database: Path) -> None:
    log = beside(database, "-wal")
    flip(log, log.stat().st_size - 1)


def log_first_bit(database: Path) -> None:
    flip(beside(database, "-wal"), 0)


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (garbage, "file is not a database"),
        (first_bit, "file is not a database"),
        (empty_pages, "is damaged: "),
        (truncated, "is damaged: "),
        (short_by_a_page, "is damaged: "),
        (log_gone, "was acknowledged, but the journal ends at entry"),
        (log_of_garbage, "was acknowledged, but the journal ends at entry"),
        (log_cut, "was acknowledged, but the journal ends at entry"),
        (log_one_bit, "was acknowledged, but the journal ends at entry"),
        (log_last_bit, "was acknowledged, but the journal ends at entry"),
        (log_first_bit, "was acknowledged, but the journal ends at entry"),
    ],
)
def test_damage_is_refused_and_kept(database: Path, damage: Callable[[Path], None], what: str) -> None:
    damage(database)
    found = {path.name: path.read_bytes() for path in (database, beside(database, "-wal")) if path.exists()}
    with pytest.raises(StoreRefused, match=what) as refused:
        Store.open(url(database))
    assert str(database) in refused.value.message
    (kept,) = database.parent.glob("*.damaged-*Z")
    assert str(kept) in refused.value.hint
    assert kept.read_bytes() == found["corral.db"]
    assert kept.stat().st_mode & 0o777 == 0o600
    log = beside(kept, "-wal")
    assert (log.read_bytes() if log.exists() else b"") == found.get("corral.db-wal", b"")


def test_a_restart_loop_does_not_fill_the_disk_with_copies(database: Path) -> None:
    garbage(database)
    for _ in range(5):
        with pytest.raises(StoreRefused):
            Store.open(url(database))
    assert len(list(database.parent.glob("*.damaged-*Z"))) == 1


def test_damage_without_room_for_a_copy_is_reported(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    garbage(database)
    monkeypatch.setattr("controller.store.backends.sqlite.shutil.copyfileobj", no_space)
    with pytest.raises(StoreRefused) as refused:
        Store.open(url(database))
    assert "No copy of it could be kept (No space left on device)" in refused.value.hint


def no_space(*_files: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("seed", range(40))
def test_flipped_bit_is_refused_or_harmless(database: Path, whole: Model, seed: int) -> None:
    """Damage in old history may open, but verify() then names it."""
    chance = random.Random(seed)
    suffix = chance.choice(("", "", "-wal"))
    path = beside(database, suffix)
    flip(path, chance.randrange(path.stat().st_size))
    try:
        store = Store.open(url(database), keep=100_000)
    except StoreRefused as refused:
        check_refusal(refused)
        return
    with closing(store):
        try:
            loaded = store.load()
        except StoreBroken as broken:
            check_refusal(broken)
            return
        assert loaded.last_seq == len(whole.entries)
        assert {row.id: row for row in loaded.jobs + loaded.ended} == whole.jobs
        if store.verify().good:
            whole.check(store)


def check_refusal(failure: StoreFailure) -> None:
    assert "corral.db is damaged: " in failure.message
    assert "A copy of the damaged file is" in failure.hint
    assert "\n" not in failure.message + failure.hint


@pytest.mark.parametrize("how", ["deleted", "emptied"])
def test_missing_database_is_not_replaced_by_a_new_one(database: Path, how: str) -> None:
    database.unlink()
    if how == "emptied":
        database.touch()
    with pytest.raises(StoreRefused, match=r"is gone, but [0-9]+ entries in it were acknowledged") as refused:
        Store.open(url(database))
    beside(database, ".head").unlink()
    assert f"delete {database}.head" in refused.value.hint
    with closing(Store.open(url(database))) as store:
        assert store.load().last_seq == 0


def test_older_copy_of_a_database_is_refused_until_confirmed(database: Path, whole: Model) -> None:
    backup = database.with_name("backup.db")
    with closing(Store.open(url(database))) as store:
        store.backup(backup)
        more = next(itertools.islice(history(SEED), IN_FILE + IN_LOG, None))
        store.commit(more)
    aside = database.with_name("aside")
    shutil.copy(backup, database)
    with pytest.raises(StoreRefused, match="an older copy was put in its place") as refused:
        Store.open(url(database))
    assert f"move {database}* to another directory" in refused.value.hint
    assert f"delete {database}.head" in refused.value.hint
    aside.mkdir()
    for file in database.parent.glob("corral.db*"):
        file.rename(aside / file.name)
    backup.rename(database)
    with closing(Store.open(url(database), keep=100_000)) as store:
        whole.check(store)
        assert store.verify().good


def test_invalid_head_file_is_ignored(database: Path, whole: Model) -> None:
    beside(database, ".head").write_bytes(bytes(86))
    with closing(Store.open(url(database), keep=100_000)) as store:
        whole.check(store)
