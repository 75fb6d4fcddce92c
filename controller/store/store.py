"""The journal and the rows, written together and durable when commit returns."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Connection, Select, bindparam, delete, func, insert, make_url, select, update
from sqlalchemy.exc import ArgumentError, DBAPIError

from controller.core.rows import Batch, Entry, JobRow, NodeRow, NoteRow
from controller.store import chain, records, tables
from controller.store.chain import Broken, Head
from controller.store.failures import StoreAway, StoreBroken, StoreFailure, StoreRefused
from controller.store.place import Place
from controller.store.postgres import PostgresServer
from controller.store.schema import migrate
from controller.store.sqlite import SqliteFile
from controller.store.verify import VerifyReport, verify

TAIL = 1_000
"""Entries at the journal's end whose chain is followed on every open; verify() follows all of it."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a controller starts from: every live job, the newest ended ones, nodes and notes."""

    last_seq: int
    last_at: float
    next_job: int
    jobs: list[JobRow]
    ended: list[JobRow]
    nodes: list[NodeRow]
    notes: list[NoteRow]
    meta: dict[str, str]


class Store:
    """One thread at a time commits; the reading methods may be called from others meanwhile."""

    def __init__(self, place: Place, writer: Connection, keep: int) -> None:
        self._place = place
        self._writer = writer
        self._keep = keep
        self._broken: StoreBroken | StoreAway | None = None
        self._meta = self._facts()
        self._head = self._find_head()
        self._add_entries = insert(tables.journal)
        self._put_jobs = _insert_or_replace(place, tables.jobs.c.id)
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
    def id(self) -> str:
        """What no other store has, and its copies have too."""
        return self._meta["id"]

    @classmethod
    def open(cls, url: str, *, keep: int = 1_000) -> Self:
        """Take the store at this URL for this process, bring its tables up to date and check it.

        `keep` is how many ended jobs load() returns. A new SQLite file is created, its directory too.
        """
        place = _place(url)
        with ExitStack() as undo:
            undo.callback(place.close)
            try:
                writer = undo.enter_context(place.open())
                with writer.begin():
                    problems = place.quick_check(writer)
                if problems:
                    raise place.damaged(problems[0])
                migrate(writer, place.where)
                store = cls(place, writer, keep)
                place.settle(writer, store._head)
            except (DBAPIError, StoreFailure) as error:
                failure = error if isinstance(error, StoreFailure) else place.failure(error.orig)
                raise StoreRefused(failure.message, failure.hint) from error
            undo.pop_all()
        return store

    def resume(self) -> None:
        """Take the store again after StoreAway: it is ours, and holds all that was acknowledged.

        Raises StoreAway while that cannot be, StoreRefused if another controller has it by now, StoreBroken
        if something that was acknowledged is gone: no commit is lost without a word.
        """
        if not isinstance(self._broken, StoreAway):
            return
        self._writer.close()
        self._place.close()
        try:
            self._writer = self._place.open()
            facts, head = self._facts(), self._find_head()
            with self._writer.begin():
                there = self._writer.scalar(
                    select(tables.journal.c.hash).where(tables.journal.c.seq == self._head.seq)
                )
        except DBAPIError as error:
            raise self._place.failure(error.orig) from error
        if facts != self._meta or (self._head.seq and there != self._head.hash):
            self._broken = StoreBroken(
                f"{self._place.where} came back without entry {self._head.seq}, which was acknowledged",
                "It was replaced, or a standby that was behind took its place: put the right one there, then "
                "start the controller again. Starting it on this one goes on from what is there.",
            )
            raise self._broken
        self._head, self._broken = head, None

    def load(self) -> Loaded:
        """Everything a controller needs to go on from here."""
        jobs = tables.jobs.c
        with self._reading() as connection:
            live = connection.execute(records.JOBS.where(jobs.ended_at.is_(None)).order_by(jobs.id))
            newest = records.JOBS.where(jobs.ended_at.is_not(None)).order_by(
                jobs.ended_at.desc(), jobs.id.desc()
            )
            ended = connection.execute(newest.limit(self._keep))
            last = select(tables.journal.c.seq, tables.journal.c.at).order_by(tables.journal.c.seq.desc())
            last_seq, last_at = connection.execute(last.limit(1)).one_or_none() or (0, 0.0)
            # An array's number comes from the same counter as its elements'.
            highest = connection.execute(select(func.max(jobs.id), func.max(jobs.array))).one()
            return Loaded(
                last_seq=last_seq,
                last_at=last_at,
                next_job=max(number or 0 for number in highest) + 1,
                jobs=[records.read_job(row) for row in live],
                ended=[records.read_job(row) for row in ended],
                nodes=[records.read_node(row) for row in connection.execute(records.NODES)],
                notes=[records.read_note(row) for row in connection.execute(records.NOTES)],
                meta=dict(self._meta),
            )

    def commit(self, batch: Batch) -> None:
        """Write the batch in one transaction; when this returns it survives a power cut.

        A job's row with `spec` is written whole. Without, only what changes in a job's life is: user, key,
        array and submitted_at stay as they were stored.
        """
        if self._broken:
            raise type(self._broken)(self._broken.message, self._broken.hint)
        head, entries = self._chained(batch.entries)
        whole = [records.job_record(job) for job in batch.jobs if job.spec is not None]
        changed = [records.job_change(job) for job in batch.jobs if job.spec is None]
        nodes = [records.node_record(node) for node in batch.nodes]
        notes = [records.note_record(note) for note in batch.notes if note.body is not None]
        dropped = [{"kind": note.kind, "name": note.name} for note in batch.notes if note.body is None]
        try:
            with self._writer.begin():
                if entries:
                    self._writer.execute(self._add_entries, entries)
                if whole:
                    self._writer.execute(self._put_jobs, whole)
                if changed and self._writer.execute(self._change_jobs, changed).rowcount != len(changed):
                    raise ValueError("a job that was never stored needs its spec")
                if nodes:
                    self._writer.execute(self._put_nodes, nodes)
                if notes:
                    self._writer.execute(self._put_notes, notes)
                if dropped:
                    self._writer.execute(self._drop_notes, dropped)
            self._place.acknowledge(head)
        except StoreBroken as broken:
            self._broken = broken
            raise
        except DBAPIError as error:
            failure = self._place.failure(error.orig)
            if isinstance(failure, (StoreBroken, StoreAway)):
                self._broken = failure
            raise failure from error
        self._head = head

    def journal(self, after: int, limit: int, job: int | None = None) -> list[Entry]:
        """Entries behind number `after` in order, of one job or of all."""
        seq = tables.journal.c.seq
        query = records.ENTRIES.where(seq > after).order_by(seq).limit(limit)
        if job is not None:
            query = query.where(tables.journal.c.job == job)
        with self._reading() as connection:
            return [records.read_entry(row)[0] for row in connection.execute(query)]

    def job(self, job: int) -> JobRow | None:
        """The row of a job, however long ago it ended."""
        return next(iter(self._jobs(records.JOBS.where(tables.jobs.c.id == job))), None)

    def jobs(
        self,
        states: Collection[str] | None = None,
        user: str | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> list[JobRow]:
        """Jobs in these states and of this user, newest first; `after` is the page before's last number."""
        query = records.JOBS.order_by(tables.jobs.c.id.desc()).limit(limit)
        if states is not None:
            query = query.where(tables.jobs.c.state.in_(states))
        if user is not None:
            query = query.where(tables.jobs.c.user == user)
        if after is not None:
            query = query.where(tables.jobs.c.id < after)
        return self._jobs(query)

    def ended(self, since: float, after: int, limit: int) -> list[JobRow]:
        """Jobs that ended at or after a moment, by number; `after` is the page before's last number."""
        jobs = tables.jobs.c
        query = records.JOBS.where(jobs.ended_at >= since, jobs.id > after).order_by(jobs.id).limit(limit)
        return self._jobs(query)

    def jobs_of_key(self, user: str, key: str) -> list[JobRow]:
        """What a user's submit with this idempotency key became; an array gives several."""
        found = records.JOBS.where(
            tables.jobs.c.user == user, tables.jobs.c.key == key, tables.jobs.c.key != ""
        )
        return self._jobs(found.order_by(tables.jobs.c.id))

    def jobs_of_array(self, array: int) -> list[JobRow]:
        """All elements of an array."""
        return self._jobs(records.JOBS.where(tables.jobs.c.array == array).order_by(tables.jobs.c.id))

    def verify(self) -> VerifyReport:
        """Read everything; minutes on a large store, while commits go on."""
        with self._reading() as connection:
            return verify(self._place, connection, self._meta["id"])

    def backup(self, path: Path) -> None:
        """Write a consistent copy to a new file while commits go on."""
        with self._reading() as connection:
            self._place.backup(connection, path)

    def close(self) -> None:
        """Let go of the store; the next open finds it tidy."""
        self._writer.close()
        self._place.close()

    def _chained(self, entries: Collection[Entry]) -> tuple[Head, list[records.Record]]:
        seq, digest = self._head
        chained = []
        for entry in entries:
            seq += 1
            if entry.seq != seq:
                raise ValueError(f"entry {entry.seq} cannot follow entry {seq - 1}")
            digest = chain.link(digest, entry)
            chained.append(records.entry_record(entry, digest))
        return Head(seq, digest), chained

    def _facts(self) -> dict[str, str]:
        """What the store knows of itself; its id roots the chain."""
        with self._writer.begin():
            facts = {row.name: row.value for row in self._writer.execute(select(tables.meta))}
        if "id" not in facts:
            raise self._place.damaged("the table meta has lost its rows")
        return facts

    def _find_head(self) -> Head:
        """Follow the chain's end."""
        newest = records.ENTRIES.order_by(tables.journal.c.seq.desc()).limit(TAIL + 1)
        with self._writer.begin():
            tail = [records.read_entry(row) for row in self._writer.execute(newest)][::-1]
        start = chain.genesis(self._meta["id"])
        if len(tail) > TAIL:
            before, digest = tail.pop(0)
            start = Head(before.seq, digest)
        head = chain.follow(start, tail)
        if isinstance(head, Broken):
            raise self._place.damaged(head.how)
        return head

    def _jobs(self, query: Select[Any]) -> list[JobRow]:
        with self._reading() as connection:
            return [records.read_job(row) for row in connection.execute(query)]

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """A connection of its own that sees one moment."""
        try:
            with self._place.engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise self._place.failure(error.orig) from error
        except records.Unsealed as error:
            raise self._place.damaged(str(error)) from error


def _place(url: str) -> Place:
    try:
        parsed = make_url(url)
    except ArgumentError:
        parsed = None
    if parsed is not None and parsed.get_backend_name() == "sqlite":
        return SqliteFile(parsed)
    if parsed is not None and parsed.get_backend_name() == "postgresql":
        return PostgresServer(parsed)
    raise StoreRefused(
        "The database's URL is not one that Corral knows",
        "Write sqlite:////absolute/path/to/corral.db or postgresql://user@host/database.",
    )


def _insert_or_replace(place: Place, *key: Any) -> Any:
    table = key[0].table
    statement = place.insert(table)
    rest = [column.name for column in table.columns if not column.primary_key]
    new = {name: statement.excluded[name] for name in rest}
    return statement.on_conflict_do_update(index_elements=list(key), set_=new)
