"""The hash chain detects every change."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from controller.core.model.rows import JournalEntry
from controller.store.chain import ChainBroken, Head, follow, genesis, link
from tests.controller.store.samples import entry

START = genesis("store")


def chain(*entries: JournalEntry) -> list[tuple[JournalEntry, bytes]]:
    """These entries with their hashes."""
    digest, made = START.hash, []
    for one in entries:
        digest = link(digest, one)
        made.append((one, digest))
    return made


def test_chain_verifies_up_to_its_last_entry() -> None:
    made = chain(entry(1), entry(2), entry(3))
    assert follow(START, made) == Head(3, made[-1][1])
    assert follow(START, []) == START
    assert follow(Head(2, made[1][1]), made[2:]) == Head(3, made[-1][1])


def test_chain_is_bound_to_its_store() -> None:
    assert isinstance(follow(genesis("another"), chain(entry(1))), ChainBroken)


def test_chain_that_was_cut_moved_or_repeated_is_located() -> None:
    first, second, third = chain(entry(1), entry(2), entry(3))
    for changed, where in (
        ([second, third], "entry 1 of the journal is missing"),
        ([first, third], "entry 2 of the journal is missing"),
        ([first, first], "entry 2 of the journal is missing"),
        ([first, (replace(second[0], body="x"), second[1]), third], "entry 2 of the journal is not what"),
        ([first, (second[0], bytes(32)), third], "entry 2 of the journal is not what"),
    ):
        found = follow(START, changed)
        assert isinstance(found, ChainBroken)
        assert found.how.startswith(where)
        assert found.before.seq == int(where.split()[1]) - 1


def test_no_two_entries_have_the_same_encoding() -> None:
    ways = [
        entry(1, kind="ab", node="c", body="d"),
        entry(1, kind="a", node="bc", body="d"),
        entry(1, kind="a", node="b", body="cd"),
        entry(1, kind="abc", node="", body="d"),
        entry(1, kind="abc", node=None, body="d"),
        entry(1, kind="abcd", node=None, body=""),
        entry(1, job=None, kind="abc", node=None, body="d"),
        entry(1, job=11, kind="abc", node=None, body="d"),
        entry(11, kind="abc", node=None, body="d"),
    ]
    for one, other in combinations(ways, 2):
        assert link(START.hash, one) != link(START.hash, other), (one, other)


@given(st.integers(-(2**53), 2**53))
def test_hash_of_a_time_is_the_same_for_int_and_float(at: int) -> None:
    assert link(START.hash, entry(1, at=at)) == link(START.hash, entry(1, at=float(at)))
    assert link(START.hash, entry(1, at=-0.0)) == link(START.hash, entry(1, at=0.0))
