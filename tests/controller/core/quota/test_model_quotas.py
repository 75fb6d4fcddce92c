"""Quotas of the GPUs of one model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.explain.why_pending import reason_of
from controller.core.framework.interfaces import Backfill
from controller.core.model.inputs import agent_inputs, job_inputs, policy_inputs
from controller.core.quota.quota_config import QuotaConfig
from controller.plugins.backfill.kinds import Conservative, Easy
from controller.plugins.quotas.local import (
    BorrowTable,
    LocalQuotas,
    ProjectQuotaTable,
    QuotaAmounts,
    QuotaTable,
)
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.agent.reports import AttemptStatus
from wire.cluster.quota import UNLIMITED, GpuLimit, Limits, Quota
from wire.cluster.reservation import ReservationSpec
from wire.codec import decode, encode
from wire.names import JobState, Reason

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"


def harness_of(backfill: Backfill | None = None, **tables: Any) -> EngineHarness:
    """Node a has eight H100, node b eight A100."""
    pipeline = PIPELINE if backfill is None else replace(PIPELINE, backfill=backfill)
    harness = EngineHarness(replace(pipeline, rules=QuotaConfig({}, LocalQuotas(**tables))))
    harness.join("a", model=H100)
    harness.join("b", model=A100)
    return harness


def per_model(**limits: float | str) -> dict[str, QuotaTable]:
    return {"ada": QuotaTable(gpus_per_model=limits)}


def on(harness: EngineHarness, job: int) -> list[str]:
    """The nodes of the job; empty while it waits."""
    return harness.nodes_of(job)


def h100(gpus: float = 1, **more: Any) -> Any:
    return spec(gpus, gpu_models=("H100",), **more)


@pytest.mark.parametrize("name", ["H100", "h100", "NVIDIA H100"])
def test_a_job_of_a_limited_model_waits(name: str) -> None:
    harness = harness_of(users=per_model(**{name: 4}))
    first, second, other = harness.submit(h100(3)), harness.submit(h100(2)), harness.submit(h100(2), "bob")
    harness.tick()
    assert (on(harness, first), on(harness, second), on(harness, other)) == (["a"], [], ["a"])
    why = harness.why(second)
    assert why.reason is Reason.QUOTA
    expected = f"the quota of user 'ada' on {name} GPUs: 3 of 4 in use, and this asks for 2"
    assert why.sentence.startswith(expected)
    harness.start(first)
    harness.exit(first)
    harness.tick()
    assert on(harness, second) == ["a"]


@pytest.mark.parametrize("backfill", [Easy(), Conservative()])
def test_a_job_without_a_model_gets_gpus_of_another_model(backfill: Backfill) -> None:
    harness = harness_of(backfill, users=per_model(H100=2))
    jobs = [harness.submit(spec(2)) for _ in range(5)]
    harness.tick()
    nodes = [on(harness, job) for job in jobs]
    assert sorted(filter(None, nodes)) == [["a"], ["b"], ["b"], ["b"], ["b"]]
    last = harness.submit(spec(2))
    harness.tick()
    assert on(harness, last) == []
    why = harness.why(last)
    assert why.reason is Reason.QUOTA
    assert "on H100 GPUs: 2 of 2 in use" in why.sentence
    harness.tell(
        policy_inputs.SetQuota("user", "ada", Quota(Limits(gpus_per_model={"H100": GpuLimit(4)})), "root")
    )
    harness.tick()
    assert on(harness, last) == ["a"]


def test_a_job_is_refused_if_no_model_allows_it() -> None:
    harness = harness_of(users=per_model(H100=2, A100="25%"))
    refused = harness.refuse(job_inputs.Submit(spec(3), "ada"))
    assert refused.code == "over_quota"
    assert "the quota of user 'ada' on H100 GPUs is 2, and this asks for 3" in refused.message
    assert harness.refuse(job_inputs.Submit(h100(3), "ada")).code == "over_quota"
    harness.submit(spec(3), "bob")


def test_percentages_count_the_gpus_of_the_model() -> None:
    harness = harness_of(projects={"default": ProjectQuotaTable(gpus_per_model={"H100": "50%"})})
    jobs = [harness.submit(h100(4)) for _ in range(2)]
    harness.tick()
    assert [on(harness, job) for job in jobs] == [["a"], []]
    assert "on H100 GPUs (50 % of 8): 4 of 4 in use" in harness.why(jobs[1]).sentence
    harness.join("c", model=H100)
    harness.tick()
    assert on(harness, jobs[1]) in (["a"], ["c"])


def test_usage_survives_a_restart_and_a_new_limit_counts_running_jobs() -> None:
    harness = harness_of()
    job = harness.submit(h100(3))
    harness.tick()
    harness.start(job)
    limits = Limits(gpus_per_model={"H100": GpuLimit(4)})
    harness.tell(policy_inputs.SetQuota("user", "ada", Quota(limits), "root"))
    assert harness.state.accounts.tenant(("user", "ada")).used[6:] == [3000]
    again = harness.restarted()
    assert again.state.accounts.tenant(("user", "ada")).used[6:] == [3000]
    assert again.state.quotas.quota(("user", "ada")).hard == limits
    waiting = harness.submit(h100(2))
    harness.tick()
    assert on(harness, waiting) == []
    none = Limits(gpus_per_model={"h100": GpuLimit(UNLIMITED)})
    harness.tell(policy_inputs.SetQuota("user", "ada", Quota(none), "root"))
    harness.tick()
    assert on(harness, waiting) == ["a"]
    harness.tell(policy_inputs.UnsetQuota("user", "ada", "root"))
    assert harness.state.accounts.tenant(("user", "ada")).used[6:] == []


def test_gpus_that_report_another_model_are_counted_again() -> None:
    harness = harness_of(users=per_model(H100=8, A100=8))
    job = harness.submit(h100(3))
    harness.tick()
    harness.start(job)
    assert harness.state.accounts.tenant(("user", "ada")).used[6:] == [0, 3000]
    status = harness.job(job)
    harness.tell(agent_inputs.LinkWentDown("a", "cable"))
    running = AttemptStatus(job, status.attempt, pid=100 + job, started_at=harness.now)
    harness.join("a", (running,), model=A100)
    assert harness.state.accounts.tenant(("user", "ada")).used[6:] == [3000, 0]


def test_a_project_borrows_gpus_of_a_model() -> None:
    borrow = BorrowTable(gpus_per_model={"H100": 4})
    tables = {
        "vision": ProjectQuotaTable(gpus_per_model={"H100": 2}, borrow=borrow),
        "speech": ProjectQuotaTable(gpus_per_model={"H100": 4}),
    }
    harness = harness_of(projects=tables)
    vision = [harness.submit(h100(2, project="vision")) for _ in range(3)]
    speech = harness.submit(h100(2, project="speech"))
    harness.tick()
    assert [on(harness, job) for job in (*vision, speech)] == [["a"], ["a"], [], ["a"]]
    assert "with all that projects may lend each other" in harness.why(vision[2]).sentence


def test_the_reason_names_the_model_above_the_greatest_loan() -> None:
    tables = {
        "vision": ProjectQuotaTable(
            gpus_per_model={"H100": 2}, borrow=BorrowTable(gpus_per_model={"H100": 1})
        ),
        "speech": ProjectQuotaTable(gpus_per_model={"H100": 6}),
    }
    harness = harness_of(projects=tables)
    jobs = [harness.submit(h100(2, project="vision")) for _ in range(2)]
    harness.tick()
    assert [on(harness, job) for job in jobs] == [["a"], []]
    expected = "the quota of project 'vision' on H100 GPUs: 2 of 3 in use, and this asks for 2"
    assert harness.why(jobs[1]).sentence.startswith(expected)


def test_the_reason_names_a_quota_and_a_reservation_that_only_together_bar_the_nodes() -> None:
    """The quota allows node b, and the reservation node a."""
    harness = harness_of(users=per_model(H100=2))
    first = harness.submit(h100(2))
    harness.tick()
    assert on(harness, first) == ["a"]
    harness.tell(policy_inputs.Reserve(ReservationSpec("upkeep", harness.now, 600.0, ("b",)), "root"))
    waiting = harness.submit(spec(2))
    harness.tick()
    assert on(harness, waiting) == []
    why = harness.why(waiting)
    assert why.reason is Reason.RESERVATION
    assert why.reason is reason_of(harness.state, harness.job(waiting))
    expected = "the quota of user 'ada' on H100 GPUs: 2 of 2 in use, and this asks for 2"
    assert why.sentence.startswith(f"fits now only with nodes that are reserved or at a quota: {expected}")


def test_a_soft_limit_of_a_model_puts_a_job_behind_the_others() -> None:
    soft = QuotaAmounts(gpus_per_model={"H100": 4})
    harness = harness_of(users={"ada": QuotaTable(soft=soft)})
    first, second = harness.submit(h100(4)), harness.submit(h100(4))
    other = harness.submit(h100(4), "bob")
    harness.tick()
    assert [on(harness, job) for job in (first, second, other)] == [["a"], [], ["a"]]


def test_quota_of_a_model_is_reserved_for_a_wide_job() -> None:
    """Jobs of one GPU do not pass a job that needs the whole quota for ever."""
    harness = harness_of(users=per_model(H100=4))
    small = [harness.submit(h100(1, time_limit_s=600.0)) for _ in range(4)]
    harness.tick()
    wide = harness.submit(h100(4, time_limit_s=600.0))
    later = [harness.submit(h100(1, time_limit_s=3600.0)) for _ in range(4)]
    for job in small:
        harness.start(job)
    for job in small:
        harness.now += 10
        harness.exit(job)
        harness.tick()
    assert harness.job(wide).state is JobState.SCHEDULED
    assert {harness.job(job).state for job in later} == {JobState.QUEUED}


def test_limits_can_be_encoded() -> None:
    limits = Limits(gpus_per_model={"H100": GpuLimit(4), "A100": GpuLimit(percent=25)})
    assert decode(Limits, encode(limits)) == limits


@pytest.mark.parametrize(
    "limits",
    [
        Limits(gpus_per_model={"H100": GpuLimit()}),
        Limits(gpus_per_model={"H100": GpuLimit(1, 2)}),
        Limits(gpus_per_model={"H100": GpuLimit(percent=101)}),
        Limits(gpus_per_model={"": GpuLimit(1)}),
        Limits(gpus=1, gpus_percent=1),
    ],
)
def test_invalid_limits_are_refused(limits: Limits) -> None:
    refused = harness_of().refuse(policy_inputs.SetQuota("user", "ada", Quota(limits), "root"))
    assert refused.where.startswith("quota.hard.gpus_per")
