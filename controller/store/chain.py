"""The hash chain of the journal, which reveals changed, missing and reordered entries.

The hash of each journal entry is computed from the entry and the hash of the previous entry. So the hash of
an entry depends on all earlier entries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from controller.core.model.rows import JournalEntry


class Head(NamedTuple):
    """The number and hash of a journal entry, usually the newest entry."""

    seq: int
    hash: bytes


class ChainBroken(NamedTuple):
    """The result of a check that found an entry which does not fit into the hash chain. `before` is the last
    entry that fits, and `how` says what is wrong.
    """

    before: Head
    how: str


def genesis(store_id: str) -> Head:
    """Return the start of the hash chain, which precedes the first journal entry. The hash of the start
    depends on the store's id, so that entries of another store do not fit."""
    return Head(0, hashlib.sha256(store_id.encode()).digest())


def link(before: bytes, entry: JournalEntry) -> bytes:
    """Return the hash of a journal entry. `before` is the hash of the previous entry.

    The hashed bytes contain the length of each text, so that two different entries never have the same bytes.
    """
    node = entry.node
    spelled = (
        # Add 0.0, which turns an int into a float, and -0.0 into 0.0. The database stores numbers in this
        # form, so an entry that is read back has the same hash.
        f"{entry.seq} {entry.at + 0.0!r} {entry.job} {len(entry.kind)} {None if node is None else len(node)} "
        f"{entry.kind}{node or ''}{entry.body}"
    )
    return hashlib.sha256(before + spelled.encode()).digest()


def follow(head: Head, entries: Iterable[tuple[JournalEntry, bytes]]) -> Head | ChainBroken:
    """Check that the hashes of `entries`, which follow the entry `head`, continue the hash chain.

    Return the number and hash of the last entry, or ChainBroken at the first entry whose hash does not fit.
    """
    for entry, stored in entries:
        if entry.seq != head.seq + 1:
            return ChainBroken(head, f"entry {head.seq + 1} of the journal is missing")
        if link(head.hash, entry) != stored:
            return ChainBroken(head, f"entry {entry.seq} of the journal is not what was written")
        head = Head(entry.seq, stored)
    return head
