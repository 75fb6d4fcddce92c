"""A store on PostgreSQL when its session ends or its server goes away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.store.errors import StoreAway, StoreBroken, StoreRefused
from controller.store.store import Store
from tests.contract.test_stores import by_hand
from tests.controller.store.samples import batch, entry
from tests.controller.store.servers import Absent, PostgresUnderTest, postgres
from tests.controller.store.writer import check, kill_after, start


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresUnderTest]:
    try:
        with postgres() as running:
            yield running
    except Absent as missing:
        pytest.skip(str(missing))


def test_store_that_lost_its_session_writes_nothing(server: PostgresUnderTest) -> None:
    url = server.new_database()
    with closing(Store.open(url)) as stale:
        stale.commit(batch(entry(1)))
        server.end_sessions("corral pid%")
        with closing(Store.open(url)) as store:
            for _ in range(2):
                with pytest.raises(StoreAway, match="does not answer") as away:
                    stale.commit(batch(entry(2, body="stale")))
            assert "reachable" in away.value.hint
            with pytest.raises(StoreRefused, match="Another controller"):
                stale.resume()
            with pytest.raises(StoreAway):
                stale.commit(batch(entry(2, body="stale")))
            store.commit(batch(entry(2)))
            assert store.journal(0, 10) == [entry(1), entry(2)]
            assert store.verify().good


def test_reader_reconnects_after_a_lost_session(server: PostgresUnderTest) -> None:
    with closing(Store.open(server.new_database())) as store:
        store.commit(batch(entry(1)))
        assert store.journal(0, 10) == [entry(1)]
        server.end_sessions("corral pid%")
        with pytest.raises(StoreAway, match="does not answer"):
            store.journal(0, 10)
        assert store.journal(0, 10) == [entry(1)]


def test_store_reconnects_after_an_outage(server: PostgresUnderTest) -> None:
    with closing(Store.open(server.new_database())) as store:
        store.commit(batch(entry(1)))
        server.stop()
        try:
            with pytest.raises(StoreAway):
                store.commit(batch(entry(2)))
            for _ in range(2):
                with pytest.raises(StoreAway, match="does not answer"):
                    store.resume()
        finally:
            server.start()
        store.resume()
        store.commit(batch(entry(2)))
        assert store.journal(0, 10) == [entry(1), entry(2)]
        assert store.verify().good


def test_commit_without_an_answer_is_found_after_reconnecting(server: PostgresUnderTest) -> None:
    """The session ends between the commit and its answer. The next entry follows the committed one."""
    url = server.new_database()
    with closing(Store.open(url)) as store:
        store.commit(batch(entry(1)))
        server.end_sessions("corral pid%")
        with closing(Store.open(url)) as unheard:
            unheard.commit(batch(entry(2)))
        with pytest.raises(StoreAway):
            store.commit(batch(entry(2)))
        store.resume()
        assert store.load().last_seq == 2
        store.commit(batch(entry(3)))
        assert store.verify().good


def test_server_that_lost_acknowledged_entries_is_refused(server: PostgresUnderTest) -> None:
    """A standby that lags behind loses the newest entries when it takes over."""
    url = server.new_database()
    with closing(Store.open(url)) as store:
        store.commit(batch(entry(1)))
        store.commit(batch(entry(2)))
        server.end_sessions("corral pid%")
        with pytest.raises(StoreAway):
            store.commit(batch(entry(3)))
        by_hand(url, "DELETE FROM journal WHERE seq = 2")
        with pytest.raises(StoreBroken, match="no longer contains entry 2, which was acknowledged"):
            store.resume()
        with pytest.raises(StoreBroken):
            store.commit(batch(entry(3)))


@pytest.mark.parametrize("seed", range(3))
def test_nothing_acknowledged_is_lost_to_kill_9(server: PostgresUnderTest, seed: int) -> None:
    url = server.new_database()
    check(url, seed, kill_after(start(url, seed), 20))


def test_backup_is_left_to_the_postgres_server(server: PostgresUnderTest, tmp_path: Path) -> None:
    with closing(Store.open(server.new_database())) as store, pytest.raises(StoreRefused) as refused:
        store.backup(tmp_path / "backup")
    assert "pg_dump" in refused.value.hint
