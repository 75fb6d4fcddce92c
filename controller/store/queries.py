"""Reads journal entries, rows of jobs, and usage from a store."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, Select, select
from sqlalchemy.exc import DBAPIError

from controller.core.model.rows import JobRow, JournalEntry, UsageRow
from controller.store import records, tables
from controller.store.backends.backend import Backend
from controller.store.billed_usage import BilledTime, billed
from controller.store.maintenance.verify import VerifyReport, verify
from controller.store.usage import UsageSum, report


class StoreQueries:
    """Queries of an open store. Any thread may call these methods. Each result is from one consistent
    snapshot of the database.
    """

    def __init__(self, place: Backend) -> None:
        self._place = place

    @property
    def where(self) -> str:
        """Return the file or server of the store, for messages."""
        return self._place.where

    def journal(self, after: int, limit: int, job: int | None = None) -> list[JournalEntry]:
        """Return up to `limit` journal entries with numbers above `after`, in order; with `job`, only entries
        about this job.
        """
        seq = tables.journal.c.seq
        query = records.ENTRIES.where(seq > after).order_by(seq).limit(limit)
        if job is not None:
            query = query.where(tables.journal.c.job == job)
        with self._reading() as connection:
            return [records.read_entry(row)[0] for row in connection.execute(query)]

    def job(self, job: int) -> JobRow | None:
        """Return the row of a job, or None if the store does not have the job."""
        return next(iter(self._jobs(records.JOBS.where(tables.jobs.c.id == job))), None)

    def jobs(
        self,
        states: Collection[str] | None = None,
        user: str | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> list[JobRow]:
        """Return up to `limit` jobs in these states and of this user, newest first.

        Only jobs with ids below `after` are returned; None: all. For the next page, pass the id of the last
        job of this page.
        """
        query = records.JOBS.order_by(tables.jobs.c.id.desc()).limit(limit)
        if states is not None:
            query = query.where(tables.jobs.c.state.in_(states))
        if user is not None:
            query = query.where(tables.jobs.c.user == user)
        if after is not None:
            query = query.where(tables.jobs.c.id < after)
        return self._jobs(query)

    def usage(
        self,
        by: str,
        since: float,
        until: float,
        most: int,
        running: Sequence[UsageRow] = (),
        only: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[list[UsageSum], int]:
        """Return the resources that attempts used in a time window, by user, project, queue or job (`by`),
        and the number of all groups (users, projects, queues or jobs).

        Only the `most` groups with the most GPU time are returned. `running` is the usage of attempts that
        have not ended. `only` selects attempts, such as {"project": "vision"}.
        """
        with self._reading() as connection:
            return report(connection, by, since, until, most, running, only)

    def billed(
        self,
        by: str,
        since: float,
        until: float,
        only: Mapping[str, str],
        running: Sequence[UsageRow] = (),
        names: Sequence[str] | None = None,
    ) -> tuple[list[BilledTime], dict[str, int]]:
        """Return the billed time of each user, project, queue or job (`by`) on each node, and the number of
        jobs of each. With `names`, return only the users, projects, queues or jobs with these names.
        """
        with self._reading() as connection:
            return billed(connection, by, since, until, only, running, names)

    def numbers_of_key(self, user: str, key: str) -> tuple[int, ...]:
        """Return the ids of the jobs that a user submitted with this idempotency key: one job, or all
        elements of a job array. The result is empty if there was no such submit."""
        jobs = tables.jobs.c
        query = select(jobs.id).where(jobs.user == user, jobs.key == key, jobs.key != "").order_by(jobs.id)
        with self._reading() as connection:
            return tuple(connection.scalars(query))

    def jobs_of_array(self, array: int) -> list[JobRow]:
        """Return the rows of all elements of an array."""
        return self._jobs(records.JOBS.where(tables.jobs.c.array == array).order_by(tables.jobs.c.id))

    def jobs_of_ids(self, ids: Sequence[int]) -> list[JobRow]:
        """Return the rows of these jobs. Jobs that do not exist are left out."""
        return self._jobs(records.JOBS.where(tables.jobs.c.id.in_(ids)).order_by(tables.jobs.c.id))

    def jobs_ended_since(self, since: float, limit: int) -> list[JobRow]:
        """Return the rows of up to `limit` jobs that ended at the time `since` or later. The job that ended
        last is first."""
        ended_at = tables.jobs.c.ended_at
        return self._jobs(records.JOBS.where(ended_at >= since).order_by(ended_at.desc()).limit(limit))

    def hash_of(self, seq: int) -> str:
        """Return the hash of a journal entry as hexadecimal text; "" if the entry does not exist."""
        with self._reading() as connection:
            found = connection.scalar(select(tables.journal.c.hash).where(tables.journal.c.seq == seq))
        return found.hex() if found is not None else ""

    def verify(self) -> VerifyReport:
        """Verify the whole store (see the module verify). This may take minutes; commits can
        continue."""
        with self._reading() as connection:
            return verify(self._place, connection)

    def backup(self, path: Path) -> None:
        """Write a consistent copy of the store to a new file. Commits can continue during the copy."""
        with self._reading() as connection:
            self._place.backup(connection, path)

    def _jobs(self, query: Select[Any]) -> list[JobRow]:
        with self._reading() as connection:
            return [records.read_job(row) for row in connection.execute(query)]

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Open a connection that reads one consistent snapshot of the database."""
        try:
            with self._place.engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise self._place.failure(error.orig) from error
        except records.Unsealed as error:
            raise self._place.damaged(str(error)) from error
