"""Verifies a whole store.

1. Let the database check its own structure.
2. Check the hash chain from the first journal entry to the newest one. If retention deleted entries, begin at
   the last deleted entry (the base). A later entry of kind `JournalSealed` must contain the hash of the base.
3. Check the checksum of every row.
4. If no problem was found, read the journal again, job by job, and compare the row of each job with the job's
   journal entries. Skip jobs whose first entries were deleted. An entry that cannot be parsed is a problem
   even if its hash is correct: a program other than Corral has written the entry.

Cost: the journal is read twice and the rows once, in constant memory and in one read-only snapshot of the
database.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, select
from sqlalchemy.exc import DBAPIError

from controller.core.model.rows import JobRow, JournalEntry
from controller.store import chain, records, tables
from controller.store.backends.backend import Backend
from controller.store.chain import ChainBroken, Head
from controller.store.maintenance import retention
from wire.api.service.store import VerifyLine

T = TypeVar("T")
Facts = dict[str, Any]
Progress = Callable[[str, int], None]

AT_ONCE = 1_000
STEP = 50_000
MOST_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The numbers of entries and rows that were checked, and the problems that were found.

    `head` is the newest journal entry. An operator can record this entry elsewhere and compare it later with
    the store, to find out whether the journal was replaced.
    """

    store: str
    begins: int
    """The number of the last deleted journal entry; 0 if no entry was deleted."""
    head: Head
    jobs: int
    compared: int
    """Number of jobs whose rows were compared with the journal."""
    nodes: int
    problems: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Return whether no problem was found."""
        return not self.problems

    def last_line(self) -> VerifyLine:
        """Return the report as the last line of the answer to `GET /v1/store/verify`."""
        return VerifyLine(
            done=True,
            store=self.store,
            begins=self.begins,
            seq=self.head.seq,
            head=self.head.hash.hex(),
            jobs=self.jobs,
            compared=self.compared,
            nodes=self.nodes,
            problems=self.problems,
        )


class Verification:
    """One verification of a store, with the problems found so far. The module's docstring lists the steps."""

    def __init__(self, place: Backend, connection: Connection, progress: Progress | None = None) -> None:
        self._connection = connection
        self._progress = progress or (lambda _what, _count: None)
        self._problems = place.full_check(connection)

    def run(self) -> VerifyReport:
        facts = {row.name: row.value for row in self._connection.execute(select(tables.meta))}
        base = retention.read_base(facts)
        head = self._follow(base or chain.genesis(facts.get("id", "")), base)
        jobs = sum(1 for _ in self._each(records.JOBS, records.read_job, "rows of jobs"))
        nodes = sum(1 for _ in self._each(records.NODES, records.read_node, "rows of nodes"))
        for _ in self._each(records.NOTES, records.read_note, "notes"):
            pass
        compared = self._compare() if not self._problems else 0
        problems = tuple(self._problems[:MOST_PROBLEMS])
        return VerifyReport(
            facts.get("id", ""), base.seq if base else 0, head, jobs, compared, nodes, problems
        )

    def _follow(self, start: Head, base: Head | None) -> Head:
        sealed: list[tuple[int, str]] = []

        def entries() -> Iterator[tuple[JournalEntry, bytes]]:
            for entry, digest in self._each(
                records.ENTRIES.order_by(tables.journal.c.seq), records.read_entry, "journal"
            ):
                yield entry, digest
                # Parse the entry after the check of its hash, so that a damaged entry is reported as damaged.
                if entry.kind == retention.SEALED:
                    try:
                        body = json.loads(entry.body)
                        sealed.append((body["through"], body["digest"]))
                    except (ValueError, KeyError, TypeError):
                        self._problems.append(str(_Unparsable(entry)))

        end = chain.follow(start, entries())
        if isinstance(end, ChainBroken):
            self._problems.append(end.how)
            return end.before
        if base is not None and not self._is_announced(base, sealed):
            self._problems.append(
                f"the journal begins after entry {base.seq}, and no later entry records this deletion"
            )
        return end

    def _is_announced(self, base: Head, sealed: Sequence[tuple[int, str]]) -> bool:
        """Return whether a JournalSealed entry announces the deletion of the journal entries up to `base`,
        the last deleted entry. The announcement may also cover later entries that are not deleted yet."""
        for through, digest in reversed(sealed):
            if through == base.seq:
                return digest == base.hash.hex()
            if through > base.seq:
                query = select(tables.journal.c.hash).where(tables.journal.c.seq == through)
                found = self._connection.scalar(query)
                return found is not None and found.hex() == digest
        return False

    def _compare(self) -> int:
        """Compare each job's row with the job's journal entries. Rows and entries are both read in the order
        of job ids. Return the number of compared rows.
        """
        journal = tables.journal.c
        by_job = records.ENTRIES.where(journal.job.is_not(None)).order_by(journal.job, journal.seq)
        entries = (entry for entry, _ in self._each(by_job, records.read_entry, "jobs in the journal"))
        rows = self._each(
            records.JOBS.order_by(tables.jobs.c.id), records.read_job, "rows against the journal"
        )
        row, compared = next(rows, None), 0
        for job, life in groupby(entries, key=lambda entry: entry.job):
            try:
                expected = _expected_row(life)
            except _Unparsable as problem:
                self._problems.append(str(problem))
                expected = None
            while row is not None and job is not None and row.id < job:
                row = next(rows, None)
            if row is None or row.id != job or expected is None:
                continue  # Skip the job: its row or first entry was deleted, or an entry cannot be parsed.
            compared += 1
            wrong = [name for name, value in expected.items() if _of(row, name) != value]
            if wrong:
                self._problems.append(
                    f"the row of job {job} is not what the journal says: {', '.join(wrong)}"
                )
        return compared

    def _each(self, query: Select[Any], read: Callable[[Sequence[Any]], T], what: str) -> Iterator[T]:
        try:
            found = self._connection.execute(query.execution_options(yield_per=AT_ONCE))
            for count, row in enumerate(found, 1):
                if count % STEP == 0:
                    self._progress(what, count)
                try:
                    yield read(row)
                except records.Unsealed as problem:
                    self._problems.append(str(problem))
        except DBAPIError as error:
            self._problems.append(str(error.orig))


