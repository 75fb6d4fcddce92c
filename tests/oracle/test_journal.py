"""Every disagreement of journal and rows is detected."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from controller.core.model.inputs import job_inputs
from controller.core.model.rows import Batch
from controller.core.state.job_and_node_rows import changed_rows
from controller.core.state.note_rows import changed_notes
from controller.daemon.store_threads import entry_of
from controller.store.store import Store
from tests.controller.store.scratch import scratch
from tests.engine_harness import EngineHarness, spec
from tests.oracle import journal


@pytest.fixture
def path() -> Iterator[Path]:
    """A store after a small history."""
    harness = EngineHarness()
    harness.join("a")
    first, second, _ = harness.submit(spec(gpus=1)), harness.submit(spec(gpus=8)), harness.submit(spec())
    harness.tick()
    harness.start(first)
    harness.exit(first, 3)
    harness.tell(job_inputs.Cancel(second, "ada"))
    with scratch() as directory:
        with closing(Store.open(f"sqlite:///{directory}/corral.db")) as store:
            entries = tuple(entry_of(seq, event) for seq, event in enumerate(harness.events, 1))
            jobs, nodes = changed_rows(harness.state, tuple(harness.events))
            notes = changed_notes(harness.state, tuple(harness.events))
            store.commit(Batch(entries, tuple(jobs), tuple(nodes), tuple(notes)))
        yield directory / "corral.db"


def problems(path: Path) -> list[str]:
    return journal.problems(f"sqlite:///{path}")


def test_written_store_has_no_problems(path: Path) -> None:
    assert problems(path) == []


def test_row_without_journal_entries_is_detected(path: Path) -> None:
    with closing(Store.open(f"sqlite:///{path}")) as store:
        [row] = [row for row in store.load().jobs if row.id == 3]
        store.commit(Batch((), (replace(row, state="COMPLETED", ended_at=1.0),), ()))
    found = [problem.split(":")[0] for problem in problems(path)]
    assert found == ["the row of job 3 is not what the journal says", "3"]


def test_entry_without_its_row_is_detected(path: Path) -> None:
    harness = EngineHarness()
    harness.join("b")
    with closing(Store.open(f"sqlite:///{path}")) as store:
        after = store.load().last_seq
        store.commit(Batch((entry_of(after + 1, harness.events[0]),), (), ()))
    assert [problem.split(":")[0] for problem in problems(path)] == ["b"]


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM journal WHERE seq = 3",
        "UPDATE journal SET body = replace(body, 'ada', 'eve') WHERE seq = 2",
        "UPDATE jobs SET state = 'COMPLETED' WHERE id = 1",
    ],
)
def test_manual_change_of_the_database_is_detected(path: Path, change: str) -> None:
    with closing(sqlite3.connect(path)) as hand, hand:
        assert hand.execute(change).rowcount == 1
    assert problems(path) != []
