"""Adds nodes to elastic jobs that run on fewer nodes than they requested, but only while no job waits."""

from __future__ import annotations

from collections.abc import Callable

from controller.core.backfill.start_rules.start_limits import StartLimits
from controller.core.model.events.attempts import JobGrew
from controller.core.model.job import Job
from controller.core.placement.one_gpu_model import GpuModelGroups
from controller.core.placement.placer import Placer, Shape
from controller.core.queue.queue import Queue
from controller.core.state.barred_nodes import barred_nodes
from controller.core.state.state import State


def grow_elastic_jobs(
    state: State,
    placer: Placer,
    limits: StartLimits,
    queue: Queue,
    now: float,
    apply: Callable[[JobGrew], None],
) -> None:
    """Add free nodes to the elastic jobs of this queue, in the order of job ids.

    1. Skip a job that has all its nodes, is ending, is losing a node, or requires topology domains.
    2. Take the best nodes for the job, as many as the job lacks. Leave out nodes on which this attempt has
       already run. With [topology], nodes near the job's other nodes come first.
    3. Drop the worst of these nodes until the job is within quotas and fair-share limits with its new nodes.

    Example: job 7 wants 4 nodes and runs on 2. Three nodes are free, and the project's GPU quota allows one
    more node. Job 7 grows to 3 nodes.
    """
    for job in [state.jobs[number] for number in sorted(state.elastic)]:
        if state.queue_of(job) is not queue:
            continue
        missing = (job.ask.nodes or 0) - len(job.staying)
        if (
            missing <= 0
            or job.stopping is not None
            or job.ask.topology is not None
            or len(job.staying) < len(job.running)
            or job.finishing
        ):
            continue
        rows = placer.ranking(job.ask.part).in_order(barred_nodes(state, job, now))
        near = placer.network
        if near is not None:
            rows = near.nearest_first(
                rows, [state.nodes.by_name[each.allocation.node].row for each in job.running]
            )
        # Skip nodes on which this attempt has already run, because an agent refuses to run an attempt twice.
        free = [
            row
            for row in rows
            if state.nodes.rows[row].name not in job.members and _same_gpu_model(state, placer, job, row)
        ][:missing]
        while free:
            placement = placer.allocate_rows(Shape(job.ask.part, len(free)), sorted(free))
            if limits.may_grow(job, placement.allocations, now):
                apply(JobGrew(job.id, now, job.attempt, placement.allocations))
                break
            free.pop()


def _same_gpu_model(state: State, placer: Placer, job: Job, row: int) -> bool:
    """Return whether the node `row` has the GPU model of the nodes on which the job runs. Return True for a
    job that may combine GPU models.
    """
    domains = placer.required_grouping(Shape(job.ask.part, 2, None, job.ask.one_model))
    first = state.nodes.by_name[next(iter(job.members))].row
    return not isinstance(domains, GpuModelGroups) or domains.same_model(row, first)
