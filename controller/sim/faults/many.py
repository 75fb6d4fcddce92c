"""Hundreds of seeds, in as many processes as there are cores."""

from __future__ import annotations

import os
from collections.abc import Sequence

from controller.sim.faults.plan import Plan
from controller.sim.faults.verdict import Verdict, try_seed
from controller.sim.processes import Progress, side_by_side

WORTH_A_PROCESS = 20
"""A new interpreter takes about as long as so many seeds."""

Share = tuple[Plan, Sequence[int]]


def try_many(plan: Plan, seeds: Sequence[int], progress: Progress) -> list[Verdict]:
    """Try all seeds; verdicts by seed. `progress` is told how many are done."""
    parts = max(1, min(os.cpu_count() or 1, len(seeds) // WORTH_A_PROCESS))
    if parts == 1:
        return try_share((plan, seeds), progress)
    shares = {
        f"seed {seeds[part]} and every {parts}th after it": (plan, seeds[part::parts])
        for part in range(parts)
    }
    verdicts = [verdict for share in side_by_side(try_share, shares, progress) for verdict in share]
    return sorted(verdicts, key=lambda verdict: verdict.seed)


def try_share(share: Share, progress: Progress) -> list[Verdict]:
    """The work of one process."""
    plan, seeds = share
    verdicts = []
    for seed in seeds:
        verdicts.append(try_seed(plan, seed))
        progress(len(verdicts))
    return verdicts