class _Unparsable(Exception):
    """Raised if a journal entry cannot be parsed although its hash is correct."""

    def __init__(self, entry: JournalEntry) -> None:
        super().__init__(f"entry {entry.seq} of the journal ({entry.kind}) cannot be parsed")


def _expected_row(life: Iterator[JournalEntry]) -> Facts | None:
    """Return the values that a job's row must have, by column name. `life` has the job's journal entries.
    Return None if the first of these entries was deleted. Raise _Unparsable if an entry cannot be parsed.
    """
    facts: Facts | None = None
    for entry in life:
        if facts is None and entry.kind != "JobQueued":
            return None
        try:
            facts = _apply(entry, facts or {})
        except (ValueError, KeyError, TypeError):
            raise _Unparsable(entry) from None
    if facts is not None and facts["ended_at"] is None and facts["state"] != "QUEUED":
        # Do not compare the state of a placed job, because these entries do not show whether the job is
        # SCHEDULED or RUNNING.
        del facts["state"]
    return facts


def _apply(entry: JournalEntry, facts: Facts) -> Facts:
    """Return the values of a job's row after a journal entry. `facts` has the values before the entry."""
    if entry.kind == "JobQueued":
        body = json.loads(entry.body)
        return {
            "user": body["user"],
            "key": body.get("key", ""),
            "array": body.get("array"),
            "submitted_at": entry.at,
            "spec": body["spec"],
            "state": "QUEUED",
            "ended_at": None,
            "attempt": 0,
        }
    if entry.kind == "JobEdited":
        return facts | {"spec": json.loads(entry.body)["spec"]}
    if entry.kind == "JobPlaced":
        return facts | {"attempt": json.loads(entry.body)["attempt"], "state": "SCHEDULED"}
    if entry.kind == "JobRequeued":
        return facts | {"state": "QUEUED"}
    if entry.kind == "JobEnded":
        return facts | {"state": json.loads(entry.body)["state"], "ended_at": entry.at}
    return facts


def _of(row: JobRow, name: str) -> Any:
    if name == "spec":
        return json.loads(row.spec or "null")
    if name == "attempt":
        return json.loads(row.body)["attempt"]
    return getattr(row, name)


def verify(place: Backend, connection: Connection, progress: Progress | None = None) -> VerifyReport:
    """Verify a whole store and return the problems that were found. The module's docstring lists the
    steps.
    """
    return Verification(place, connection, progress).run()
