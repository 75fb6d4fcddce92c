"""A store on PostgreSQL when its session ends or its server goes away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from controller.daemon.standby import Standby
from controller.daemon.store_threads import StoreThreads
from controller.store.errors import StoreAway, StoreBroken, StoreRefused, StoreStale
from controller.store.leader import rows
from controller.store.leader.lease import LEASE_S, boot_time_s
from controller.store.maintenance.accepted_loss import accept_loss
from controller.store.store import Store
from tests.contract.test_stores import by_hand
from tests.controller.store.samples import batch, entry
from tests.controller.store.servers import Absent, PostgresUnderTest, postgres
from tests.controller.store.writer import check, kill_after, start
from tests.takeovers.servers import Pooler


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresUnderTest]:
    try:
        with postgres() as running:
            yield running
    except Absent as missing:
        pytest.skip(str(missing))


def take_over(url: str) -> Store:
    """Open the store as a second controller whose predecessor does not renew its lease any more."""
    by_hand(url, "UPDATE corral_control.leader SET expires_at = to_timestamp(0)")
    return Store.open(url)


def test_commit_of_a_former_leader_is_refused(server: PostgresUnderTest) -> None:
    """The epoch changes, while the session of the former leader stays open."""
    url = server.new_database()
    with closing(Store.open(url)) as stale:
        stale.commit(batch(entry(1)))
        assert stale.epoch == 1
        by_hand(url, "UPDATE corral_control.leader SET epoch = 2, holder = 'pid 1 on elsewhere - - -'")
        for _ in range(2):
            with pytest.raises(StoreStale, match="Another controller has taken over") as taken:
                stale.commit(batch(entry(2, body="stale")))
        assert "standby" in taken.value.hint
        for stale_write in (lambda: stale.delete_jobs([1]), lambda: stale.delete_entries(1, 1)):
            with pytest.raises(StoreStale):
                stale_write()
        assert stale.journal(0, 10) == [entry(1)]


def test_former_leader_does_not_come_back(server: PostgresUnderTest) -> None:
    url = server.new_database()
    with closing(Store.open(url)) as stale:
        stale.commit(batch(entry(1)))
        with closing(take_over(url)) as store:
            assert store.epoch == 2
            with pytest.raises(StoreAway):
                stale.commit(batch(entry(2, body="stale")))
            with pytest.raises(StoreRefused, match="Another controller"):
                stale.resume()
            with pytest.raises(StoreAway):
                stale.commit(batch(entry(2, body="stale")))
            store.commit(batch(entry(2)))
            assert store.journal(0, 10) == [entry(1), entry(2)]
            assert store.verify().good
        # The other controller has ended. The state of the former leader is still an old one.
        with pytest.raises(StoreRefused, match="has led"):
            stale.resume()


def test_lost_session_does_not_cost_the_leadership(server: PostgresUnderTest) -> None:
    url = server.new_database()
    with closing(Store.open(url)) as store:
        store.commit(batch(entry(1)))
        server.end_sessions("corral %")
        with pytest.raises(StoreAway, match="does not answer"):
            store.commit(batch(entry(2)))
        with pytest.raises(StoreRefused, match="Another controller"):
            Store.open(url)
        store.resume()
        store.commit(batch(entry(2)))
        assert store.epoch == 1


def test_take_over_ends_an_open_commit_of_the_former_leader(server: PostgresUnderTest) -> None:
    """The former leader has proved its epoch, and stands still before the end of its transaction."""
    url = server.new_database()
    with closing(Store.open(url)) as former:
        former.commit(batch(entry(1)))
        transaction = former._writer.begin()
        former._place.prove(former._writer)
        former._writer.execute(text("UPDATE meta SET value = 'stale' WHERE name = 'created_at'"))
        with closing(take_over(url)) as store:
            store.commit(batch(entry(2)))
            assert store.load().meta["created_at"] != "stale"
            assert store.verify().good
        with pytest.raises(DBAPIError):
            former._writer.execute(text("SELECT 1"))
        transaction.close()


def test_server_ends_a_transaction_that_stands_still(server: PostgresUnderTest) -> None:
    """The next leader may lack the right to end the sessions of the former one."""
    url = server.new_database()
    with closing(Store.open(url)) as store:
        lease = store._place.lease
        assert lease is not None
        lease._lease_s = 0.2
        transaction = store._writer.begin()
        store._place.prove(store._writer)
        by_hand(url, "UPDATE corral_control.leader SET epoch = 2")  # waits for the end of the transaction
        with pytest.raises(DBAPIError):
            store._writer.execute(text("SELECT 1"))
        transaction.close()


@pytest.mark.parametrize("mode", ["session", "transaction"])
def test_store_works_behind_a_pooler(server: PostgresUnderTest, mode: str) -> None:
    """A pooler refuses unknown settings of a connection, and mixes the prepared statements of its clients."""
    try:
        pooler = Pooler(server, mode)
    except Absent as missing:
        pytest.skip(str(missing))
    pooler.start()
    with ExitStack() as closed:
        closed.callback(pooler.stop)
        url = pooler.url(server.new_database())
        leader = closed.enter_context(closing(Store.open(url)))
        for number in range(1, 21):
            leader.commit(batch(entry(number)))
        follower = Store.join(url)
        assert follower is not None
        closed.enter_context(closing(follower))
        leader.commit(batch(entry(21)))
        assert follower.follow(10) == [entry(21)]
        leader.close()
        assert follower.try_lead()
        follower.commit(batch(entry(22)))
        assert follower.verify().good


def test_renewal_does_not_wait_for_a_long_commit(server: PostgresUnderTest) -> None:
    url = server.new_database()
    with closing(Store.open(url)) as store:
        lease = store._place.lease
        assert lease is not None
        with store._proven():
            before = store.leader()
            assert rows.renew(lease._engine.connect(), lease.holder, lease.epoch, "", 60.0)
            after = store.leader()
        assert before is not None
        assert after is not None
        assert after.left_s > before.left_s


def test_second_controller_follows_and_then_leads(server: PostgresUnderTest) -> None:
    url = server.new_database()
    with closing(Store.open(url)) as leader:
        leader.commit(batch(entry(1)))
        follower = Store.join(url)
        assert follower is not None
        with closing(follower):
            assert not follower.leading
            assert follower.follow(10) == []
            leader.commit(batch(entry(2)))
            assert follower.follow(10) == [entry(2)]
            assert not follower.try_lead()
            with pytest.raises(StoreRefused, match="does not lead"):
                follower.commit(batch(entry(3)))
            leader.close()
            assert follower.try_lead()
            assert follower.epoch == 2
            follower.commit(batch(entry(3)))
            assert follower.verify().good


def test_controllers_that_start_together_have_one_leader(server: PostgresUnderTest) -> None:
    url = server.new_database()
    with ThreadPoolExecutor(4) as pool:
        stores = [store for store in pool.map(Store.join, [url] * 4) if store is not None]
    with ExitStack() as closed:
        for store in stores:
            closed.callback(store.close)
        [leader] = [store for store in stores if store.leading]
        leader.commit(batch(entry(1)))
        assert leader.epoch == 1


def test_leader_without_renewal_stops_before_its_lease_ends(server: PostgresUnderTest) -> None:
    """The clock of the lease is moved, not awaited."""
    with closing(Store.open(server.new_database())) as store:
        lease = store._place.lease
        assert lease is not None
        store.commit(batch(entry(1)))
        lease._ended = True
        lease.report_soon()
        lease._clock = lambda: boot_time_s() + LEASE_S * 2 / 3
        assert not store.may_act
        left = store.leader()
        assert left is not None
        assert left.left_s > 0
        with pytest.raises(StoreAway, match=r"lease on .* could not be renewed"):
            store.commit(batch(entry(2)))
        lease._clock = boot_time_s
        store.resume()
        store.commit(batch(entry(2)))
        assert store.epoch == 1


def test_database_that_went_back_in_time_is_refused(server: PostgresUnderTest, tmp_path: Path) -> None:
    url, memory = server.new_database(), tmp_path / "journal-head"
    with closing(Store.open(url, memory=memory)) as store:
        store.commit(batch(entry(1)))
        store.commit(batch(entry(2)))
        told = store.journal_head
    by_hand(url, "DELETE FROM journal WHERE seq = 2")
    for _ in range(2):
        with pytest.raises(StoreRefused, match=r"went back in time: this host .* entry 2") as refused:
            Store.open(url, memory=memory)
        assert "corral admin accept-loss" in refused.value.hint
    assert accept_loss(url) == (1, 4)
    with closing(Store.open(url, memory=memory)) as store:
        assert store.lost_entry(told) == 0
        store.commit(batch(entry(2, body="another")))
        assert store.lost_entry(store.journal_head) == 0
        epoch, seq, _ = store.journal_head.split()
        assert store.lost_entry(f"{epoch} {seq} {'0' * 64}") == 2
        assert store.lost_entry("nonsense") == 0


async def not_reloaded() -> None:
    raise AssertionError("the journal can be followed")


async def test_take_over_that_fails_half_way_is_tried_again(server: PostgresUnderTest) -> None:
    """The follower has taken the lease, and cannot read the table meta because of a lock."""
    url = server.new_database()
    with closing(Store.open(url)) as leader:
        leader.commit(batch(entry(1)))
        follower = Store.join(url)
        assert follower is not None
        standby = Standby(follower, StoreThreads(follower), lambda _entries: None, not_reloaded)
        assert await standby._look() is False
    with closing(follower), server.locked(url, "meta") as unlock:
        follower._place.engine.dispose()  # Its next sessions have the lock timeout.
        with pytest.raises(StoreAway, match="lock timeout"):
            await standby._look()
        assert not follower.leading
        left = follower.leader()
        assert left is not None
        assert left.left_s <= 0, "another controller could lead now"
        unlock()
        assert await standby._look() is True
        follower.commit(batch(entry(2)))
        assert follower.verify().good


def test_clock_is_that_of_the_server(server: PostgresUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the host is an hour wrong, and so is that of the next leader in the other direction."""
    url, real = server.new_database(), time.time
    for wrong_s in (3600.0, -3600.0):
        monkeypatch.setattr(time, "time", lambda wrong_s=wrong_s: real() + wrong_s)
        with closing(Store.open(url)) as store:
            assert abs(store.time_s() - real()) < 600.0


def test_follower_refuses_a_database_without_an_entry_it_has_seen(server: PostgresUnderTest) -> None:
    url = server.new_database()
    with closing(Store.open(url)) as leader:
        leader.commit(batch(entry(1)))
        leader.commit(batch(entry(2)))
        follower = Store.join(url)
    assert follower is not None
    by_hand(url, "DELETE FROM journal WHERE seq = 2")
    with closing(follower), pytest.raises(StoreBroken, match="no longer contains entry 2"):
        follower.try_lead()


def test_settings_that_can_lose_jobs_are_named(server: PostgresUnderTest) -> None:
    with closing(Store.open(server.new_database())) as store:
        assert any(warning.startswith("fsync is off") for warning in store.warnings)


def test_reader_reconnects_after_a_lost_session(server: PostgresUnderTest) -> None:
    with closing(Store.open(server.new_database())) as store:
        store.commit(batch(entry(1)))
        assert store.journal(0, 10) == [entry(1)]
        server.end_sessions("corral %")
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
        head = store._head
        store.commit(batch(entry(2)))
        store._head = head  # as if the answer to the second commit had been lost
        server.end_sessions("corral %")
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
        server.end_sessions("corral %")
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
