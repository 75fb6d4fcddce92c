"""Finds the nodes that a job cannot use because of operators' reservations, timed drains, or quotas on GPU
models.
"""

from __future__ import annotations

import numpy as np

from controller.core.cluster.gpus.gpu_requirements import milli_by_model
from controller.core.cluster.node_table import Bools, either_mask
from controller.core.model.job import Job
from controller.core.model.services import MOVE_BEFORE_S
from controller.core.quota.limit_exceeded import LimitExceeded
from controller.core.quota.usage_counters import TenantKey
from controller.core.state.state import State


def barred_nodes(state: State, job: Job, now: float, later_s: float = 0.0) -> Bools | None:
    """Return which nodes (True by row number) the job cannot use because of operators' reservations,
    timed drains or quotas on GPU models. Return None if it can use all nodes. The job may start up to
    `later_s` seconds after `now`.
    """
    return either_mask(reserved_nodes(state, job, now, later_s), nodes_at_model_quota(state, job))


def nodes_at_model_quota(state: State, job: Job) -> Bools | None:
    """Return which nodes (True by row number) the job cannot use, because a tenant of the job has no quota
    left for a GPU model of the node. Return None if there is no such node.
    """
    full, columns = full_models(state, job), state.nodes.columns
    if not full:
        return None
    codes = [code for code, model in enumerate(columns.models) if model in full]
    return np.asarray(np.isin(columns.gpu_model, codes).any(axis=1))


def full_models(state: State, job: Job) -> dict[str, LimitExceeded]:
    """Return the GPU models that the job cannot use, because a tenant of the job has no quota left for
    them, each with the limit that would be exceeded.
    """
    if not state.quotas.models or not job.ask.part.wants_gpus:
        return {}
    suited, nodes = milli_by_model(job.ask.part, state.nodes.columns), job.ask.nodes or 1
    needs = {model: milli * nodes for model, milli in suited.items()}
    return state.quotas.full_models(job.user, job.spec, needs, _model_claims(state, job))


def _model_claims(state: State, job: Job) -> dict[TenantKey, list[int]]:
    """Return by which amounts the usage of each tenant will have changed when the job starts: plus the
    amounts of other nominated jobs (jobs for which nodes are kept), minus the amounts that the job itself
    still holds, because it is being moved.
    """
    found: dict[TenantKey, list[int]] = {}
    changes = [(job, [member.allocation for member in job.running], -1)] if job.running else []
    others = (state.jobs[each] for each in state.claims if each != job.id)
    changes += [(each, list(each.claim), 1) for each in others if not each.unended]
    for each, allocations, sign in changes:
        for account in state.accounts.tenants_of(each.user, each.spec):
            before = found.setdefault(account.key, [0] * len(account.used))
            for place, amount in enumerate(state.accounts.held(each, allocations)):
                before[place] += sign * amount
    return found


def reserved_nodes(state: State, job: Job, now: float, later_s: float = 0.0) -> Bools | None:
    """Return which nodes (True by row number) the job cannot use because of operators' reservations or
    timed drains. Return None if it can use all nodes.

    A job with `--reservation` may use only the nodes of its reservation. A reservation that does not
    admit the job bars its nodes if the job could still run when the reservation begins. The job is
    assumed to start at `now`, or up to `later_s` seconds later. A replica (job of a service) leaves a
    node before a reservation begins, so only reservations that begin soon bar a replica.
    """
    outside = state.reservations.rows_outside(state.nodes, job.spec, job.user)
    if not state.reservations:
        return outside
    length = (state.assumed_span(job) if job.replica is None else 2 * MOVE_BEFORE_S) + later_s
    barred = state.reservations.barred_rows(state.nodes, job.user, job.spec.project, now, length)
    return either_mask(barred, outside)
