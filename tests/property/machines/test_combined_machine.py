"""Preemption, quotas, reservations and backfill together: all their guarantees hold at once."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings

from controller.plugins.backfill.kinds import Conservative
from tests.examples import examples
from tests.property.machines.test_limits_machine import RULES, LimitsMachine
from tests.property.machines.test_preemption_machine import PreemptionMachine


class CombinedMachine(PreemptionMachine, LimitsMachine):
    pipeline = replace(PreemptionMachine.pipeline, rules=RULES)


class ConservativeCombinedMachine(CombinedMachine):
    pipeline = replace(CombinedMachine.pipeline, backfill=Conservative())


CombinedMachine.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=60)
ConservativeCombinedMachine.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=60)
TestCombined = CombinedMachine.TestCase
TestConservativeCombined = ConservativeCombinedMachine.TestCase
