"""Compares how jobs end on each node with how the same jobs end on other nodes, and finds unusual nodes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from controller.core.cluster.node import Node
from controller.core.estimates.similar_jobs import stem_of
from controller.core.model.job import Job, Member
from controller.core.state.state import State
from wire.api.service.reports import FailureCount, NodeOutcomes, NodesReport
from wire.names import JobState, Reason

NOT_COUNTED = (Reason.USER, Reason.PREEMPTED, Reason.DEPENDENCY, Reason.TIME_LIMIT)
"""Ends with these reasons say nothing about the node, so the jobs do not count."""
PRIOR = 2.0
"""In `expected`, the failure rate of all other nodes counts like PRIOR jobs of the same name."""
FEWEST_FAILURES, TIMES_AS_MANY, CHANCE = 3, 3.0, 0.001
"""A node is unusual if it has at least FEWEST_FAILURES failures, of jobs of at least two names, and at least
TIMES_AS_MANY times as many as expected, and if this many occur by chance with a probability below CHANCE.
"""
FEWEST_RUNS, FEWEST_ELSEWHERE, MUCH_SLOWER = 10, 5, 1.3
"""A node is slow if at least FEWEST_RUNS of its runs take, as a median, MUCH_SLOWER times as long as usual.
The usual run time of a name is the median of its runs on all nodes. FEWEST_ELSEWHERE of them must be on
other nodes.
"""

Name = tuple[str, str]
"""(user, job name without a number at its end)"""


class Run(NamedTuple):
    """The end of one job on one node. `run_s` is None for a failed job."""

    node: str
    name: Name
    failure: str
    run_s: float | None


class Peers(NamedTuple):
    """The runs of all nodes together, by name of the jobs: the numbers of ended, failed and successful runs,
    and the median run time of the successful ones.
    """

    ended: Counter[Name]
    failed: Counter[Name]
    succeeded: dict[Name, int]
    usual_s: dict[Name, float]


def nodes_report(state: State, since: float, now: float) -> NodesReport:
    """Return the outcomes of the jobs that have ended since `since` and are in memory, by node.

    1. Take the last attempt of each job on each of its nodes. Leave out cancelled and preempted jobs and
       ends at the time limit, because they say nothing about the node.
    2. For each name of jobs on a node, compute the failure rate on all other nodes. Its sum over the jobs of
       the node is the number of failures to expect.
    3. The node gets a warning if it has many more failures than expected (FEWEST_FAILURES), or if the same
       jobs take much longer than usual (FEWEST_RUNS).

    Cost: O(jobs in memory + nodes).

    Example: 40 jobs of six names ran on gpu07, and 9 of them failed. On other nodes, one of 50 such jobs
    fails, so that 0.8 failures are expected. gpu07 gets a warning. If the 9 failures were of one name, it
    would not, because one program with a new error can run on one node by chance.
    """
    ended = [job.ended_at for job in state.jobs.values() if job.ended_at is not None]
    if state.forgot and ended:
        since = max(since, min(ended))
    jobs = [job for job in state.jobs.values() if job.ended_at is None or job.ended_at >= since]
    members: defaultdict[str, list[Member]] = defaultdict(list)
    for job in jobs:
        for name, member in job.members.items():
            members[name].append(member)
    runs: defaultdict[str, list[Run]] = defaultdict(list)
    for run in (run for job in jobs for run in _runs(job)):
        runs[run.node].append(run)
    peers = _peers([run for found in runs.values() for run in found])
    rows = [_outcomes(node, runs[node.name], peers, members[node.name], since, now) for node in state.nodes]
    rows.sort(key=lambda each: (not each.warning, each.node))
    return NodesReport(since, now, tuple(rows))


def _runs(job: Job) -> Iterator[Run]:
    """Yield the runs of an ended job on its nodes (step 1)."""
    if job.ended_at is None or job.state is JobState.CANCELLED or job.reason in NOT_COUNTED:
        return
    name = job.user, stem_of(job.name)
    for node, member in job.members.items():
        if member.started_at is None or member.ended_at is None or member.leaving:
            continue
        failed = member.failed and job.state is not JobState.COMPLETED
        failure = (member.failure or job.reason.value) if failed else ""
        yield Run(node, name, failure, None if failed else member.ended_at - member.started_at)


def _peers(runs: Sequence[Run]) -> Peers:
    times: defaultdict[Name, list[float]] = defaultdict(list)
    for run in runs:
        if run.run_s is not None:
            times[run.name].append(run.run_s)
    return Peers(
        Counter(run.name for run in runs),
        Counter(run.name for run in runs if run.failure),
        {name: len(found) for name, found in times.items()},
        {name: median(found) for name, found in times.items()},
    )


def _outcomes(
    node: Node, here: Sequence[Run], peers: Peers, members: Sequence[Member], since: float, now: float
) -> NodeOutcomes:
    failures = Counter(run.failure for run in here if run.failure)
    failed, expected = sum(failures.values()), _expected_failures(here, peers)
    names = {run.name for run in here if run.failure}
    slower = _slower(here, peers)
    warnings = []
    if (
        failed >= FEWEST_FAILURES
        and len(names) > 1
        and failed >= TIMES_AS_MANY * expected
        and _chance(failed, expected) < CHANCE
    ):
        warnings.append(f"{failed} of {len(here)} jobs failed; the same jobs elsewhere: {expected:.1f}")
    if slower is not None and slower >= MUCH_SLOWER:
        warnings.append(f"its jobs take {slower:.1f} times as long as usual")
    gpu_s, load = _gpu_use(members, since, now)
    capacity_s = len(node.facts.gpus) * (now - since)
    return NodeOutcomes(
        node.name,
        node.state,
        node.since,
        len(here),
        failed,
        expected,
        tuple(FailureCount(name, count) for name, count in failures.most_common()),
        gpu_s / 3_600,
        100 * gpu_s / capacity_s if capacity_s else None,
        load,
        slower,
        "; ".join(warnings),
    )


def _expected_failures(here: Sequence[Run], peers: Peers) -> float:
    """Return the number of failures to expect among the runs `here` from the runs on other nodes (step 2)."""
    own, own_failed = Counter(run.name for run in here), Counter(run.name for run in here if run.failure)
    others = peers.ended.total() - own.total()
    if not others:
        return 0.0
    rate = (peers.failed.total() - own_failed.total()) / others
    return sum(
        count * (peers.failed[name] - own_failed[name] + PRIOR * rate) / (peers.ended[name] - count + PRIOR)
        for name, count in own.items()
    )


def _chance(failed: int, expected: float) -> float:
    """Return the probability of at least `failed` failures if `expected` are expected and failures are
    independent (Poisson distribution).
    """
    fewer = sum(math.exp(-expected) * expected**count / math.factorial(count) for count in range(failed))
    return max(0.0, 1.0 - fewer)


def _slower(here: Sequence[Run], peers: Peers) -> float | None:
    """Return the median of the run times on the node, each divided by the usual run time of the same jobs.
    Return None if fewer than FEWEST_RUNS runs can be compared.
    """
    own = Counter(run.name for run in here if run.run_s is not None)
    ratios = [
        run.run_s / peers.usual_s[run.name]
        for run in here
        if run.run_s is not None
        and peers.succeeded[run.name] - own[run.name] >= FEWEST_ELSEWHERE
        and peers.usual_s[run.name] > 0
    ]
    return median(ratios) if len(ratios) >= FEWEST_RUNS else None


def _gpu_use(members: Sequence[Member], since: float, now: float) -> tuple[float, float | None]:
    """Return the GPU-seconds that members of jobs held on a node, and the mean load of the measured ones in
    percent.
    """
    held = [(member, member.gpu_s(since, now)) for member in members]
    measured = [(member.use.mean, gpu_s) for member, gpu_s in held if member.use is not None and gpu_s]
    weight = sum(gpu_s for _, gpu_s in measured)
    load = sum(mean * gpu_s for mean, gpu_s in measured) / weight if weight else None
    return sum(gpu_s for _, gpu_s in held), load
