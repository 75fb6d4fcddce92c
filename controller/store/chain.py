"""The hash chain of the journal, which reveals changed, missing and reordered entries.

The hash of each journal entry is computed from the entry and the hash of the previous entry. It thus depends
on all earlier entries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from controller.core.model.rows import JournalEntry


class Head(NamedTuple):
    """The number and hash of a journal entry, in most cases the newest one."""

    seq: int
    hash: bytes


class ChainBroken(NamedTuple):
    """Returned by a check that found a journal entry which does not fit into the hash chain. `before` is the
    last good entry, `how` the reason.
    """

    before: Head
    how: str


def genesis(store_id: str) -> Head:
    """Return the start of the hash chain, before the first journal entry. Its hash depends on the store's id,
    so that entries of another store do not fit.
    """
    return Head(0, hashlib.sha256(store_id.encode()).digest())


def link(before: bytes, entry: JournalEntry) -> bytes:
    """Return the hash of a journal entry. `before` is the hash of the previous entry.

    The hashed bytes contain the length of each text, so that different entries never give the same bytes.
    """
    node = entry.node
    spelled = (
        # Add 0.0 to the time, so that the hash stays the same after reading: the database returns an int as a
        # float and -0.0 as 0.0.
        f"{entry.seq} {entry.at + 0.0!r} {entry.job} {len(entry.kind)} {None if node is None else len(node)} "
        f"{entry.kind}{node or ''}{entry.body}"
    )
    return hashlib.sha256(before + spelled.encode()).digest()


def follow(head: Head, entries: Iterable[tuple[JournalEntry, bytes]]) -> Head | ChainBroken:
    """Check the hash chain of journal entries that follow the entry `head`. Returns the last entry, or
    ChainBroken if an entry does not fit.
    """
    for entry, stored in entries:
        if entry.seq != head.seq + 1:
            return ChainBroken(head, f"entry {head.seq + 1} of the journal is missing")
        if link(head.hash, entry) != stored:
            return ChainBroken(head, f"entry {entry.seq} of the journal is not what was written")
        head = Head(entry.seq, stored)
    return head
