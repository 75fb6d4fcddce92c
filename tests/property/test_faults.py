"""Any seed, any size, any policy: whatever goes wrong, every promise is kept."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.sim.faults.plan import Plan
from controller.sim.faults.verdict import try_seed

PLANS = st.builds(
    Plan, hours=st.sampled_from([0.2, 1.0, 4.0, 12.0]), nodes=st.integers(1, 6), jobs=st.integers(1, 50)
)


@settings(max_examples=60, deadline=None)
@given(plan=PLANS, seed=st.integers(0, 2**32))
def test_promises_are_kept(plan: Plan, seed: int) -> None:
    verdict = try_seed(plan, seed)
    assert verdict.failure is None, verdict.failure
    assert verdict.jobs >= 0
