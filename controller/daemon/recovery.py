"""Builds the engine from the rows in the store: when the controller starts, and when changes of the engine's
state could not be committed."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from controller.core.engine import Engine
from controller.core.model.rows import Batch, NoteRow
from controller.core.pipeline.pipeline import Pipeline
from controller.core.state.job_and_node_rows import restore_state
from controller.core.state.state import State
from controller.store.store import Store


@dataclass(frozen=True, slots=True)
class Recovered:
    """An engine with the state of the last commit, and other values from the store for the daemon."""

    engine: Engine
    nodes_lost: tuple[str, ...]
    """The nodes that were connected at the last commit. Their agents are not connected to this engine yet."""
    last_seq: int
    last_at: float
    node_rows: Batch
    """The rows of all nodes. The daemon writes them again unchanged to test whether the store can be
    written.
    """
    notes: list[NoteRow]
    """The loaded notes (database rows of other state, such as reservations). Some notes contain accounting
    figures, which are not part of the engine's state."""


def recover(store: Store, pipeline: Pipeline, keep_ended: int) -> Recovered:
    """Load jobs, nodes and other state from the store, and build the engine. Load at most `keep_ended`
    ended jobs."""
    with _without_garbage_collection():
        loaded = store.load()
        state = State(pipeline.order, keep_ended, pipeline.sharing)
        # Set the quotas before the jobs are loaded. Otherwise every waiting job would have to be put into the
        # queue twice.
        state.set_quota_config(pipeline.rules)
        nodes_lost = restore_state(state, [*loaded.jobs, *loaded.ended], loaded.nodes, loaded.notes)
        state.next_job, state.skipped = max(state.next_job, loaded.next_job), loaded.skipped
        state.workloads.next_id = max(state.workloads.next_id, loaded.skipped.first_id)
        state.used = []
        state.forgot = len(loaded.ended) >= keep_ended
        node_rows = Batch((), (), tuple(loaded.nodes))
        return Recovered(
            Engine(pipeline, state), nodes_lost, loaded.last_seq, loaded.last_at, node_rows, loaded.notes
        )


def show_connected(state: State, names: Iterable[str]) -> None:
    """Mark these nodes as connected, in the state of a standby. Their agents are connected to the leader, and
    the journal has no further event about these connections.
    """
    for name in names:
        node = state.nodes.by_name[name]
        node.up, node.why = True, node.why if node.drained else ""
        state.nodes.refresh(node)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    # Switch garbage collection off while jobs are loaded: each collection would visit all jobs loaded so far,
    # so that loading n jobs would take O(n²).
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
