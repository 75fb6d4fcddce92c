"""Decides whether this controller may write to a store: the controller leads or follows the leader, and
connects again after a failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TypeVar

from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from controller.core.model.rows import JournalEntry
from controller.store import chain, records, tables
from controller.store.backends.backend import Backend
from controller.store.chain import ChainBroken, Head
from controller.store.errors import StoreAway, StoreBroken, StoreFailure, StoreRefused, StoreStale
from controller.store.journal_tail import find_head, read_meta
from controller.store.leader import rows
from controller.store.leader.remembered import is_lost, parse
from controller.store.leader.rows import ControllerRow, LeaderRow
from controller.store.maintenance import retention
from controller.store.migrate import migrate
from controller.store.queries import StoreQueries

T = TypeVar("T")


class StoreLeadership(StoreQueries):
    """The connection with which this controller writes, and the journal entries that the store has.

    A store on PostgreSQL can be opened by several controllers. One of them leads, and only the leader writes.
    In the other controllers, `leading` is False until `try_lead` succeeds.

    Invariant: each transaction that writes begins with the proof that this controller leads (`_proven`).
    After a failure that leaves unknown what the database contains, all writes fail until resume() has
    succeeded.
    """

    def __init__(self, place: Backend, writer: Connection | None) -> None:
        super().__init__(place)
        self._leads_with = writer
        self._broken: StoreBroken | StoreAway | StoreStale | None = None
        self._meta: dict[str, str] = {}
        self._base: Head | None = None
        self._head = Head(0, b"")
        self.refresh()

    @property
    def _writer(self) -> Connection:
        if self._leads_with is None:
            raise StoreRefused(f"This controller does not lead {self.where}", "")
        return self._leads_with

    @property
    def leading(self) -> bool:
        """Return whether this controller leads, or has led and does not know of another leader."""
        return self._leads_with is not None

    @property
    def may_act(self) -> bool:
        """Return whether this controller may send orders now. False if the lease was not renewed in time."""
        return self.leading and (self._place.lease is None or self._place.lease.may_act)

    @property
    def epoch(self) -> int:
        """Return the epoch (number of the leadership) in which this controller leads or has led last; 0 if it
        has never led, or if the store can have only one controller.
        """
        return self._place.lease.epoch if self._place.lease is not None else 0

    @property
    def accepted_loss(self) -> bool:
        """Return whether this controller is the first leader after `corral admin accept-loss`."""
        lease = self._place.lease
        loss = parse(lease.accepted) if lease is not None else None
        return loss is not None and self.epoch == loss.epoch + 1

    @property
    def journal_head(self) -> str:
        """Return the newest journal entry as agents remember it: epoch, number and hash. Return "" if the
        store can have only one controller.
        """
        seq, digest = self._head
        return f"{self.epoch} {seq} {digest.hex()}" if self._place.lease is not None and seq else ""

    @property
    def id(self) -> str:
        """Return the id of the store. The id is created with the store, and copies of the store have the same
        id.
        """
        return self._meta["id"]

    @property
    def empty(self) -> bool:
        """Return whether the journal has no entry yet."""
        return self._head.seq == 0

    @property
    def begins(self) -> int:
        """Return the number of the last deleted journal entry; 0 if no entry was deleted."""
        return self._base.seq if self._base is not None else 0

    def try_lead(self) -> bool:
        """Become the leader if no other controller leads, and return whether this controller leads. Raise a
        StoreFailure if the database does not answer, or if it lacks an entry that this controller has seen.
        This controller then does not lead, and try_lead() can be called again.
        """
        if self.leading:
            return True
        seen = self._head
        try:
            writer = self._place.try_open()
            if writer is None:
                return False
            with ExitStack() as undo:
                undo.callback(self._follow_again, writer, seen)
                prepare(self._place, writer)
                self._leads_with = writer
                self.refresh()
                if seen.seq > self.begins and self.hash_of(seen.seq) != seen.hash.hex():
                    raise self._lost(seen.seq)
                self._place.settle(writer, self._head)
                undo.pop_all()
        except DBAPIError as error:
            raise self._place.failure(error.orig) from error
        return True

    def _follow_again(self, writer: Connection, seen: Head) -> None:
        """Undo a take-over that failed before its end, so that this or another controller can lead."""
        self._leads_with, self._head = None, seen
        writer.invalidate()
        writer.close()
        if self._place.lease is not None:
            self._place.lease.give_up()

    def refresh(self) -> None:
        """Read the id of the store, the begin of the journal and the newest entry from the database, and keep
        them in memory.
        """
        connected = self._reading() if self._leads_with is None else nullcontext(self._leads_with)
        with connected as connection:
            self._meta = read_meta(self._place, connection)
            self._base = retention.read_base(self._meta)
            self._head = self._find_head(connection)

    def follow(self, limit: int) -> list[JournalEntry]:
        """Return up to `limit` journal entries that the leader has added since the last call. Raise
        StoreRefused if the entries do not continue those of the last call.
        """
        newer = records.ENTRIES.where(tables.journal.c.seq > self._head.seq).order_by(tables.journal.c.seq)
        with self._reading() as connection:
            found = [records.read_entry(row) for row in connection.execute(newer.limit(limit))]
        head = chain.follow(self._head, found)
        if isinstance(head, ChainBroken):
            raise StoreRefused(f"{self.where}: {head.how}", "")
        self._head = head
        self._place.acknowledge(head)
        return [entry for entry, _ in found]

    def leader(self) -> LeaderRow | None:
        """Return which controller leads; None if the store can have only one controller, or has had none."""
        if self._place.lease is None:
            return None
        try:
            return self._place.lease.leader()
        except DBAPIError as error:
            raise self._place.failure(error.orig) from error

    def controllers(self) -> list[ControllerRow]:
        """Return the controllers of this store; an empty list if the store can have only one."""
        if self._place.lease is None:
            return []
        with self._reading() as connection:
            return rows.controllers(connection)

    def announce(self, address: str) -> str:
        """Tell the other controllers the URL at which clients reach this controller. Return the name of this
        controller; "" if the store can have only one.
        """
        if self._place.lease is None:
            return ""
        self._place.lease.address = address
        self._place.lease.report_soon()
        return self._place.lease.holder

    def time_s(self) -> float:
        """Return the present time in seconds since 1970. If the store can have several controllers, this is
        the time of the database server, so that all controllers have the same clock. Otherwise it is the time
        of this host.
        """
        return time.time() if self._place.lease is None else self._place.lease.time_s()

    def stop_acting(self) -> StoreAway:
        """Let all writes fail until resume() has succeeded. Return the failure that these writes raise."""
        assert self._place.lease is not None
        self._place.lease.stop_acting()
        failure = StoreAway(
            f"The lease on {self.where} could not be renewed, so another controller may take over",
            "Check that the server runs, is reachable and accepts writes.",
        )
        self._broken = self._broken or failure
        return failure

    def release(self) -> None:
        """Let another controller lead. Later commits raise StoreAway. Do nothing if the store can have only
        one controller.
        """
        if self._place.lease is not None:
            self._place.lease.close()

    def lost_entry(self, remembered: str) -> int:
        """Return the number of the journal entry that an agent remembers, if the journal must have this entry
        and does not have it; 0 otherwise.
        """
        entry, lease = parse(remembered), self._place.lease
        if entry is None or lease is None or remembered == self.journal_head:
            return 0
        return entry.seq if is_lost(entry, lease.accepted, self.begins, self.hash_of) else 0

    def resume(self) -> None:
        """Connect to the database server again, and check that the store still has every acknowledged entry.

        Raise StoreAway if the server still does not answer, StoreRefused if another controller has the store,
        and StoreBroken if an acknowledged entry is missing.
        """
        if not isinstance(self._broken, StoreAway):
            return
        self._writer.close()
        try:
            self._leads_with = self._place.reopen()
            meta = read_meta(self._place, self._writer)
            self._base = retention.read_base(meta)
            head = self._find_head(self._writer)
            with self._writer.begin():
                there = self._writer.scalar(
                    select(tables.journal.c.hash).where(tables.journal.c.seq == self._head.seq)
                )
        except DBAPIError as error:
            raise self._place.failure(error.orig) from error
        if meta["id"] != self.id or (self._head.seq and there != self._head.hash):
            self._broken = self._lost(self._head.seq)
            raise self._broken
        self._meta, self._head, self._broken = meta, head, None

    def _find_head(self, connection: Connection) -> Head:
        return find_head(self._place, connection, self._base or chain.genesis(self.id))

    def _lost(self, seq: int) -> StoreBroken:
        return StoreBroken(
            f"{self._place.where} no longer contains entry {seq}, which was acknowledged",
            "The database was replaced, or a standby server without this entry took over. Restore the right "
            "database, then start the controller again. If the entries are lost, first run 'corral admin "
            "accept-loss'.",
        )

    @contextmanager
    def _proven(self) -> Iterator[None]:
        """Context manager for a transaction that begins with the proof that this controller leads."""
        with self._writer.begin():
            self._place.prove(self._writer)
            yield

    def _write(self, work: Callable[[], T]) -> T:
        """Call `work`, which changes the database, in a transaction, and return its result. Raise a
        StoreFailure if the database fails.
        """
        self._must_work()
        try:
            with self._proven():
                return work()
        except StoreStale as stale:
            self._broken = stale
            raise
        except DBAPIError as error:
            raise self._failed(error) from error

    def _must_work(self) -> None:
        if self._broken:
            raise type(self._broken)(self._broken.message, self._broken.hint)
        assert self._writer  # This property raises StoreRefused if this controller does not lead.
        try:
            self._place.check_lease()
        except StoreAway as away:
            self._broken = away
            raise

    def _failed(self, error: DBAPIError) -> StoreFailure:
        failure = self._place.failure(error.orig)
        if isinstance(failure, (StoreBroken, StoreAway)):
            self._broken = failure
        return failure


def prepare(place: Backend, writer: Connection) -> None:
    """Check the structure of the database, and migrate its tables. Raise a StoreFailure if the database is
    damaged.
    """
    with writer.begin():
        problems = place.quick_check(writer)
    if problems:
        raise place.damaged(problems[0])
    migrate(writer, place.where, place.prove)
