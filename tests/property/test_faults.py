"""Any seed, any size, any policy: whatever goes wrong, every promise is kept."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.config import Config
from controller.core.plugin import Backfill
from controller.sim.faults.plan import Plan
from controller.sim.faults.rules import REBALANCE
from controller.sim.faults.verdict import try_seed
from controller.sim.run import varied

PLANS = st.builds(
    Plan, hours=st.sampled_from([0.2, 1.0, 4.0, 12.0]), nodes=st.integers(1, 6), jobs=st.integers(1, 50)
)


@settings(max_examples=60, deadline=None)
@given(plan=PLANS, seed=st.integers(0, 2**32))
def test_promises_are_kept(plan: Plan, seed: int) -> None:
    verdict = try_seed(plan, seed)
    assert verdict.failure is None, verdict.failure
    assert verdict.jobs >= 0


MOVING = Config(
    scheduler={"strategy": "spread"},  # type: ignore[arg-type]
    preemption={"min_runtime_s": 0.0, "cooldown_s": 60.0},  # type: ignore[arg-type]
    rebalance=REBALANCE,  # type: ignore[arg-type]
)


@settings(max_examples=30, deadline=None)
@given(plan=PLANS, backfill=st.sampled_from(Backfill), seed=st.integers(0, 2**32))
def test_promises_are_kept_while_jobs_are_moved(plan: Plan, backfill: Backfill, seed: int) -> None:
    verdict = try_seed(replace(plan, config=varied(MOVING, "", backfill.value)), seed)
    assert verdict.failure is None, verdict.failure
