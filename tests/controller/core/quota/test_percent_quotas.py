"""Quotas that are a percentage of the GPUs of the cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.model.inputs import agent_inputs, job_inputs, node_inputs, policy_inputs
from controller.core.model.job import Job
from controller.core.quota.quota_config import QuotaConfig
from controller.plugins.quotas.local import (
    BorrowTable,
    LocalQuotas,
    ProjectQuotaTable,
    QuotaAmounts,
    QuotaTable,
)
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.cluster.quota import Limits, Quota
from wire.codec import decode, encode
from wire.names import JobState, Reason

VISION = "project", "vision"


def harness_of(*nodes: str, **tables: Any) -> EngineHarness:
    """A cluster of these nodes, each with eight GPUs."""
    harness = EngineHarness(replace(PIPELINE, rules=QuotaConfig({}, LocalQuotas(**tables))))
    for node in nodes:
        harness.join(node)
    return harness


def vision(gpus: float, **more: Any) -> Any:
    return spec(gpus, project="vision", **more)


def waits_for_quota(harness: EngineHarness, job: int) -> bool:
    found: Job = harness.job(job)
    return found.state is JobState.QUEUED and harness.why(job).reason is Reason.QUOTA


def test_the_limit_follows_the_nodes_of_the_cluster() -> None:
    """The limit grows with a new node and shrinks only when a node is removed. Nodes that are disconnected,
    drained or down count.
    """
    harness = harness_of("a", "b", projects={"vision": ProjectQuotaTable(gpus="50%")})
    first, second = harness.submit(vision(8)), harness.submit(vision(1))
    harness.tick()
    assert waits_for_quota(harness, second)
    assert harness.why(second).sentence.startswith(
        "the quota of project 'vision' on GPUs (50 % of 16): 8 of 8 in use, and this asks for 1"
    )
    harness.join("c")
    harness.tick()
    assert harness.job(second).state is JobState.SCHEDULED
    assert harness.state.quotas.quota(VISION).hard == Limits(gpus=12, gpus_percent=50)
    harness.tell_drain("b")
    harness.tell(agent_inputs.LinkWentDown("c", "cable"))
    harness.tick_at(harness.now + 7200)
    assert harness.state.quotas.quota(VISION).hard.gpus == 12
    free = min({"a", "b", "c"} - {*harness.nodes_of(first), *harness.nodes_of(second)})
    harness.tell(node_inputs.RemoveNode(free, "root"))
    assert harness.state.quotas.quota(VISION).hard.gpus == 8


def test_an_operator_sets_a_percentage_which_survives_a_restart() -> None:
    harness = harness_of("a", projects={"vision": ProjectQuotaTable(gpus=2)})
    harness.tell(policy_inputs.SetQuota(*VISION, Quota(Limits(gpus_percent=50)), "root"))
    assert harness.state.quotas.quota(VISION).hard == Limits(gpus=4, gpus_percent=50)
    restarted = harness.restarted()
    assert restarted.state.quotas.quota(VISION).hard == Limits(gpus=4, gpus_percent=50)
    harness.tell(policy_inputs.SetQuota(*VISION, Quota(Limits(gpus=3)), "root"))
    assert harness.state.quotas.quota(VISION).hard == Limits(gpus=3)
    harness.tell(policy_inputs.UnsetQuota(*VISION, "root"))
    assert harness.state.quotas.quota(VISION).hard == Limits(gpus=2)


def test_a_project_borrows_a_percentage() -> None:
    tables = {
        "vision": ProjectQuotaTable(gpus="50%", borrow=BorrowTable(gpus="25%")),
        "speech": ProjectQuotaTable(gpus="50%"),
    }
    harness = harness_of("a", "b", projects=tables)
    too_wide = spec(16, nodes=2, project="vision")
    assert "is 8, and this asks for 16" in harness.refuse(job_inputs.Submit(too_wide, "ada")).message
    jobs = [harness.submit(vision(4)) for _ in range(4)]
    harness.tick()
    assert [waits_for_quota(harness, job) for job in jobs] == [False, False, False, True]


def test_a_soft_percentage_puts_a_job_behind_the_others() -> None:
    harness = harness_of("a", users={"ada": QuotaTable(soft=QuotaAmounts(gpus="50%"))})
    first, second = harness.submit(spec(4)), harness.submit(spec(4))
    other = harness.submit(spec(4), user="bob")
    harness.tick()
    states = [harness.job(job).state for job in (first, second, other)]
    assert states == [JobState.SCHEDULED, JobState.QUEUED, JobState.SCHEDULED]


def test_a_job_above_a_percentage_is_refused_only_if_all_nodes_are_known() -> None:
    harness = harness_of("a", users={"*": QuotaTable(gpus="50%")})
    refused = harness.refuse(job_inputs.Submit(spec(5), "ada"))
    assert refused.code == "over_quota"
    assert "the quota of user 'ada' on GPUs (50 % of 8) is 4, and this asks for 5" in refused.message
    harness.tell(node_inputs.AddNode("b", {}, "root"))
    waiting = harness.submit(spec(5))
    harness.tick()
    assert waits_for_quota(harness, waiting)
    harness.join("b")
    harness.tick()
    assert harness.job(waiting).state is JobState.SCHEDULED


@pytest.mark.parametrize("text", ["half", "150%", "-5%", "%", "50% of all", "8"])
def test_an_invalid_percentage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"number|percentage"):
        QuotaTable(gpus=text)


def test_limits_of_older_journals_can_be_read() -> None:
    old = {"cpu_milli": None, "memory_mib": None, "gpus": 8.0, "running": None, "queued": None}
    assert decode(Limits, old) == Limits(gpus=8)
    new = Limits(gpus_percent=50)
    assert decode(Limits, encode(new)) == new


def test_a_job_wider_than_the_soft_limit_does_not_always_come_last() -> None:
    """A job of 6 GPUs exceeds the soft limit of 4 alone. While its user uses less than the limit, the job
    keeps its place in the queue.
    """
    harness = harness_of("a", users={"ada": QuotaTable(soft=QuotaAmounts(gpus=4))})
    blocker = harness.submit(spec(8), user="eve")
    harness.tick()
    harness.start(blocker)
    wide = harness.submit(spec(6))
    others = [harness.submit(spec(4), user="bob") for _ in range(3)]
    harness.exit(blocker)
    harness.tick()
    assert harness.job(wide).state is JobState.SCHEDULED
    assert {harness.job(job).state for job in others} == {JobState.QUEUED}


def test_a_job_that_all_projects_together_cannot_lend_is_refused() -> None:
    tables = {
        "vision": ProjectQuotaTable(gpus=4, borrow=BorrowTable(gpus=8)),
        "speech": ProjectQuotaTable(gpus=2),
    }
    harness = harness_of("a", projects=tables)
    assert harness.refuse(job_inputs.Submit(vision(7), "ada")).code == "over_quota"
    fits = harness.submit(vision(6))
    harness.tick()
    assert harness.job(fits).state is JobState.SCHEDULED


def test_a_soft_limit_does_not_keep_a_job_behind_new_jobs_for_ever() -> None:
    """Each hour a job of another user arrives. The job above the soft limit starts after a day."""
    tables = LocalQuotas(users={"ada": QuotaTable(soft=QuotaAmounts(gpus=2))})
    harness = EngineHarness(replace(PIPELINE, rules=QuotaConfig({}, tables, soft_for_s=86_400.0)))
    harness.join("a")
    harness.start(begun(harness, spec(4), "ada"))
    other, waiting = begun(harness, spec(4), "bob"), harness.submit(spec(4))
    hours = 0
    while harness.job(waiting).state is JobState.QUEUED:
        assert hours < 48
        hours += 1
        harness.now += 3_600
        harness.start(other)
        following = harness.submit(spec(4), user="bob")
        harness.exit(other)
        harness.tick()
        other = following
    assert hours == 25


def begun(harness: EngineHarness, asked: Any, user: str) -> int:
    job = harness.submit(asked, user)
    harness.tick()
    return job
