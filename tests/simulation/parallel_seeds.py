"""Runs many seeds in as many processes as there are cores."""

from __future__ import annotations

import os
from collections.abc import Sequence

from controller.sim.parallel import Progress, run_in_processes
from tests.simulation.trial_plan import TrialPlan
from tests.simulation.trial_report import Verdict, run_seed

WORTH_A_PROCESS = 20
"""Starting an interpreter takes about as long as this many seeds."""

Share = tuple[TrialPlan, Sequence[int]]


def run_seeds(plan: TrialPlan, seeds: Sequence[int], progress: Progress) -> list[Verdict]:
    """Run all seeds; verdicts in the order of seeds. `progress` gets the number of seeds done."""
    parts = max(1, min(os.cpu_count() or 1, len(seeds) // WORTH_A_PROCESS))
    if parts == 1:
        return run_share((plan, seeds), progress)
    shares = {
        f"seed {seeds[part]} and every {parts}th after it": (plan, seeds[part::parts])
        for part in range(parts)
    }
    verdicts = [verdict for share in run_in_processes(run_share, shares, progress) for verdict in share]
    return sorted(verdicts, key=lambda verdict: verdict.seed)


def run_share(share: Share, progress: Progress) -> list[Verdict]:
    """Run the seeds of one process."""
    plan, seeds = share
    verdicts = []
    for seed in seeds:
        verdicts.append(run_seed(plan, seed))
        progress(len(verdicts))
    return verdicts
