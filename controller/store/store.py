"""Writes journal entries and the changed rows of jobs and nodes in one transaction, and deletes old rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, bindparam, delete, func, insert, make_url, select, update
from sqlalchemy.exc import ArgumentError, DBAPIError

from controller.core.model.rows import Batch, JobRow, JournalEntry, NodeRow, NoteRow
from controller.store import chain, records, tables
from controller.store.backends.backend import Backend
from controller.store.backends.postgres import PostgresServer
from controller.store.backends.sqlite import SqliteFile
from controller.store.chain import ChainBroken, Head
from controller.store.errors import StoreAway, StoreBroken, StoreFailure, StoreRefused, StoreStale
from controller.store.leader import rows
from controller.store.leader.remembered import is_lost, parse
from controller.store.leader.rows import ControllerRow, LeaderRow
from controller.store.maintenance import retention
from controller.store.queries import StoreQueries
from controller.store.schema import is_newest, migrate

T = TypeVar("T")

SEALED = "JournalSealed"
"""The kind of the journal entry that announces the deletion of older entries. The table `meta` has a row with
the same name, which holds the number of the last entry to delete.
"""

TAIL = 1_000
"""Number of the newest journal entries whose hash chain is checked whenever the store is opened. verify()
checks all entries."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The rows that a controller loads at its start: jobs that have not ended, the newest ended jobs, nodes,
    and notes (other state, such as reservations).
    """

    last_seq: int
    last_at: float
    next_job: int
    jobs: list[JobRow]
    ended: list[JobRow]
    nodes: list[NodeRow]
    notes: list[NoteRow]
    meta: dict[str, str]


class Store(StoreQueries):
    """The journal and the tables of one cluster. One thread commits, and other threads may read at the
    same time.

    A store on PostgreSQL can be opened by several controllers. One of them leads, and only the leader writes.
    `leading` is False in the others, until `try_lead` succeeds.
    """

    def __init__(self, place: Backend, writer: Connection | None, keep: int) -> None:
        super().__init__(place)
        self._leads_with = writer
        self._keep = keep
        self._broken: StoreBroken | StoreAway | StoreStale | None = None
        self._meta: dict[str, str] = {}
        self._base: Head | None = None
        self._head = Head(0, b"")
        self.refresh()
        self._add_entries = insert(tables.journal)
        self._put_jobs = _insert_or_replace(place, tables.jobs.c.id)
        used = tables.usage.c
        self._put_usage = _insert_or_replace(place, used.job, used.attempt, used.node)
        self._put_nodes = _insert_or_replace(place, tables.nodes.c.name)
        self._put_notes = _insert_or_replace(place, tables.notes.c.kind, tables.notes.c.name)
        self._drop_notes = delete(tables.notes).where(
            tables.notes.c.kind == bindparam("kind"), tables.notes.c.name == bindparam("name")
        )
        self._change_jobs = (
            update(tables.jobs)
            .where(tables.jobs.c.id == bindparam("job"))
            .values({name: bindparam(name) for name in records.CHANGING})
        )

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
    def warnings(self) -> Sequence[str]:
        """Return a sentence for each setting of the database server with which acknowledged jobs can be
        lost.
        """
        return self._place.warnings

    @property
    def epoch(self) -> int:
        """Return the epoch in which this controller leads; 0 if the store can have only one controller."""
        return self._place.lease.epoch if self._place.lease is not None else 0

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

    @classmethod
    def open(cls, url: str, *, keep: int = 1_000, memory: Path | None = None) -> Self:
        """Lock the store at this URL for this process, migrate its tables, and check the store. Raise
        StoreRefused if another controller uses the store.

        `keep` is the number of ended jobs that load() returns. A missing SQLite file is created. `memory` is
        the file in which this host remembers the newest journal entry of a store on PostgreSQL.
        """
        place = backend_of(url, memory)
        store = cls._opened(place, place.open, keep)
        assert store is not None  # open() either leads or raises.
        return store

    @classmethod
    def join(cls, url: str, *, keep: int = 1_000, memory: Path | None = None) -> Self | None:
        """Open the store at this URL like open(), or only for reading if another controller leads. Return
        None if another controller leads and has not made the tables of this version yet.
        """
        place = backend_of(url, memory)
        if place.lease is None:
            return cls._opened(place, place.open, keep)
        return cls._opened(place, place.try_open, keep)

    @classmethod
    def _opened(cls, place: Backend, connect: Callable[[], Connection | None], keep: int) -> Self | None:
        with ExitStack() as undo:
            undo.callback(place.close)
            try:
                writer = connect()
                if writer is None:
                    with place.engine.connect() as connection:
                        newest = is_newest(connection)
                    if not newest:
                        return None
                    store = cls(place, None, keep)
                    assert place.lease is not None
                    place.lease.begin()
                else:
                    undo.callback(writer.close)
                    cls._prepare(place, writer)
                    store = cls(place, writer, keep)
                    place.settle(writer, store._head)
            except (DBAPIError, StoreFailure) as error:
                failure = error if isinstance(error, StoreFailure) else place.failure(error.orig)
                raise StoreRefused(failure.message, failure.hint) from error
            undo.pop_all()
        return store

    @staticmethod
    def _prepare(place: Backend, writer: Connection) -> None:
        with writer.begin():
            problems = place.quick_check(writer)
        if problems:
            raise place.damaged(problems[0])
        migrate(writer, place.where, place.prove)

    def try_lead(self) -> bool:
        """Lead, if no other controller leads, and return whether this controller leads. Raise a StoreFailure
        if the database does not answer, or if it lacks an entry that this controller has seen.
        """
        if self.leading:
            return True
        seen = self._head
        try:
            writer = self._place.try_open()
            if writer is None:
                return False
            self._prepare(self._place, writer)
            self._leads_with = writer
            self.refresh()
            if seen.seq > self.begins and self.hash_of(seen.seq) != seen.hash.hex():
                raise self._lost(seen.seq)
            self._place.settle(writer, self._head)
        except DBAPIError as error:
            raise self._place.failure(error.orig) from error
        return True

    def refresh(self) -> None:
        """Read again what the store keeps in memory: its id, the begin of the journal and the newest
        entry.
        """
        if self._leads_with is None:
            with self._reading() as connection:
                self._meta = self._facts(connection)
                self._base = retention.read_base(self._meta)
                self._head = self._find_head(connection)
            return
        self._meta = self._facts(self._leads_with)
        self._base = retention.read_base(self._meta)
        self._head = self._find_head(self._leads_with)

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
        """Tell the other controllers the URL at which clients reach this one. Return the name of this
        controller; "" if the store can have only one."""
        if self._place.lease is None:
            return ""
        self._place.lease.address = address
        self._place.lease.report_soon()
        return self._place.lease.holder

    def stop_acting(self) -> StoreAway:
        """Write nothing more until resume() has succeeded. Return the failure with the reason."""
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
            facts = self._facts(self._writer)
            self._base = retention.read_base(facts)
            head = self._find_head(self._writer)
            with self._writer.begin():
                there = self._writer.scalar(
                    select(tables.journal.c.hash).where(tables.journal.c.seq == self._head.seq)
                )
        except DBAPIError as error:
            raise self._place.failure(error.orig) from error
        if facts["id"] != self.id or (self._head.seq and there != self._head.hash):
            self._broken = self._lost(self._head.seq)
            raise self._broken
        self._meta, self._head, self._broken = facts, head, None

    def _lost(self, seq: int) -> StoreBroken:
        return StoreBroken(
            f"{self._place.where} no longer contains entry {seq}, which was acknowledged",
            "The database was replaced, or a standby server without this entry took over. Restore the right "
            "database, then start the controller again. If the entries are lost, first run 'corral admin "
            "accept-loss'.",
        )

    def load(self) -> Loaded:
        """Read the rows that a controller needs at its start."""
        jobs = tables.jobs.c
        texts: dict[str, str] = {}
        with self._reading() as connection:
            live = connection.execute(records.JOBS.where(jobs.ended_at.is_(None)).order_by(jobs.id))
            newest = records.JOBS.where(jobs.ended_at.is_not(None)).order_by(
                jobs.ended_at.desc(), jobs.id.desc()
            )
            ended = connection.execute(newest.limit(self._keep))
            last = select(tables.journal.c.seq, tables.journal.c.at).order_by(tables.journal.c.seq.desc())
            last_seq, last_at = connection.execute(last.limit(1)).one_or_none() or (0, 0.0)
            # The next job id is above all ids of jobs and arrays, which are counted together. Use two
            # queries, because SQLite uses an index only for a query with a single max(), and the index of
            # arrays only if the query excludes NULL.
            highest = [
                connection.scalar(select(func.max(column)).where(column.is_not(None)))
                for column in (jobs.id, jobs.array)
            ]
            next_job = select(tables.meta.c.value).where(tables.meta.c.name == retention.NEXT_JOB)
            deleted = connection.scalar(next_job)
            return Loaded(
                last_seq=last_seq,
                last_at=last_at,
                next_job=max(*(number + 1 for number in highest if number), int(deleted or 0), 1),
                jobs=[records.read_job(row, texts) for row in live],
                ended=[records.read_job(row, texts) for row in ended],
                nodes=[records.read_node(row) for row in connection.execute(records.NODES)],
                notes=[records.read_note(row) for row in connection.execute(records.NOTES)],
                meta=dict(self._meta),
            )

    def commit(self, batch: Batch) -> None:
        """Write journal entries and changed rows in one transaction. When this method returns, all these
        entries and rows are on disk.

        If a job's row has a `spec`, all its columns are written. If `spec` is None, only the columns
        `records.CHANGING` are written, and all others keep their stored values.
        """
        self._must_work()
        head, entries = self._chained(batch.entries)
        whole = [records.job_record(job) for job in batch.jobs if job.spec is not None]
        changed = [records.job_change(job) for job in batch.jobs if job.spec is None]
        nodes = [records.sealed_record(node) for node in batch.nodes]
        notes = [records.sealed_record(note) for note in batch.notes if note.body is not None]
        dropped = [{"kind": note.kind, "name": note.name} for note in batch.notes if note.body is None]
        try:
            with self._proven():
                if entries:
                    self._writer.execute(self._add_entries, entries)
                    for entry in batch.entries:
                        if entry.kind == SEALED:
                            through = json.loads(entry.body)["through"]
                            retention.write_meta(self._writer, SEALED, str(through))
                if whole:
                    self._writer.execute(self._put_jobs, whole)
                if changed and self._writer.execute(self._change_jobs, changed).rowcount != len(changed):
                    raise ValueError("a job that was never stored needs its spec")
                if batch.usage:
                    self._writer.execute(self._put_usage, [asdict(row) for row in batch.usage])
                if nodes:
                    self._writer.execute(self._put_nodes, nodes)
                if notes:
                    self._writer.execute(self._put_notes, notes)
                if dropped:
                    self._writer.execute(self._drop_notes, dropped)
            self._place.acknowledge(head)
        except (StoreBroken, StoreStale) as broken:
            self._broken = broken
            raise
        except DBAPIError as error:
            raise self._failed(error) from error
        self._head = head

    @contextmanager
    def _proven(self) -> Iterator[None]:
        """A transaction that begins with the proof that this controller leads."""
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
        assert self._writer  # Raise StoreRefused if this controller does not lead.
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

    def old_jobs(self, before: float, most: int, at_once: int) -> list[int]:
        """Return up to `at_once` ended jobs to delete: jobs that ended before the time `before`. If more
        ended jobs are stored than the limit `most`, the surplus jobs that ended first are returned too.
        """
        with self._reading() as connection:
            return retention.old_jobs(connection, before, most, at_once)

    def old_entries(self, before: float, most: int, least: int) -> int:
        """Return the number of the newest journal entry to delete.

        An entry must be deleted if it is older than the time `before`, or if there are at least `most` newer
        entries. The newest `least` entries are never deleted. If no entry must be deleted, return a number
        below that of the oldest entry.
        """
        journal = tables.journal.c
        with self._reading() as connection:
            last, first = connection.execute(select(func.max(journal.seq), func.min(journal.seq))).one()
            if last is None:
                return 0
            # Find the newest entry that is older than `before` by binary search, because entries are in the
            # order of their times.
            low, high = first - 1, last
            while low < high:
                middle = (low + high + 1) // 2
                at = connection.scalar(select(journal.at).where(journal.seq == middle))
                low, high = (middle, high) if at is not None and at < before else (low, middle - 1)
            return int(min(max(low, last - most), last - least))

    def sealed(self) -> int:
        """Return the number of the last journal entry whose deletion is announced by a later entry
        (JournalSealed); 0 if no deletion is announced. Only announced entries may be deleted.
        """
        with self._reading() as connection:
            found = connection.scalar(select(tables.meta.c.value).where(tables.meta.c.name == SEALED))
        return int(found or 0)

    def delete_jobs(self, ids: Collection[int]) -> None:
        """Delete the rows of ended jobs, and add their usage to the usage by day. Call this only in the
        thread that commits.
        """
        self._write(lambda: retention.delete_jobs(self._place, self._writer, ids))

    def delete_entries(self, through: int, at_once: int) -> None:
        """Delete the oldest journal entries: at most `at_once` entries, and none with a number above
        `through`. Call this only in the thread that commits."""
        base = self._write(lambda: retention.delete_entries(self._writer, through, self._base, at_once))
        self._base = base or self._base

    def close(self) -> None:
        """Close all connections and release the lock."""
        if self._leads_with is not None:
            self._leads_with.close()
        self._place.close()

    def _chained(self, entries: Collection[JournalEntry]) -> tuple[Head, list[records.Record]]:
        seq, digest = self._head
        chained = []
        for entry in entries:
            seq += 1
            if entry.seq != seq:
                raise ValueError(f"entry {entry.seq} cannot follow entry {seq - 1}")
            digest = chain.link(digest, entry)
            chained.append(records.entry_record(entry, digest))
        return Head(seq, digest), chained

    def _facts(self, connection: Connection) -> dict[str, str]:
        """Return the rows of the table `meta`, such as the id of the store, as a dictionary."""
        with _transaction(connection):
            facts = {row.name: row.value for row in connection.execute(select(tables.meta))}
        if "id" not in facts:
            raise self._place.damaged("the table meta has lost its rows")
        return facts

    def _find_head(self, connection: Connection) -> Head:
        """Check the hash chain of the last TAIL journal entries. Return the newest entry."""
        newest = records.ENTRIES.order_by(tables.journal.c.seq.desc()).limit(TAIL + 1)
        with _transaction(connection):
            tail = [records.read_entry(row) for row in connection.execute(newest)][::-1]
        start = self._base or chain.genesis(self._meta["id"])
        if len(tail) > TAIL:
            before, digest = tail.pop(0)
            start = Head(before.seq, digest)
        head = chain.follow(start, tail)
        if isinstance(head, ChainBroken):
            raise self._place.damaged(head.how)
        return head


@contextmanager
def _transaction(connection: Connection) -> Iterator[None]:
    """The open transaction of the connection, or a new one."""
    if connection.in_transaction():
        yield
    else:
        with connection.begin():
            yield


def backend_of(url: str, memory: Path | None = None) -> Backend:
    """Return the backend for a database URL. Raise StoreRefused if the URL is not a valid URL of SQLite or
    PostgreSQL. `memory` is the file in which this host remembers the newest journal entry of a PostgreSQL
    database."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        parsed = None
    if parsed is not None and parsed.get_backend_name() == "sqlite":
        return SqliteFile(parsed)
    if parsed is not None and parsed.get_backend_name() == "postgresql":
        return PostgresServer(parsed, memory)
    raise StoreRefused(
        "The database's URL is not one that Corral knows",
        "Write sqlite:////absolute/path/to/corral.db or postgresql://user@host/database.",
    )


def _insert_or_replace(place: Backend, *key: Any) -> Any:
    table = key[0].table
    statement = place.insert(table)
    rest = [column.name for column in table.columns if not column.primary_key]
    new = {name: statement.excluded[name] for name in rest}
    return statement.on_conflict_do_update(index_elements=list(key), set_=new)
