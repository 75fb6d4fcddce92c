"""Every way in which journal and rows may disagree is noticed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from controller.core import inputs
from controller.core.notes import noted
from controller.core.records import touched
from controller.core.rows import Batch
from controller.daemon import entry_of
from controller.store.store import Store
from tests.controller.store.scratch import scratch
from tests.oracle import journal
from tests.worlds import World, spec


@pytest.fixture
def path() -> Iterator[Path]:
    """A store after a small history."""
    world = World()
    world.join("a")
    first, second, _ = world.submit(spec(gpus=1)), world.submit(spec(gpus=8)), world.submit(spec())
    world.tick()
    world.start(first)
    world.exit(first, 3)
    world.tell(inputs.Cancel(second, "ada"))
    with scratch() as directory:
        with closing(Store.open(f"sqlite:///{directory}/corral.db")) as store:
            entries = tuple(entry_of(seq, event) for seq, event in enumerate(world.events, 1))
            jobs, nodes = touched(world.state, tuple(world.events))
            notes = noted(world.state, tuple(world.events))
            store.commit(Batch(entries, tuple(jobs), tuple(nodes), tuple(notes)))
        yield directory / "corral.db"


def problems(path: Path) -> list[str]:
    return journal.problems(f"sqlite:///{path}")


def test_a_store_as_it_was_written(path: Path) -> None:
    assert problems(path) == []


def test_a_row_that_no_entry_accounts_for(path: Path) -> None:
    with closing(Store.open(f"sqlite:///{path}")) as store:
        [row] = [row for row in store.load().jobs if row.id == 3]
        store.commit(Batch((), (replace(row, state="COMPLETED", ended_at=1.0),), ()))
    assert [problem.split(":")[0] for problem in problems(path)] == ["3"]


def test_an_entry_that_never_reached_the_rows(path: Path) -> None:
    world = World()
    world.join("b")
    with closing(Store.open(f"sqlite:///{path}")) as store:
        after = store.load().last_seq
        store.commit(Batch((entry_of(after + 1, world.events[0]),), (), ()))
    assert [problem.split(":")[0] for problem in problems(path)] == ["b"]


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM journal WHERE seq = 3",
        "UPDATE journal SET body = replace(body, 'ada', 'eve') WHERE seq = 2",
        "UPDATE jobs SET state = 'COMPLETED' WHERE id = 1",
    ],
)
def test_a_change_by_another_hand(path: Path, change: str) -> None:
    with closing(sqlite3.connect(path)) as hand, hand:
        assert hand.execute(change).rowcount == 1
    assert problems(path) != []
