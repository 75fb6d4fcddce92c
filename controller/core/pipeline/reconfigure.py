"""Copies the state of a running controller for another configuration, so that the new configuration takes
effect without a restart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from controller.core.estimates.runtime_prediction import RuntimePredictor
from controller.core.model.job import Job
from controller.core.pipeline.pipeline import Pipeline
from controller.core.state.job_and_node_rows import insert_jobs
from controller.core.state.note_rows import all_notes, load_notes
from controller.core.state.state import State


def state_under(source: State, pipeline: Pipeline, jobs: Iterable[Job], estimates: RuntimePredictor) -> State:
    """Return a copy of the state with the jobs `jobs`. The copy equals the state after a restart of the
    controller with the configuration `pipeline`.

    1. Load the notes (the stored rows of tenants, quotas and other settings) into a new state. The statistics
       of ended jobs are not loaded, but taken from `estimates` and from the old state. The new state counts
       usage with the half-life and the quota time window of the new configuration.
    2. Copy the nodes without jobs. Then record the allocations and the nomination of each job again. Put each
       waiting job into its queue at the position that follows from the new configuration.
    3. Copy the values that are in no database row: the counts of submitted requests, the next job id, the
       skipped numbers and the times of preemptions.

    The original state does not change. Cost: O(jobs + nodes + notes).
    """
    state = State(pipeline.order, source.keep_ended, pipeline.sharing)
    state.estimates = estimates
    state.service_rates = source.service_rates.copy()
    load_notes(state, all_notes(source, learned=False))
    state.nodes.copy_empty(source.nodes)
    insert_jobs(state, map(_copy_job, jobs))
    state.nodes.datasets.changed.update(source.nodes.datasets.changed)
    state.nodes.demand.copy_from(source.nodes.demand)
    state.next_job, state.skipped = source.next_job, source.skipped
    state.preempted_at = list(source.preempted_at)
    return state


def _copy_job(job: Job) -> Job:
    return replace(job, members={node: replace(member) for node, member in job.members.items()})
