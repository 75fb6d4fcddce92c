"""Ceilings: which table decides, and what an edit keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.framework.interfaces import PreemptionGuards
from controller.core.model.decision.decision import Accepted, Refusal
from controller.core.model.inputs import job_inputs
from controller.core.model.inputs.input import Requester
from controller.core.model.wait_state import WaitRules
from controller.core.quota.ceilings import Ceiling, Ceilings
from controller.core.quota.projects import ProjectRules
from controller.core.quota.quota_config import QuotaConfig
from controller.plugins.preemption.by_priority import PriorityStrategy
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.job.start_conditions import Dependency, Until

CEILINGS = Ceilings(
    everyone=Ceiling(50, False, 3_600.0, 600.0, deadline=False),
    operators=Ceiling(75, True, None),
    users={"eve": Ceiling(priority=60)},
    projects={"prod": Ceiling(priority=75, not_preemptible=True)},
    queues={"scavenge": Ceiling(priority=25), "urgent": Ceiling(priority=100, deadline=True)},
)
PROJECTS = ProjectRules(members={"prod": frozenset({"ada", "eve"})})
RULES = QuotaConfig(ceilings=CEILINGS, projects=PROJECTS)
ADA, EVE, BO = Requester("ada"), Requester("eve"), Requester("bo")
OPERATOR = Requester("ops", operator=True)


def harness_of() -> EngineHarness:
    return EngineHarness(replace(PIPELINE, rules=RULES))


CASES: list[tuple[Requester | None, dict[str, Any], str]] = [
    (ADA, {}, ""),
    (ADA, {"priority": 50}, ""),
    (ADA, {"priority": 51}, "priority"),
    (ADA, {"priority": 100}, "priority"),
    (EVE, {"priority": 60}, ""),
    (EVE, {"priority": 61}, "priority"),
    (ADA, {"priority": 75, "project": "prod"}, ""),
    (ADA, {"priority": 76, "project": "prod"}, "priority"),
    (EVE, {"priority": 75, "project": "prod"}, "priority"),  # the user's table comes first
    (BO, {"project": "prod"}, "project"),
    (BO, {"project": "open"}, ""),
    (ADA, {"priority": 50, "queue": "scavenge"}, "priority"),
    (ADA, {"priority": 25, "queue": "scavenge"}, ""),
    (BO, {"priority": 100, "queue": "urgent"}, ""),
    (ADA, {"preemptible": False}, "preemptible"),
    (ADA, {"preemptible": False, "project": "prod"}, ""),
    (ADA, {"min_runtime_s": 3_600.0}, ""),
    (ADA, {"min_runtime_s": 3_601.0}, "min_runtime_s"),
    (ADA, {"grace_s": 600.0}, ""),
    (ADA, {"grace_s": 601.0}, "grace_s"),
    (ADA, {"grace_s": 10.0, "checkpoint_s": 591.0}, ""),  # it cannot save its state
    (ADA, {"grace_s": 10.0, "checkpoint_s": 590.0, "checkpoint_signal": "USR1"}, ""),
    (ADA, {"grace_s": 10.0, "checkpoint_s": 591.0, "checkpoint_signal": "USR1"}, "checkpoint_s"),
    (ADA, {"deadline_at": 1e9}, "deadline_at"),
    (ADA, {"deadline_at": 1e9, "queue": "urgent"}, ""),
    (OPERATOR, {"deadline_at": 1e9, "grace_s": 3_600.0}, ""),
    (OPERATOR, {"priority": 75, "project": "prod", "preemptible": False, "min_runtime_s": 1e6}, ""),
    (OPERATOR, {"priority": 76}, "priority"),
    (None, {"priority": 100, "preemptible": False, "project": "prod"}, ""),
]


@pytest.mark.parametrize(("asker", "asked", "where"), CASES)
def test_the_first_table_that_states_a_key_decides(
    asker: Requester | None, asked: dict[str, Any], where: str
) -> None:
    reply = harness_of().tell(job_inputs.Submit(spec(**asked), "someone", asker=asker)).reply
    assert (reply.where if isinstance(reply, Refusal) else "") == where
    if isinstance(reply, Refusal):
        assert reply.code == "not_allowed"


def test_a_refusal_names_the_ceiling_its_key_and_the_role_that_may_exceed_it() -> None:
    reply = harness_of().tell(job_inputs.Submit(spec(priority=100), "ada", asker=ADA)).reply
    assert isinstance(reply, Refusal)
    assert reply.message == (
        "priority CRITICAL is more than user 'ada' may ask for here: "
        "at most NORMAL, by [access.limits] priority"
    )
    assert "operator" in reply.hint


def test_an_array_beyond_a_ceiling_is_refused_whole() -> None:
    harness = harness_of()
    reply = harness.tell(job_inputs.Submit(spec(priority=100, array="0-9"), "ada", asker=ADA)).reply
    assert isinstance(reply, Refusal)
    assert not harness.state.jobs


def test_an_edit_keeps_values_granted_by_an_operator_and_raises_none() -> None:
    harness = harness_of()
    assert harness.tell(job_inputs.Submit(spec(hold=True), "ada", asker=ADA)).reply == Accepted((1,))

    def edit(asker: Requester, **changes: Any) -> str:
        reply = harness.tell(job_inputs.Edit(1, asker.user, changes, asker=asker)).reply
        return reply.where if isinstance(reply, Refusal) else ""

    assert edit(ADA, priority=100) == "priority"
    assert edit(OPERATOR, priority=75, preemptible=False) == ""
    assert edit(ADA, name="other") == ""
    assert harness.job(1).spec.priority == 75
    assert edit(ADA, priority=80) == "priority"
    assert edit(ADA, queue="scavenge") == "priority"  # the grant did not cover that queue
    assert edit(ADA, priority=70) == ""
    assert edit(ADA, priority=75) == "priority"  # lowering the priority gave up the grant
    assert edit(ADA, preemptible=True) == ""
    assert edit(ADA, preemptible=False) == "preemptible"
    assert edit(ADA, queue="scavenge", priority=25) == ""
    assert edit(BO, project="prod") == "project"


def test_an_edit_brings_no_latest_start_nearer() -> None:
    harness = harness_of()
    assert harness.tell(
        job_inputs.Submit(spec(hold=True, time_limit_s=60.0), "ada", asker=ADA)
    ).reply == Accepted((1,))

    def edit(asker: Requester, **changes: Any) -> str:
        reply = harness.tell(job_inputs.Edit(1, asker.user, changes, asker=asker)).reply
        return reply.where if isinstance(reply, Refusal) else ""

    assert edit(ADA, deadline_at=1e9) == "deadline_at"
    assert edit(OPERATOR, deadline_at=1e9) == ""
    assert edit(ADA, time_limit_s=61.0) == "deadline_at"  # it would have to start sooner
    assert edit(ADA, time_limit_s=59.0, name="other") == ""
    assert edit(ADA, deadline_at=2e9) == ""
    assert edit(ADA, deadline_at=1e9) == "deadline_at"  # what was given back is gone
    assert edit(ADA, deadline_at=None) == ""


def test_priority_added_by_waiting_is_not_inherited() -> None:
    """A waiting job lends its granted priority, also through other waiting jobs."""
    harness = EngineHarness(
        replace(PIPELINE, waiting=WaitRules(promote_after_s=60.0, promote_by=20, promote_most=75))
    )
    harness.join("a", gpus=1)
    harness.submit(spec(1))
    harness.tick()
    low = harness.submit(spec(1, priority=10, hold=True))
    lender = harness.submit(spec(1, priority=50))
    for now in (1_070.0, 1_140.0):
        harness.now = now
        harness.tick()
    assert harness.job(lender).own_priority == 75
    changes = {"after": [{"until": "ok", "job": str(low)}]}
    assert harness.tell(job_inputs.Edit(lender, "ada", changes)).reply == Accepted((lender,))
    assert harness.job(low).priority == 50


def test_a_waiting_job_protects_a_running_one_only_up_to_the_ceiling_of_its_user() -> None:
    """Neither a request above the ceiling nor the points that waiting has added protect the running job."""
    waiting = WaitRules(promote_after_s=60.0, promote_by=20, promote_most=75)
    guards = PreemptionGuards(min_runtime_s=0.0)
    policy = replace(PIPELINE, rules=RULES, waiting=waiting, strategies=(PriorityStrategy(),), guards=guards)
    harness = EngineHarness(policy)
    harness.join("a", gpus=1)
    low = harness.submit(spec(1, priority=10))
    harness.tick()
    harness.start(low)
    after = (Dependency(Until.OK, str(low)),)
    above = harness.tell(job_inputs.Submit(spec(1, priority=51, after=after), "ada", asker=ADA)).reply
    assert isinstance(above, Refusal)
    assert isinstance(harness.tell(job_inputs.Submit(spec(1, after=after), "ada", asker=ADA)).reply, Accepted)
    for now in (1_070.0, 1_140.0):
        harness.tick_at(now)
    assert (harness.job(low).granted_priority, harness.job(low).stopping) == (50, None)
    harness.submit(spec(1, priority=60))
    harness.tick()
    assert harness.job(low).stopping is not None
