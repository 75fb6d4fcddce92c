"""Projects: into which project a job goes, and which users may use it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.fairshare.usage import FairshareConfig
from controller.core.model.decision.decision import Accepted, Refusal
from controller.core.model.inputs import job_inputs, policy_inputs
from controller.core.model.inputs.input import Requester
from controller.core.quota.projects import ProjectRules, UnknownProjects
from controller.core.quota.queue_rules import QueueRule
from controller.core.quota.quota_config import QuotaConfig
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.cluster.quota import Limits, Quota

ADA, EVE = Requester("ada"), Requester("eve")
OPERATOR, ADMIN = Requester("ops", operator=True), Requester("root", operator=True, admin=True)
RULES = ProjectRules(
    UnknownProjects.REFUSE,
    frozenset({"vision", "speech", "closed"}),
    {"vision": frozenset({"ada", "bo"}), "closed": frozenset({"bo"})},
    {"ada": "vision"},
)


def harness_of(unknown: str = "refuse", **changes: Any) -> EngineHarness:
    projects = replace(RULES, unknown=UnknownProjects(unknown))
    sharing = FairshareConfig(organisations={"lab": ("vision",)})
    harness = EngineHarness(
        replace(PIPELINE, rules=QuotaConfig(projects=projects, **changes), sharing=sharing)
    )
    harness.join("a", gpus=8)
    return harness


def submit(harness: EngineHarness, asker: Requester | None, project: str = "default", **more: Any) -> Any:
    """The reply to a submit, and the project of the queued job; for a refusal "" instead."""
    user = "ada" if asker is None else asker.user
    reply = harness.tell(job_inputs.Submit(spec(1, project=project, **more), user, asker=asker)).reply
    return reply, harness.job(reply.jobs[0]).spec.project if isinstance(reply, Accepted) else ""


@pytest.mark.parametrize(
    ("asker", "project", "goes_to"),
    [
        (ADA, "vision", "vision"),
        (ADA, "default", "vision"),
        (ADA, "speech", "speech"),
        (EVE, "default", "default"),
        (EVE, "vision", ""),
        (ADA, "invented", ""),
        (OPERATOR, "invented", ""),
        (ADMIN, "invented", ""),
        (OPERATOR, "vision", "vision"),
        (ADMIN, "closed", "closed"),
        (None, "invented", "invented"),
        (None, "default", "vision"),
    ],
)
def test_project_decides_with_the_user(asker: Requester | None, project: str, goes_to: str) -> None:
    assert submit(harness_of(), asker, project)[1] == goes_to


def test_refusal_names_the_projects_that_the_user_may_use() -> None:
    harness = harness_of()
    for_ada, for_eve, for_operator = (submit(harness, each, "visoin")[0] for each in (ADA, EVE, OPERATOR))
    assert (for_ada.code, for_ada.where) == ("invalid", "project")
    assert for_ada.message == "there is no project 'visoin'"
    assert for_ada.hint.startswith("Did you mean 'vision'? You may use: default, speech, vision. ")
    assert for_eve.hint.startswith("You may use: default, speech. ")
    assert "You may use: closed, default, speech, vision. " in for_operator.hint
    for each in (for_ada, for_eve, for_operator):
        assert "[projects.NAME]" in each.hint
        assert "corral config apply" in each.hint


def test_every_project_is_open_without_declarations() -> None:
    assert submit(harness_of("open"), EVE, "invented")[1] == "invented"
    reply, _ = submit(harness_of("open"), EVE, "vision")
    assert reply.code == "not_allowed"


def test_job_of_an_undeclared_project_goes_to_the_default_project_with_a_note() -> None:
    harness = harness_of("default")
    reply, project = submit(harness, EVE, "invented")
    assert project == "default"
    assert reply.notes == ("there is no project 'invented': the job is in project 'default'",)
    assert submit(harness, ADA)[0].notes == ()
    assert submit(harness, EVE, "vision")[0].code == "not_allowed"


def test_default_project_with_members_takes_no_other_jobs() -> None:
    closed = replace(RULES, unknown=UnknownProjects.DEFAULT, members={"default": frozenset({"bo"})})
    harness = EngineHarness(replace(PIPELINE, rules=QuotaConfig(projects=closed)))
    assert submit(harness, EVE)[0].code == "not_allowed"
    assert submit(harness, EVE, "invented")[0].code == "not_allowed"


def test_projects_with_quotas_or_shares_of_operators_are_declared() -> None:
    harness = harness_of()
    quota = Quota(hard=Limits(gpus=8))
    harness.tell(policy_inputs.SetQuota("project", "quoted", quota, "ops"))
    harness.tell(policy_inputs.SetQuota("project", "*", quota, "ops"))
    harness.tell(policy_inputs.SetQuota("user", "lou", quota, "ops"))
    harness.tell(policy_inputs.SetShare("weighed", 3.0, "ops"))
    harness.tell(policy_inputs.SetShare("limited/ada", None, "ops", soft=5.0))
    harness.tell(policy_inputs.SetShare("lab", 3.0, "ops"))
    for project in ("quoted", "weighed", "limited"):
        assert submit(harness, EVE, project)[1] == project
    for project in ("*", "lou", "lab"):
        assert submit(harness, EVE, project)[1] == ""
    harness.tell(policy_inputs.UnsetQuota("project", "quoted", "ops"))
    reply, _ = submit(harness, EVE, "quoted")
    assert "limited, speech, weighed." in reply.hint


def test_edit_that_changes_the_project_is_checked() -> None:
    harness = harness_of()
    job = submit(harness, EVE)[0].jobs[0]

    def edit(asker: Requester, project: str) -> str:
        reply = harness.tell(job_inputs.Edit(job, asker.user, {"project": project}, asker=asker)).reply
        return reply.where if isinstance(reply, Refusal) else harness.job(job).spec.project

    assert edit(EVE, "speech") == "speech"
    assert edit(EVE, "invented") == "project"
    assert edit(EVE, "vision") == "project"
    assert edit(ADMIN, "invented") == "project"
    assert edit(OPERATOR, "vision") == "vision"
    # The user may still change other fields of a job that an operator has moved.
    reply = harness.tell(job_inputs.Edit(job, "eve", {"name": "other"}, asker=EVE)).reply
    assert isinstance(reply, Accepted)
    assert edit(EVE, "default") == "default"


def test_edit_to_an_undeclared_project_goes_to_the_default_project() -> None:
    harness = harness_of("default")
    job = submit(harness, EVE, "speech")[0].jobs[0]
    harness.tell(job_inputs.Edit(job, "eve", {"project": "invented"}, asker=EVE))
    assert harness.job(job).spec.project == "default"


def test_rule_of_the_queue_sees_the_default_project() -> None:
    harness = harness_of(queues={"short": QueueRule(projects=("vision",))})
    assert submit(harness, ADA, queue="short")[1] == "vision"
    assert submit(harness, EVE, queue="short")[0].where == "queue"


def test_refusal_names_at_most_twenty_projects() -> None:
    many = replace(RULES, declared=frozenset(f"p{number:02}" for number in range(30)))
    harness = EngineHarness(replace(PIPELINE, rules=QuotaConfig(projects=many)))
    reply, _ = submit(harness, EVE, "unlike")
    assert "p18 and 11 more." in reply.hint
