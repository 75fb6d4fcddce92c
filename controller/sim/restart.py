"""Restarts the controller in virtual time: a new engine continues from the rows of the store."""

from __future__ import annotations

from controller.core.engine import Engine
from controller.core.pipeline.pipeline import Pipeline
from controller.core.state.job_and_node_rows import job_row, node_row, restore_state
from controller.core.state.note_rows import all_notes
from controller.core.state.state import State


def restarted(old: State, pipeline: Pipeline) -> tuple[Engine, tuple[str, ...]]:
    """Return a new engine, and the names of the nodes that are connected in the state `old`. The new engine
    gets the jobs, nodes and notes (other stored state) of `old`, as if a controller read them from its store.

    The new engine has no plans and backfill reservations, as after a real restart. The caller must pass it
    the input ControllerStarted with the names of the nodes.
    """
    jobs = sorted(old.jobs.values(), key=lambda job: job.id)
    live = [job for job in jobs if job.ended_at is None]
    ended = [job for job in jobs if job.ended_at is not None]
    ended.sort(key=lambda job: (job.ended_at or 0.0, job.id), reverse=True)
    state = State(pipeline.order, old.keep_ended, pipeline.sharing)
    rows = [job_row(job, with_spec=True) for job in [*live, *ended]]
    connected = restore_state(state, rows, map(node_row, old.nodes.by_name.values()), all_notes(old))
    state.next_job, state.skipped = old.next_job, old.skipped
    engine = Engine(pipeline, state)
    engine.give_no_limit_warnings()
    return engine, connected
