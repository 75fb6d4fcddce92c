"""The attempts on one execution engine by tag, with their records on disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from controller.engines.driver.driver_rules import Journal
from controller.engines.driver.foreign_attempts import AttemptRecord, ForeignAttempt
from controller.engines.driver.record_files import MOST_SETTLED, RecordFiles
from controller.engines.tags import Tag, parse_tag
from wire.agent.orders import Start
from wire.agent.reports import AttemptStatus

log = logging.getLogger("corral.engines")


class AttemptTable:
    """All attempts of one engine. Settled attempts are kept for their logs, at most MOST_SETTLED of them.

    Invariant: a fact that neither the engine nor the journal has is written with `save`, which waits for the
    disk. Other changes are written with `save_soon`.
    """

    def __init__(self, engine: str, files: RecordFiles, journal: Journal, tag_prefix: str) -> None:
        self.files = files
        self.prefix = tag_prefix
        self._engine = engine
        self._journal = journal
        self._by_tag: dict[str, ForeignAttempt] = {}
        self._unsaved: set[str] = set()
        """The tags of records that have changed in memory only."""
        for record in files.load():
            self.add(record)

    def __iter__(self) -> Iterator[ForeignAttempt]:
        return iter(list(self._by_tag.values()))

    def get(self, tag: str) -> ForeignAttempt | None:
        return self._by_tag.get(tag)

    def add(self, record: AttemptRecord) -> ForeignAttempt:
        """Add the attempt of a record, and return the attempt."""
        attempt = self._by_tag[record.tag] = ForeignAttempt.of(record, self._journal.now())
        return attempt

    def tag_of(self, order: Start) -> str:
        """Return the tag of the attempt of an order."""
        return str(Tag(self.prefix.split("-")[1], order.job, order.attempt, order.rank))

    def adopt(self, text: str, listed: set[str]) -> ForeignAttempt | None:
        """Make a new attempt for a foreign job with the tag `text`, which has no record, and return the
        attempt. Return None if the journal has no such attempt on one of the nodes `listed`.
        """
        tag = parse_tag(text, self.prefix)
        assert tag is not None
        node = self._journal.node_of(tag.job, tag.attempt, tag.rank)
        if node is None or node not in listed:
            return None
        log.warning(
            "engine %s: %s had no record; its tag names a job, so it gets a new record", self._engine, text
        )
        return self.add(AttemptRecord(text, node, tag.job, tag.attempt, tried=True))

    def on_node(self, node: str, job: int, number: int) -> list[ForeignAttempt]:
        """Return the attempts with this job and attempt number on a node."""
        wanted = node, job, number
        return [
            each
            for each in self._by_tag.values()
            if (each.record.node, each.record.job, each.record.attempt) == wanted
        ]

    def newest(self, job: int) -> int:
        """Return the highest attempt number of a job; 0 if no attempt of the job is known."""
        return max((each.record.attempt for each in self if each.record.job == job), default=0)

    def statuses(self, node: str) -> tuple[AttemptStatus, ...]:
        """Return the statuses of the attempts on a node, without settled attempts."""
        return tuple(
            each.record.status
            for each in self._by_tag.values()
            if each.record.node == node and not each.record.settled
        )

    def occupied_nodes(self) -> frozenset[str]:
        """Return the nodes with attempts whose ends the controller has not stored yet."""
        return frozenset(each.record.node for each in self._by_tag.values() if not each.record.settled)

    def waiting_reason(self, job: int, number: int) -> str:
        """Return why an attempt waits in the engine, such as `slurm:gpu: QOSGrpGRES`; empty if there is no
        reason. If it has several foreign jobs, the first reason is returned.
        """
        for each in self._by_tag.values():
            record = each.record
            if (record.job, record.attempt) == (job, number) and record.ended_at is None and each.reason:
                where = f"{self._engine}:{each.where}" if each.where else self._engine
                return f"{where}: {each.reason}"
        return ""

    # --- records on disk ---

    async def save(self, attempt: ForeignAttempt) -> None:
        """Write the record of an attempt durably."""
        await asyncio.to_thread(self.files.save, attempt.record)

    def save_soon(self, attempt: ForeignAttempt) -> None:
        """Mark the record, so that `write_unsaved` writes it soon. The caller does not wait for the disk,
        because the controller or the engine reports the changed facts again if they are lost.
        """
        self._unsaved.add(attempt.record.tag)

    @property
    def has_unsaved(self) -> bool:
        """Return whether a record has changes that are not on disk."""
        return bool(self._unsaved)

    async def write_unsaved(self, is_busy: Callable[[str], bool]) -> None:
        """Write the records that have changed. `is_busy` returns whether a request about a tag is under
        way.
        """
        tags, self._unsaved = self._unsaved, set()
        for tag in tags:
            attempt = self._by_tag.get(tag)
            if attempt is not None and not is_busy(tag):
                await self.save(attempt)
            elif attempt is not None:
                # Write the record later, because the request that is under way may write it without this
                # change.
                self._unsaved.add(tag)

    async def forget(self, attempt: ForeignAttempt) -> None:
        """Record that the engine has forgotten an attempt. Of the forgotten attempts, delete the oldest
        beyond MOST_SETTLED, with their logs.
        """
        attempt.record = replace(attempt.record, forgotten=True, order=None)
        await self.save(attempt)
        forgotten = [tag for tag, each in self._by_tag.items() if each.record.forgotten]
        for tag in forgotten[: max(0, len(forgotten) - MOST_SETTLED)]:
            del self._by_tag[tag]
            await asyncio.to_thread(self.files.delete, tag)
