"""Batches as a controller might commit them, and the expected content of a store after them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from controller.core.model.rows import Batch, JobRow, JournalEntry, NodeRow, NoteRow
from controller.store.store import Store


def job(number: int = 1, **changes: object) -> JobRow:
    """A queued job."""
    row = JobRow(
        id=number,
        user="ada",
        project="default",
        queue="default",
        name="train",
        state="QUEUED",
        submitted_at=1_700_000_000.25,
        ended_at=None,
        key="",
        array=None,
        spec='{"command":["true"]}',
        body='{"attempt":0}',
    )
    return replace(row, **changes)


def entry(seq: int, **changes: object) -> JournalEntry:
    """Return a journal entry about job 1, of a kind whose body the store does not parse."""
    return replace(JournalEntry(seq, 1_700_000_000.25, "JobHeld", 1, None, '{"id":1}'), **changes)


def batch(*rows: JournalEntry | JobRow | NodeRow | NoteRow) -> Batch:
    """Return a commit with these entries and rows."""
    return Batch(
        tuple(row for row in rows if isinstance(row, JournalEntry)),
        tuple(row for row in rows if isinstance(row, JobRow)),
        tuple(row for row in rows if isinstance(row, NodeRow)),
        tuple(row for row in rows if isinstance(row, NoteRow)),
    )


@dataclass
class Model:
    """All committed batches, in memory."""

    entries: list[JournalEntry] = field(default_factory=list)
    jobs: dict[int, JobRow] = field(default_factory=dict)
    nodes: dict[str, NodeRow] = field(default_factory=dict)
    notes: dict[tuple[str, str], NoteRow] = field(default_factory=dict)

    def apply(self, batch: Batch) -> None:
        """Add a batch to the expected content."""
        self.entries += batch.entries
        for row in batch.jobs:
            spec = row.spec if row.spec is not None else self.jobs[row.id].spec
            self.jobs[row.id] = replace(row, spec=spec)
        self.nodes.update((row.name, row) for row in batch.nodes)
        for note in batch.notes:
            self.notes.pop((note.kind, note.name), None)
            if note.body is not None:
                self.notes[note.kind, note.name] = note

    def check(self, store: Store) -> None:
        """The store holds exactly this."""
        loaded = store.load()
        assert loaded.last_seq == len(self.entries)
        live = [row for row in self.jobs.values() if row.ended_at is None]
        ended = {row.id for row in self.jobs.values() if row.ended_at is not None}
        assert loaded.jobs == sorted(live, key=lambda row: row.id)
        assert {row.id for row in loaded.ended} == ended
        assert all(row == self.jobs[row.id] for row in loaded.ended)
        assert {row.name: row for row in loaded.nodes} == self.nodes
        assert {(row.kind, row.name): row for row in loaded.notes} == self.notes
        assert store.journal(0, len(self.entries) + 1) == self.entries


def history(seed: int) -> Iterator[Batch]:
    """An endless, reproducible run of a cluster: jobs are submitted, changed and ended; nodes are added and
    removed.
    """
    chance = random.Random(seed)
    live: list[JobRow] = []
    seq = number = 0
    while True:
        entries: list[JournalEntry] = []
        rows: dict[int, JobRow] = {}
        for _ in range(chance.choice((1, 1, 2, 8, 40))):
            seq += 1
            if not live or chance.random() < 0.4:
                number += 1
                row = job(number, user=chance.choice("abc"), spec="s" * chance.choice((2, 300, 9_000)))
                live.append(row)
            else:
                place = chance.randrange(len(live))
                old = live[place]
                ended_at = seq / 8 if chance.random() < 0.3 else None
                row = replace(old, state=f"S{seq}", ended_at=ended_at, body="b" * chance.randrange(600))
                if old.id not in rows:
                    row = replace(row, spec=None)
                if ended_at is None:
                    live[place] = replace(row, spec=old.spec)
                else:
                    del live[place]
            rows[row.id] = row
            entries.append(entry(seq, at=seq / 8, job=row.id, body="e" * chance.randrange(400)))
        node = NodeRow(f"node{chance.randrange(5)}", chance.choice(("up", "away")), f'{{"seq":{seq}}}')
        note = NoteRow("share", f"project{chance.randrange(5)}", chance.choice((None, f'{{"seq":{seq}}}')))
        yield batch(*entries, *rows.values(), node, note)
