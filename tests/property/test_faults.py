"""With any seed, size and policy, all guarantees hold under faults."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.config import Config
from controller.core.framework.interfaces import Backfill
from controller.sim.run import with_order_and_backfill
from tests.engine_harness import BACKFILLS
from tests.property.test_advice import EXAMPLES
from tests.simulation.random_config import REBALANCE
from tests.simulation.trial_plan import TrialPlan
from tests.simulation.trial_report import run_seed

PLANS = st.builds(
    TrialPlan, hours=st.sampled_from([0.2, 1.0, 4.0, 12.0]), nodes=st.integers(1, 6), jobs=st.integers(1, 50)
)


@settings(max_examples=EXAMPLES // 5, deadline=None)
@given(plan=PLANS, seed=st.integers(0, 2**32))
def test_guarantees_hold_under_random_faults(plan: TrialPlan, seed: int) -> None:
    verdict = run_seed(plan, seed)
    assert verdict.failure is None, verdict.failure
    assert verdict.jobs >= 0


MOVING = Config(
    scheduler={"strategy": "spread"},  # type: ignore[arg-type]
    preemption={"min_runtime_s": 0.0, "cooldown_s": 60.0},  # type: ignore[arg-type]
    rebalance=REBALANCE,  # type: ignore[arg-type]
)


@settings(max_examples=EXAMPLES // 10, deadline=None)
@given(plan=PLANS, backfill=st.sampled_from([*BACKFILLS.values()]), seed=st.integers(0, 2**32))
def test_guarantees_hold_while_jobs_move(plan: TrialPlan, backfill: Backfill, seed: int) -> None:
    verdict = run_seed(replace(plan, config=with_order_and_backfill(MOVING, "", backfill.name)), seed)
    assert verdict.failure is None, verdict.failure
