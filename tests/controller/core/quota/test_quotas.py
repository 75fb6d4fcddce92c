"""Queues and quotas: which jobs are refused or wait, and the waiting reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.explain.why_pending import reason_of
from controller.core.forecast.forecast import forecast, fork
from controller.core.framework.interfaces import Backfill
from controller.core.model.decision.decision import Accepted
from controller.core.model.inputs import job_inputs, policy_inputs
from controller.core.model.inputs.input import Input
from controller.core.pipeline.pipeline import Pipeline
from controller.core.quota.queue_rules import QueueRule
from controller.core.quota.quota_config import QuotaConfig
from controller.core.quota.usage_counters import HOUR_S
from controller.plugins.backfill.kinds import Conservative, Easy
from controller.plugins.quotas.local import (
    BorrowTable,
    LocalQuotas,
    ProjectQuotaTable,
    QuotaAmounts,
    QuotaTable,
)
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.cluster.quota import UNLIMITED, Limits, Quota
from wire.job.placement.gpu_requirements import GpuWish
from wire.names import JobState, Reason

QUEUES = {
    "short": QueueRule(max_time_limit_s=7200, default_time_limit_s=3600, max_running=2),
    "vision": QueueRule(projects=("vision",), users=("ada", "bob"), select={"pool": "a"}),
}


def ruled(rules: dict[str, QueueRule] | None = None, **tables: Any) -> Pipeline:
    """The usual pipeline with these queues and quotas."""
    return replace(PIPELINE, rules=QuotaConfig(rules or {}, LocalQuotas(**tables)))


def harness_of(rules: dict[str, QueueRule] | None = None, **tables: Any) -> EngineHarness:
    """One node with eight GPUs under these rules."""
    made = EngineHarness(ruled(rules, **tables))
    made.join("a", labels={"pool": "a"})
    return made


def test_a_removed_limit_is_no_waiting_reason() -> None:
    harness = harness_of(users={"ada": QuotaTable(gpus=2)})
    harness.submit(spec(2), user="ada")
    harness.submit(spec(6), user="bob")
    shut = harness.submit(spec(1), user="ada")
    harness.tick()
    assert reason_of(harness.state, harness.job(shut)) is Reason.QUOTA
    harness.tell(policy_inputs.SetQuota("user", "ada", Quota(Limits(gpus=UNLIMITED)), "root"))
    harness.tick()
    assert reason_of(harness.state, harness.job(shut)) is Reason.RESOURCES


@pytest.mark.parametrize(
    ("asked", "user", "where", "expected", "hint"),
    [
        ({"queue": "shrot"}, "ada", "queue", "there is no queue 'shrot'", "Did you mean 'short'?"),
        ({"queue": "x"}, "ada", "queue", "there is no queue 'x'", "There are: default, short, vision."),
        ({"queue": "short", "time_limit_s": 7201.0}, "ada", "time_limit_s", "at most 2h", "Ask for less"),
        ({"queue": "vision"}, "ada", "queue", "is not for project 'default'", "It is for vision."),
        ({"queue": "vision", "project": "vision"}, "eve", "queue", "is not for user 'eve'", "operator"),
        (
            {"queue": "vision", "project": "vision", "selector": {"pool": "b"}},
            "ada",
            "selector.pool",
            "has only nodes with pool=a",
            "Leave it out",
        ),
    ],
)
def test_jobs_that_a_queue_refuses(
    asked: dict[str, Any], user: str, where: str, expected: str, hint: str
) -> None:
    refused = harness_of(QUEUES).refuse(job_inputs.Submit(spec(**asked), user))
    assert refused.where == where
    assert expected in refused.message
    assert hint in refused.hint


@pytest.mark.parametrize(
    ("asked", "limit", "selector"),
    [
        ({}, None, {}),
        ({"queue": "short"}, 3600, {}),
        ({"queue": "short", "time_limit_s": 60.0}, 60, {}),
        ({"queue": "vision", "project": "vision", "selector": {"x": "y"}}, None, {"x": "y", "pool": "a"}),
    ],
)
def test_defaults_of_a_queue(asked: dict[str, Any], limit: float | None, selector: dict[str, str]) -> None:
    harness = EngineHarness(ruled(QUEUES))
    job = harness.submit(spec(**asked))
    assert harness.job(job).spec.time_limit_s == limit
    assert harness.job(job).spec.selector == selector


POOLS = {"a": QueueRule(select={"pool": "a"}), "b": QueueRule(select={"pool": "b", "disk": "x"})}


def pools() -> EngineHarness:
    """A node in each of two pools, and one in none."""
    harness = EngineHarness(ruled(POOLS))
    harness.join("a", labels={"pool": "a"})
    harness.join("b", labels={"pool": "b", "disk": "x"})
    harness.join("c", labels={"rack": "r"})
    return harness


# A waiting job in queue a, the edit, its selector after the edit, and the node that it starts on.
@pytest.mark.parametrize(
    ("asked", "changes", "selector", "node"),
    [
        ({}, {"queue": "b"}, {"pool": "b", "disk": "x"}, "b"),
        ({}, {"queue": "default"}, {}, "c"),
        ({}, {"queue": None}, {}, "c"),
        ({}, {"queue": "a"}, {"pool": "a"}, "a"),
        ({}, {"priority": 60}, {"pool": "a"}, "a"),
        ({}, {"selector": {"rack": "r"}, "queue": "default"}, {"rack": "r"}, "c"),
        ({"selector": {"pool": "a"}}, {"queue": "default"}, {"pool": "a"}, "a"),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_defaults_of_a_queue_go_when_the_job_leaves_it(
    asked: dict[str, Any], changes: dict[str, Any], selector: dict[str, str], node: str, restarted: bool
) -> None:
    harness = pools()
    job = harness.submit(spec(queue="a", **asked))
    if restarted:
        harness = harness.restarted()
        for name, host in (("a", POOLS["a"].select), ("b", POOLS["b"].select), ("c", {"rack": "r"})):
            harness.join(name, labels=host)
    for other in sorted({"a", "b", "c"} - {node}):
        harness.tell_drain(other)
    assert isinstance(harness.tell(job_inputs.Edit(job, "ada", changes)).reply, Accepted)
    assert harness.job(job).spec.selector == selector
    harness.tick()
    assert harness.nodes_of(job) == [node]


def test_two_changes_of_queue_leave_no_defaults() -> None:
    harness = pools()
    job = harness.submit(spec(queue="a"))
    for queue in ("b", "a", "default"):
        harness.tell(job_inputs.Edit(job, "ada", {"queue": queue}))
    assert harness.job(job).spec.selector == {}


def test_a_job_that_drops_its_selector_stays_on_the_nodes_of_its_queue() -> None:
    harness = pools()
    asked = spec(queue="a", selector={"disk": "y"}, relax=("selector",), relax_after_s=60.0)
    job = harness.submit(asked)
    assert harness.tick() == []
    harness.tick_at(harness.now + 60)
    assert harness.nodes_of(job) == ["a"]


def test_any_queue_name_is_accepted_when_no_queue_is_configured() -> None:
    harness = harness_of()
    assert harness.job(harness.submit(spec(queue="whatever"))).spec.queue == "whatever"


@pytest.mark.parametrize(
    ("tables", "asked", "expected"),
    [
        ({"users": {"ada": QuotaTable(gpus=2)}}, {"gpus": 4}, "user 'ada' on GPUs is 2, and this asks for 4"),
        (
            {"users": {"*": QuotaTable(gpus=0.5)}},
            {"gpus": 1},
            "user 'ada' on GPUs is 0.5, and this asks for 1",
        ),
        ({"projects": {"default": ProjectQuotaTable(memory="1G")}}, {"memory_mib": 2048}, "memory is 1G"),
        ({"queues": {"*": QuotaTable(cpus=2)}}, {"cpu_milli": 3000}, "queue 'default' on CPUs is 2"),
        ({"users": {"ada": QuotaTable(running=0)}}, {}, "running jobs is 0"),
        (
            {"users": {"ada": QuotaTable(gpu_hours=10)}},
            {"gpus": 4, "time_limit_s": 3 * HOUR_S},
            "GPU-hours is 10, and this asks for 12",
        ),
        (
            {"users": {"ada": QuotaTable(gpu_hours=100)}},
            {"gpus": 1},
            "GPU-hours is 100, and this asks for 168",
        ),
    ],
)
def test_a_job_over_a_quota_on_its_own_is_refused(
    tables: dict[str, Any], asked: dict[str, Any], expected: str
) -> None:
    refused = harness_of(**tables).refuse(job_inputs.Submit(spec(**asked), "ada"))
    assert refused.code == "over_quota"
    assert refused.message.startswith("can never start: ")
    assert expected in refused.message


def test_a_users_own_quota_table_keeps_the_general_limits_it_does_not_state() -> None:
    harness = harness_of(users={"*": QuotaTable(gpus=2, queued=1), "ada": QuotaTable(gpus=4)})
    harness.submit(spec(gpus=4))
    assert "queued jobs: 1 of 1" in harness.refuse(job_inputs.Submit(spec(), "ada")).message
    harness.refuse(job_inputs.Submit(spec(gpus=4), "bob"))


def test_the_quota_of_queued_jobs_follows_submits_starts_and_cancels() -> None:
    harness = harness_of(users={"*": QuotaTable(queued=3)})
    first = harness.submit(spec(gpus=8))
    harness.submit(spec(gpus=8, hold=True))
    harness.submit(spec(gpus=8))
    refused = harness.refuse(job_inputs.Submit(spec(), "ada"))
    assert "the quota of user 'ada' on queued jobs: 3 of 3 in use" in refused.message
    harness.submit(spec(), user="bob")
    harness.tick()
    waiting = harness.submit(spec(gpus=8))  # the first runs
    harness.refuse(job_inputs.Submit(spec(), "ada"))
    harness.tell(job_inputs.Cancel(waiting, "ada"))
    harness.submit(spec(gpus=8))
    harness.refuse(job_inputs.Submit(spec(), "ada"))
    assert harness.job(first).attempt == 1


def test_a_job_that_changes_queue_counts_in_the_new_queue_only() -> None:
    harness = harness_of(users={"ada": QuotaTable(queued=1)}, queues={"b": QuotaTable(queued=1)})
    job = harness.submit(spec(queue="a"))
    harness.submit(spec(queue="b"), "bob")
    refused = harness.refuse(job_inputs.Edit(job, "ada", {"queue": "b"}))
    assert "the quota of queue 'b' on queued jobs: 1 of 1 in use" in refused.message
    harness.tell(job_inputs.Edit(job, "ada", {"queue": "c"}))
    assert harness.job(job).spec.queue == "c"


def test_an_array_beyond_the_queued_quota_is_refused_whole() -> None:
    harness = harness_of(users={"*": QuotaTable(queued=5)})
    refused = harness.refuse(job_inputs.Submit(spec(array="0-5"), "ada"))
    assert "0 of 5 in use, and these are 6 more" in refused.message
    harness.submit(spec(array="0-4"))
    harness.refuse(job_inputs.Submit(spec(), "ada"))


def test_a_quota_set_live_applies_at_once_and_after_a_restart() -> None:
    harness = harness_of(users={"*": QuotaTable(queued=1)})
    harness.tell(policy_inputs.SetQuota("user", "ada", Quota(Limits(queued=2)), "root"))
    harness.tell(policy_inputs.SetQuota("user", "ada", Quota(Limits(gpus=1)), "root"))
    assert harness.state.quotas.quota(("user", "ada")).hard == Limits(queued=2, gpus=1)
    harness.submit(spec())
    harness.refuse(job_inputs.Submit(spec(gpus=2), "ada"))
    harness.submit(spec())
    harness.refuse(job_inputs.Submit(spec(), "ada"))
    again = harness.restarted()
    again.refuse(job_inputs.Submit(spec(), "ada"))
    again.tell(policy_inputs.UnsetQuota("user", "ada", "root"))
    assert "2 of 1 in use" in again.refuse(job_inputs.Submit(spec(), "ada")).message
    again.tell(policy_inputs.SetQuota("user", "*", Quota(Limits(queued=UNLIMITED)), "root"))
    again.submit(spec())


@pytest.mark.parametrize(
    ("given", "where"),
    [
        (policy_inputs.SetQuota("group", "x", Quota(), "root"), "scope"),
        (policy_inputs.SetQuota("user", "", Quota(), "root"), "name"),
        (policy_inputs.SetQuota("user", "ada\n", Quota(), "root"), "name"),
        (policy_inputs.SetQuota("user", "ada", Quota(Limits(gpus=-3)), "root"), "quota.hard.gpus"),
        (policy_inputs.SetQuota("user", "ada", Quota(borrow=Limits(gpus=3)), "root"), "quota.borrow.gpus"),
        (
            policy_inputs.SetQuota("project", "p", Quota(borrow=Limits(queued=3)), "root"),
            "quota.borrow.queued",
        ),
        (policy_inputs.SetQuota("project", "p", Quota(soft=Limits(queued=3)), "root"), "quota.soft.queued"),
        (policy_inputs.UnsetQuota("user", "ada", "root"), "name"),
    ],
)
def test_invalid_quotas_are_refused(given: Input, where: str) -> None:
    assert harness_of().refuse(given).where == where


def started(harness: EngineHarness) -> list[int]:
    """The jobs that one cycle starts."""
    return [start.job for start in harness.tick()]


def why(harness: EngineHarness, job: int) -> tuple[Reason, str]:
    expected = harness.engine.explain(harness.job(job), harness.now)
    assert expected.reason is reason_of(harness.state, harness.job(job))
    return expected.reason, expected.sentence


BACKFILLS = [Easy(), Conservative()]


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize(
    ("tables", "asked", "many", "expected"),
    [
        (
            {"users": {"*": QuotaTable(gpus=4)}},
            {"gpus": 2},
            2,
            "user 'ada' on GPUs: 4 of 4 in use, and this asks for 2",
        ),
        (
            {"users": {"*": QuotaTable(gpus=0.5)}},
            {"gpus": 0.25},
            2,
            "GPUs: 0.5 of 0.5 in use, and this asks for 0.25",
        ),
        (
            {"users": {"*": QuotaTable(cpus=3)}},
            {"cpu_milli": 1500},
            2,
            "CPUs: 3 of 3 in use, and this asks for 1.5",
        ),
        ({"users": {"*": QuotaTable(memory="5G")}}, {"memory_mib": 2048}, 2, "memory: 4G of 5G in use"),
        (
            {"projects": {"default": ProjectQuotaTable(running=3)}},
            {},
            3,
            "project 'default' on running jobs: 3 of 3",
        ),
        ({"queues": {"*": QuotaTable(gpus=1)}}, {"gpus": 1}, 1, "queue 'default' on GPUs: 1 of 1"),
        (
            {"users": {"ada": QuotaTable(gpu_hours=5)}},
            {"gpus": 1, "time_limit_s": 2.0 * HOUR_S},
            2,
            "user 'ada' on GPU-hours: 4 of 5 in use, and this asks for 2",
        ),
    ],
)
def test_a_job_beyond_a_hard_limit_waits_and_the_reason_names_the_quota(
    backfill: Backfill, tables: dict[str, Any], asked: dict[str, Any], many: int, expected: str
) -> None:
    harness = EngineHarness(replace(ruled(**tables), backfill=backfill))
    harness.join("a")
    jobs = [harness.submit(spec(**asked)) for _ in range(5)]
    assert started(harness) == jobs[:many]
    assert started(harness) == []
    reason, sentence = why(harness, jobs[many])
    assert (reason, expected in sentence) == (Reason.QUOTA, True), sentence
    if "GPU-hours" not in expected:  # spent GPU-hours do not come back
        harness.exit(jobs[0])
        assert started(harness) == [jobs[many]]


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_other_tenants_pass_a_job_at_its_quota(backfill: Backfill) -> None:
    harness = EngineHarness(replace(ruled(users={"ada": QuotaTable(gpus=2)}), backfill=backfill))
    harness.join("a")
    ada = [harness.submit(spec(2, priority=90)) for _ in range(3)]
    bob = [harness.submit(spec(2), "bob") for _ in range(3)]
    assert started(harness) == [ada[0], *bob]
    assert started(harness) == []


def test_a_queue_runs_at_most_max_running() -> None:
    harness = harness_of({"short": QueueRule(max_running=2), "long": QueueRule()})
    jobs = [harness.submit(spec(queue="short")) for _ in range(3)]
    other = harness.submit(spec(queue="long"))
    assert started(harness) == [*jobs[:2], other]
    assert "queue 'short' on running jobs: 2 of 2" in why(harness, jobs[2])[1]


def test_queues_of_higher_priority_come_first() -> None:
    harness = EngineHarness(ruled({"high": QueueRule(priority=10), "low": QueueRule(priority=-10)}))
    low, plain, high = (harness.submit(spec(8, queue=queue)) for queue in ("low", "default", "high"))
    harness.join("a")
    for job in (high, plain, low):
        assert started(harness) == [job]
        harness.exit(job)


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_a_shorter_job_passes_a_job_beyond_the_gpu_hours_quota(backfill: Backfill) -> None:
    harness = EngineHarness(replace(ruled(users={"ada": QuotaTable(gpu_hours=5)}), backfill=backfill))
    harness.join("a")
    harness.submit(spec(2, time_limit_s=2 * HOUR_S))
    long = harness.submit(spec(2, time_limit_s=HOUR_S))
    short = harness.submit(spec(2, time_limit_s=HOUR_S / 2))
    harness.tick()
    assert (harness.nodes_of(long), harness.nodes_of(short)) == ([], ["a"])


def test_gpu_hours_count_within_their_window() -> None:
    """Two GPUs for two hours are four of five GPU-hours; a week later they count as none."""
    harness = harness_of(users={"ada": QuotaTable(gpu_hours=5)})
    first = harness.submit(spec(2, time_limit_s=2.5 * HOUR_S))
    assert started(harness) == [first]
    second = harness.submit(spec(2, time_limit_s=HOUR_S))
    assert started(harness) == []
    harness.start(first)
    harness.now += 2 * HOUR_S
    harness.exit(first)
    assert harness.tick() == []
    assert "4 of 5 in use, and this asks for 2" in why(harness, second)[1]
    again = harness.restarted()
    again.join("a")
    assert again.tick() == []
    due = again.engine.next_at
    assert 7 * 24 * HOUR_S <= due - again.now <= 7 * 24 * HOUR_S + HOUR_S
    again.now = due - 1
    assert again.tick() == []
    again.now = due
    assert started(again) == [second]


def test_a_soft_limit_puts_a_tenant_behind_all_others() -> None:
    harness = harness_of(users={"ada": QuotaTable(soft=QuotaAmounts(gpus=2))})
    ada = [harness.submit(spec(2, priority=90)) for _ in range(4)]
    bob = [harness.submit(spec(2), "bob") for _ in range(2)]
    assert started(harness) == [ada[0], *bob, ada[1]]
    carl = harness.submit(spec(2), "carl")
    harness.exit(ada[1])
    assert started(harness) == [carl]
    harness.exit(carl)
    assert started(harness) == [ada[2]]


def test_a_project_borrows_unused_quota_of_others() -> None:
    vision = ProjectQuotaTable(gpus=2, borrow=BorrowTable(gpus=4))
    harness = harness_of(projects={"vision": vision, "speech": ProjectQuotaTable(gpus=5)})
    jobs = [harness.submit(spec(1, project="vision")) for _ in range(7)]
    assert started(harness) == jobs[:6]  # two of its own, four borrowed
    assert "project 'vision' on GPUs: 6 of 6" in why(harness, jobs[6])[1]
    speech = [harness.submit(spec(3, project="speech")) for _ in range(1)]
    assert started(harness) == []
    harness.exit(jobs[0])  # three are free: they go to speech
    assert started(harness) == speech
    harness.exit(jobs[1])  # four of vision's run, three of speech's: all seven are in use
    assert started(harness) == []
    assert "with all that projects may lend each other" in why(harness, jobs[6])[1]


def test_a_borrowing_job_may_start_if_it_does_not_delay_the_first_waiting_job() -> None:
    harness = harness_of(
        projects={"v": ProjectQuotaTable(gpus=1, borrow=BorrowTable(gpus=4)), "s": ProjectQuotaTable(gpus=8)}
    )
    mine = [harness.submit(spec(1, project="v", time_limit_s=60.0)) for _ in range(2)]
    assert started(harness) == mine
    wide = harness.submit(spec(8, project="s"))
    long = harness.submit(spec(1, project="v", time_limit_s=61.0))
    short = harness.submit(spec(1, project="v", time_limit_s=10.0))
    assert started(harness) == [short]
    reason, sentence = why(harness, long)
    assert reason is Reason.PRIORITY
    assert f"would delay job {wide}" in sentence


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_a_quota_set_while_jobs_wait_applies_at_once_and_so_does_its_removal(backfill: Backfill) -> None:
    harness = EngineHarness(replace(PIPELINE, backfill=backfill))
    jobs = [harness.submit(spec(1)) for _ in range(4)]
    harness.tell(policy_inputs.SetQuota("user", "ada", Quota(Limits(running=1)), "root"))
    harness.join("a")
    assert started(harness) == jobs[:1]
    harness.tell(policy_inputs.SetQuota("user", "ada", Quota(Limits(running=3)), "root"))
    assert started(harness) == jobs[1:3]
    harness.tell(policy_inputs.UnsetQuota("user", "ada", "root"))
    assert started(harness) == jobs[3:]


def test_a_forecast_respects_quotas() -> None:
    harness = harness_of(users={"ada": QuotaTable(running=1)})
    jobs = [harness.submit(spec(1, time_limit_s=100.0)) for _ in range(3)]
    expected = forecast(fork(harness.engine), harness.now).starts
    assert [expected[job].at - harness.now for job in jobs] == [0, 100, 200]


BY_MEMORY = spec(gpu=GpuWish(memory_mib=20 * 1024), time_limit_s=HOUR_S)


@pytest.mark.parametrize(
    ("story", "hosts", "table", "asked", "many", "expected"),
    [
        (
            "a quarter of an 80G GPU each",
            [{"gpu_gib": 80}],
            QuotaTable(gpus=0.5),
            {},
            2,
            "on GPUs: 0.5 of 0.5",
        ),
        ("by time as well", [{"gpu_gib": 80}], QuotaTable(gpu_hours=0.5), {}, 2, "on GPU-hours: 0.5 of 0.5"),
        (
            "as much as it may take of any GPU there is, until it has one",
            [{"gpu_gib": 80}, {"gpu_gib": 40, "model": "A100"}],
            QuotaTable(gpus=0.5),
            {},
            1,
            "asks for 0.5",
        ),
        (
            "no more than that of those it names",
            [{"gpu_gib": 80}, {"gpu_gib": 40, "model": "A100"}],
            QuotaTable(gpus=0.5),
            {"gpu_models": ("H100",)},
            2,
            "on GPUs: 0.5 of 0.5",
        ),
        ("what it cannot get does not count", [{}, {"gpu_gib": 16}], QuotaTable(gpus=0.5), {}, 2, "0.5 of"),
    ],
)
@pytest.mark.parametrize("backfill", BACKFILLS)
def test_a_gpu_share_by_memory_counts_against_quotas_by_its_fraction(
    backfill: Backfill,
    story: str,
    hosts: list[dict[str, Any]],
    table: QuotaTable,
    asked: dict[str, Any],
    many: int,
    expected: str,
) -> None:
    harness = EngineHarness(replace(ruled(users={"*": table}), backfill=backfill))
    for name, host in zip("ab", hosts, strict=False):
        harness.join(name, **host)
    jobs = [harness.submit(replace(BY_MEMORY, **asked)) for _ in range(4)]
    for _ in range(2):
        started(harness)
    running = [job for job in jobs if harness.job(job).state is not JobState.QUEUED]
    assert running == jobs[:many], story
    assert expected in why(harness, jobs[many])[1]
    assert harness.state.accounts.tenant(("user", "ada")).used[2] == 250 * many
    again = harness.restarted()
    assert (
        again.state.accounts.tenant(("user", "ada")).used
        == harness.state.accounts.tenant(("user", "ada")).used
    )


def test_gpu_hours_of_a_share_by_memory_survive_a_restart() -> None:
    harness = harness_of(users={"ada": QuotaTable(gpu_hours=0.5)})
    first, second = harness.submit(BY_MEMORY), harness.submit(replace(BY_MEMORY, time_limit_s=2 * HOUR_S))
    assert started(harness) == [first]
    harness.start(first)
    harness.now += HOUR_S
    harness.exit(first)
    again = harness.restarted()
    again.join("a")
    assert started(again) == []
    assert "0.25 of 0.5 in use, and this asks for 0.5" in why(again, second)[1]


def test_a_gpu_share_by_memory_beyond_the_quota_is_refused() -> None:
    refused = harness_of(users={"*": QuotaTable(gpus=0.2)}).refuse(job_inputs.Submit(BY_MEMORY, "ada"))
    assert "on GPUs is 0.2, and this asks for 0.25" in refused.message
