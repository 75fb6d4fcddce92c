"""The hash chain of the journal. The hash of each entry covers the entry and, through the hash before it, all
earlier entries."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from controller.core.model.rows import JournalEntry


class Head(NamedTuple):
    """The number and hash of the newest entry."""

    seq: int
    hash: bytes


class ChainBroken(NamedTuple):
    """The reason why a chain is broken, and the last entry before the break."""

    before: Head
    how: str


def genesis(store_id: str) -> Head:
    """The hash that the first entry links to. It contains the store's id, so that entries of another store do
    not fit."""
    return Head(0, hashlib.sha256(store_id.encode()).digest())


def link(before: bytes, entry: JournalEntry) -> bytes:
    """The hash of an entry. The hashed bytes contain the length of each text, so that different entries never
    give the same bytes."""
    node = entry.node
    spelled = (
        # Add 0.0, because the database returns an int as a float and -0.0 as 0.0.
        f"{entry.seq} {entry.at + 0.0!r} {entry.job} {len(entry.kind)} {None if node is None else len(node)} "
        f"{entry.kind}{node or ''}{entry.body}"
    )
    return hashlib.sha256(before + spelled.encode()).digest()


def follow(head: Head, entries: Iterable[tuple[JournalEntry, bytes]]) -> Head | ChainBroken:
    """The number and hash of the last of these entries, or the first entry whose stored hash is wrong."""
    for entry, stored in entries:
        if entry.seq != head.seq + 1:
            return ChainBroken(head, f"entry {head.seq + 1} of the journal is missing")
        if link(head.hash, entry) != stored:
            return ChainBroken(head, f"entry {entry.seq} of the journal is not what was written")
        head = Head(entry.seq, stored)
    return head
