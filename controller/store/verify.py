"""Reads everything there is and says whether it is what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, Select
from sqlalchemy.exc import DBAPIError

from controller.store import chain, records, tables
from controller.store.chain import Broken, Head
from controller.store.place import Place

T = TypeVar("T")

AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """How much is right and what is not; `head` can be written down elsewhere and compared later."""

    head: Head
    jobs: int
    nodes: int
    problems: tuple[str, ...]

    @property
    def good(self) -> bool:
        """True when everything is as it was written."""
        return not self.problems


def verify(place: Place, connection: Connection, store_id: str) -> VerifyReport:
    """Follow the whole chain and check every row, in the one snapshot that `connection` sees."""
    problems = place.full_check(connection)
    journal = records.ENTRIES.order_by(tables.journal.c.seq)
    end = chain.follow(chain.genesis(store_id), _each(connection, journal, records.read_entry, problems))
    if isinstance(end, Broken):
        problems.append(end.how)
    head = end.before if isinstance(end, Broken) else end
    jobs = sum(1 for _ in _each(connection, records.JOBS, records.read_job, problems))
    nodes = sum(1 for _ in _each(connection, records.NODES, records.read_node, problems))
    for _ in _each(connection, records.NOTES, records.read_note, problems):
        pass
    return VerifyReport(head, jobs, nodes, tuple(problems))


def _each(
    connection: Connection, query: Select[Any], read: Callable[[Sequence[Any]], T], problems: list[str]
) -> Iterator[T]:
    try:
        for row in connection.execute(query.execution_options(yield_per=AT_ONCE)):
            try:
                yield read(row)
            except records.Unsealed as problem:
                problems.append(str(problem))
    except DBAPIError as error:
        problems.append(str(error.orig))
