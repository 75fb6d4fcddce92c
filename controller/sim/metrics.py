"""What a run is worth: the figures that policies are compared by, each of them defined here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from controller.sim.cluster import Cluster
from controller.sim.results import Life, mean, quantile


@dataclass(frozen=True)
class Figures:
    """Of all jobs that ran to an end. Times are seconds, parts lie between 0 and 1."""

    jobs: int
    avebsld: float
    """Mean bounded slowdown: max(1, (wait + run) / max(run, 10)); all jobs count the same."""
    max_bsld: float
    mean_wait_s: float
    p50_wait_s: float
    p95_wait_s: float
    mean_flow_s: float
    """From submit to end."""
    max_flow_s: float
    utilisation: float
    """GPU-seconds of work done, of all there were from the first submit to the last end; CPU-seconds where
    there are no GPUs, or where no job held one."""
    fragmentation: float
    """Of the same capacity while at least one job waited, the part that did no work: too scattered or too
    small for those who waited, or kept free for them."""
    makespan_s: float
    """From the first submit to the last end."""
    fairness: float
    """Jain's index over the users' mean bounded slowdowns: 1 if all are slowed alike, 1/n if one of n
    bears it all."""
    preemptions: int
    """Attempts ended before their time so that others could start, or because their node was lost."""
    gpu_hours_lost: float
    """Held by attempts that came to nothing."""
    moves: int = 0
    """Of the preemptions, those after which the job went on elsewhere: rebalancing."""


def figures_of(lives: Sequence[Life], cluster: Cluster) -> Figures:
    """Work them out."""
    waits = [life.wait_s for life in lives]
    flows = [life.wait_s + life.run_s for life in lives]
    slowdowns = [life.slowdown for life in lives]
    gpus = cluster.gpus if any(life.gpus for life in lives) else 0
    capacity = gpus or cluster.cpu_milli
    held = [life.gpus if gpus else sum(each.cpu_milli for each in life.allocations) for life in lives]
    work = sum(amount * life.run_s for life, amount in zip(lives, held, strict=True))
    first, last = span(lives)
    return Figures(
        jobs=len(lives),
        avebsld=mean(slowdowns),
        max_bsld=max(slowdowns, default=0.0),
        mean_wait_s=mean(waits),
        p50_wait_s=quantile(waits, 0.5),
        p95_wait_s=quantile(waits, 0.95),
        mean_flow_s=mean(flows),
        max_flow_s=max(flows, default=0.0),
        utilisation=_part(work, capacity * (last - first)),
        fragmentation=_idle_while_wanted(lives, held, capacity),
        makespan_s=last - first,
        fairness=_jain(lives),
        preemptions=sum(life.requeues for life in lives),
        gpu_hours_lost=sum(life.lost_gpu_s for life in lives) / 3_600,
        moves=sum(life.moves for life in lives),
    )


def span(lives: Sequence[Life]) -> tuple[float, float]:
    """The first submit and the last end."""
    if not lives:
        return 0.0, 0.0
    return min(life.submit_s for life in lives), max(
        life.submit_s + life.wait_s + life.run_s for life in lives
    )


def _idle_while_wanted(lives: Sequence[Life], held: Sequence[float], capacity: float) -> float:
    changes: list[tuple[float, int, float]] = []
    for life, amount in zip(lives, held, strict=True):
        start = life.submit_s + life.wait_s
        changes += [(life.submit_s, 1, 0.0), (start, -1, amount), (start + life.run_s, 0, -amount)]
    changes.sort()
    wanted = idle = used = before = 0.0
    waiting = 0
    for at, more, taken in changes:
        if waiting:
            wanted += capacity * (at - before)
            idle += max(0.0, capacity - used) * (at - before)
        before, waiting, used = at, waiting + more, used + taken
    return _part(idle, wanted)


def _jain(lives: Sequence[Life]) -> float:
    by_user = defaultdict(list)
    for life in lives:
        by_user[life.user].append(life.slowdown)
    shares = [mean(slowdowns) for slowdowns in by_user.values()]
    return _part(sum(shares) ** 2, len(shares) * sum(share**2 for share in shares))


def _part(some: float, whole: float) -> float:
    return some / whole if whole else 0.0
