"""Divides idle GPUs by the reason why no waiting job runs on them.

Algorithm of `idle_gpus`
1. Idle GPUs of nodes that take no new jobs count for the outage: drained node or maintenance.
2. If no job waits, all other idle GPUs count as "no job waits".
3. Group the waiting jobs by kind (same user, project, queue, number of GPUs and priority). In each kind the
job with the shortest time limit comes first, because it is the most likely to end before a reservation
begins. Kinds that do not fit on the idle GPUs are left out.
4. Give idle GPUs to the jobs that could start now without a delay of any reservation. Only a limit (quota,
share, order of the queue) keeps these jobs from their start. These GPUs are waste.
5. Give idle GPUs to the other jobs that fit. The reason is the one that the engine explains.
6. GPUs that are left are spread over too many nodes for the jobs that wait.

Invariant: the sum over all reasons is the number of idle GPUs.
Cost: O(waiting jobs), and one explanation of the engine for each kind that fits.

Example: 6 GPUs are idle, and a gang is first in the queue with a reservation in 10 h. A job of 4 GPUs and 2 h
waits for its project's quota, and jobs of 1 GPU and 24 h would delay the gang. Then 4 GPUs are idle because
of the quota, which is waste, and 2 because of the reservation, which is not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from math import inf

from benchmarks.lab.history import History, RecordedJob
from benchmarks.lab.outages import Outage
from benchmarks.lab.workload import GPUS_PER_NODE
from controller.core.engine import Engine
from controller.core.explain.blockers import deadline_blocker, starts_next_pass
from wire.names import Reason

NO_JOB, SCATTERED, OTHER = "no job waits", "too scattered", "other requirement"
QUOTA, ORDER = "quota or share limit", "order of the queue"
WASTE = (QUOTA, ORDER)
"""The causes for which a waiting job would fit and delay no other job."""
RESERVED = "backfill reservation"
_CAUSES = {
    Reason.RESERVATION: "maintenance ahead",
    Reason.OTHERS_DEADLINE: "deadline of another job",
    Reason.RESOURCES: OTHER,
    Reason.PREEMPTING: "victims are ending",
}


def idle_gpus(
    engine: Engine, history: History, models: Mapping[str, str], closed: Collection[Outage], now: float
) -> dict[str, float]:
    """Return the number of idle GPUs by cause. `models` has the GPU model of each node."""
    idle: defaultdict[str, float] = defaultdict(float)
    free = dict(history.free)
    for outage in closed:
        idle[outage.cause] += sum(free.pop(node, 0.0) for node in outage.nodes)
    if any(free.values()):
        kinds = _kinds_that_fit(history.waiting.values(), models, free)
        for jobs in kinds:  # Step 4 of the docstring.
            while jobs and (cause := _waste(engine, jobs[-1].job, now)) and _take(jobs[-1], models, free):
                idle[cause] += jobs.pop().gpus
        for jobs in kinds:  # Step 5 of the docstring.
            if jobs and _nodes_for(jobs[-1], models, free):
                why = engine.explain(engine.state.jobs[jobs[-1].job], now)
                while jobs and _take(jobs[-1], models, free):
                    idle[_CAUSES.get(why.reason, RESERVED)] += jobs.pop().gpus
        idle[SCATTERED if history.waiting else NO_JOB] += sum(free.values())
    return dict(idle)


def _kinds_that_fit(
    waiting: Iterable[RecordedJob], models: Mapping[str, str], free: Mapping[str, float]
) -> list[list[RecordedJob]]:
    """Return the waiting jobs of each kind that fits on the free GPUs. In each list the job with the shortest
    time limit is the last.
    """
    kinds: defaultdict[tuple[object, ...], list[RecordedJob]] = defaultdict(list)
    for job in waiting:
        kinds[job.kind].append(job)
    fitting = [jobs for jobs in kinds.values() if _nodes_for(jobs[0], models, free)]
    for jobs in fitting:
        jobs.sort(key=lambda job: -(job.spec.time_limit_s or inf))
    return fitting


def _nodes_for(job: RecordedJob, models: Mapping[str, str], free: Mapping[str, float]) -> list[str]:
    """Return the nodes for the job, those with the fewest idle GPUs first; an empty list if too few nodes
    have enough idle GPUs.
    """
    count = job.spec.nodes or max(1, -(-int(job.gpus) // GPUS_PER_NODE))
    wanted = job.spec.gpu_models
    fit = [
        node
        for node, gpus in free.items()
        if gpus >= job.gpus / count and (not wanted or any(model in models[node] for model in wanted))
    ]
    return sorted(fit, key=free.__getitem__)[:count] if len(fit) >= count else []


def _take(job: RecordedJob, models: Mapping[str, str], free: dict[str, float]) -> bool:
    """Remove the GPUs of the job from the idle ones. Returns False if the job does not fit."""
    nodes = _nodes_for(job, models, free)
    for node in nodes:
        free[node] -= job.gpus / len(nodes)
    return bool(nodes)


def _waste(engine: Engine, number: int, now: float) -> str:
    """Return the limit (quota or order of the queue) that keeps the job from its start, if the job fits now
    and would delay no other job. Otherwise return an empty text.
    """
    job, state = engine.state.jobs[number], engine.state
    cycle = engine.profile_cycles.of(job)
    if not job.ready or cycle.placer.find(job.ask, state.barred_nodes(job, now)) is None:
        return ""
    if not starts_next_pass(cycle, job, now) or deadline_blocker(state, cycle.placer, job, now):
        return ""
    limited = engine.explain(job, now).reason in (Reason.QUOTA, Reason.SHARE)
    return QUOTA if limited else ORDER
