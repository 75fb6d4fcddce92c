"""Longer time limits of running jobs: who may extend them, and what follows from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.model.decision.decision import Accepted, Refusal
from controller.core.model.inputs import job_inputs
from controller.core.model.inputs.input import Requester
from controller.core.model.time_limits import TimeLimitRules
from controller.core.pipeline.pipeline import Pipeline
from controller.core.quota.queue_rules import QueueRule
from controller.core.quota.quota_config import QuotaConfig
from controller.plugins.quotas.local import LocalQuotas, QuotaTable
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.agent.orders import TimeLimit
from wire.agent.reports import AttemptStatus

NOW, HOUR = 1_000.0, 3_600.0
ADA = Requester("ada")
QUEUES = QuotaConfig(queues={"day": QueueRule(max_time_limit_s=4 * HOUR)})


def running(pipeline: Pipeline = PIPELINE, **asked: Any) -> EngineHarness:
    """Job 1 of ada runs on node a with a limit of one hour."""
    harness = EngineHarness(pipeline)
    harness.join("a")
    job = harness.submit(spec(8, **{"time_limit_s": HOUR, **asked}))
    harness.tick()
    harness.start(job)
    return harness


def extend(harness: EngineHarness, limit: float | None, asker: Requester | None = ADA, **more: Any) -> Any:
    given = job_inputs.Edit(1, "ada", {"time_limit_s": limit}, asker=asker, **{"delays_nobody": True, **more})
    return harness.tell(given).reply


def limits_sent(harness: EngineHarness) -> list[TimeLimit]:
    return [sent.frame for sent in harness.sent if isinstance(sent.frame, TimeLimit)]


def test_extended_job_ends_later_in_all_plans_and_on_its_node() -> None:
    harness = running()
    harness.submit(spec(8, time_limit_s=HOUR))
    harness.tick()
    easy = harness.engine.cycle.easy.reservation(harness.now)
    assert easy is not None
    assert easy.starts_at == NOW + HOUR
    assert extend(harness, 3 * HOUR) == Accepted((1,))
    assert limits_sent(harness) == [TimeLimit(1, 1, 3 * HOUR)]
    assert harness.job(1).expected_end == NOW + 3 * HOUR
    harness.tick()
    easy = harness.engine.cycle.easy.reservation(harness.now)
    assert easy is not None
    assert easy.starts_at == NOW + 3 * HOUR


@pytest.mark.parametrize(
    ("limit", "message"),
    [(HOUR - 1, "can only become longer; it is 1h00m"), (HOUR / 2, "longer"), (None, "longer")],
)
def test_limit_of_a_running_job_does_not_become_shorter(limit: float | None, message: str) -> None:
    refused = extend(running(), limit, None)
    assert isinstance(refused, Refusal)
    assert message in refused.message


def test_jobs_that_start_or_stop_are_not_extended() -> None:
    harness = EngineHarness()
    harness.join("a")
    harness.submit(spec(8, time_limit_s=HOUR))
    harness.tick()
    assert "extend its time limit when it runs" in extend(harness, 2 * HOUR).message
    harness.start(1)
    harness.tell(job_inputs.Cancel(1, "ada"))
    assert "is being stopped" in extend(harness, 2 * HOUR).message
    assert "without a time limit" in extend(running(time_limit_s=None), HOUR).message


def test_owner_needs_the_plan_and_the_configuration_and_an_operator_does_not() -> None:
    harness = running()
    assert "not known" in extend(harness, 2 * HOUR, delays_nobody=False).message
    assert isinstance(
        extend(harness, 2 * HOUR, Requester("bob", operator=True), delays_nobody=False), Accepted
    )
    closed = running(replace(PIPELINE, limits=TimeLimitRules(owners_may_extend=False)))
    refused = extend(closed, 2 * HOUR)
    assert (refused.code, refused.message) == ("not_allowed", "only operators may extend running jobs here")


def test_owner_is_held_to_the_limit_of_the_queue() -> None:
    harness = running(replace(PIPELINE, rules=QUEUES), queue="day")
    assert "takes jobs of at most 4h00m" in extend(harness, 5 * HOUR).message
    assert isinstance(extend(harness, 4 * HOUR), Accepted)
    assert isinstance(extend(harness, 9 * HOUR, Requester("bob", operator=True)), Accepted)
    renamed = harness.tell(job_inputs.Edit(1, "ada", {"name": "x"}, asker=ADA)).reply
    assert isinstance(renamed, Accepted), "a limit that an operator has set does not refuse later edits"
    assert harness.job(1).limit == 9 * HOUR


def test_extension_counts_in_the_quota_of_gpu_time() -> None:
    rules = QuotaConfig(provider=LocalQuotas(users={"ada": QuotaTable(gpu_hours=16.0)}))
    harness = running(replace(PIPELINE, rules=rules))
    assert extend(harness, 3 * HOUR).code == "over_quota"
    assert isinstance(extend(harness, 2 * HOUR), Accepted)
    assert extend(harness, 2 * HOUR + 60).code == "over_quota"


def test_extension_survives_a_restart_and_is_sent_again() -> None:
    harness = running()
    extend(harness, 2 * HOUR)
    again = harness.restarted()
    again.join("a", (AttemptStatus(1, 1, 101, NOW),))
    assert limits_sent(again) == [TimeLimit(1, 1, 2 * HOUR)]
    again.tell(job_inputs.Requeue(1, "ada"))
    again.exit(1, None, signal=15, why="requeued")
    assert (again.job(1).limit_raised, again.job(1).limit) == (False, 2 * HOUR)


def test_edit_of_a_running_job_with_a_tight_deadline_is_not_refused() -> None:
    harness = running(deadline_at=NOW + HOUR)
    harness.now += 600
    assert isinstance(harness.tell(job_inputs.Edit(1, "ada", {"name": "x"}, asker=ADA)).reply, Accepted)
