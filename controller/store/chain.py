"""The journal's hash chain: each entry seals itself and everything before it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from controller.core.rows import Entry


class Head(NamedTuple):
    """The end of the journal: the newest entry's number and hash."""

    seq: int
    hash: bytes


class Broken(NamedTuple):
    """How a chain shows that it was changed, and the last head that holds."""

    before: Head
    how: str


def genesis(store_id: str) -> Head:
    """What the first entry links to: the store itself, so no journal passes for another's."""
    return Head(0, hashlib.sha256(store_id.encode()).digest())


def link(before: bytes, entry: Entry) -> bytes:
    """The entry's hash; lengths stand in front of the texts, so no two entries are spelled alike."""
    node = entry.node
    spelled = (
        # Adding 0.0 turns an int into the float, and -0.0 into the 0.0, that a database gives back.
        f"{entry.seq} {entry.at + 0.0!r} {entry.job} {len(entry.kind)} {None if node is None else len(node)} "
        f"{entry.kind}{node or ''}{entry.body}"
    )
    return hashlib.sha256(before + spelled.encode()).digest()


def follow(head: Head, entries: Iterable[tuple[Entry, bytes]]) -> Head | Broken:
    """The head after these entries with their stored hashes, or the first one that does not fit."""
    for entry, stored in entries:
        if entry.seq != head.seq + 1:
            return Broken(head, f"entry {head.seq + 1} of the journal is missing")
        if link(head.hash, entry) != stored:
            return Broken(head, f"entry {entry.seq} of the journal is not what was written")
        head = Head(entry.seq, stored)
    return head
