"""Queues and quotas as stories: which jobs are refused or wait, and what explain says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.explain.why_pending import reason_of
from controller.core.forecast.forecast import forecast, fork
from controller.core.framework.interfaces import Backfill
from controller.core.model import inputs
from controller.core.pipeline.pipeline import Pipeline
from controller.core.quota.quotas import QueueRule, QuotaConfig
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
from wire.job.gpu_requirements import GpuWish
from wire.names import JobState, Reason

QUEUES = {
    "short": QueueRule(max_time_limit_s=7200, default_time_limit_s=3600, max_running=2),
    "vision": QueueRule(projects=("vision",), users=("ada", "bob"), select={"pool": "a"}),
}


def ruled(rules: dict[str, QueueRule] | None = None, **tables: Any) -> Pipeline:
    """The usual pipeline with these queues and quotas."""
    return replace(PIPELINE, rules=QuotaConfig(rules or {}, LocalQuotas(**tables)))


def harness(rules: dict[str, QueueRule] | None = None, **tables: Any) -> EngineHarness:
    """One node with eight GPUs under these rules."""
    made = EngineHarness(ruled(rules, **tables))
    made.join("a", labels={"pool": "a"})
    return made


def test_a_limit_that_was_lifted_is_no_reason_any_more() -> None:
    there = harness(users={"ada": QuotaTable(gpus=2)})
    there.submit(spec(2), user="ada")
    there.submit(spec(6), user="bob")
    shut = there.submit(spec(1), user="ada")
    there.tick()
    assert reason_of(there.state, there.job(shut)) is Reason.QUOTA
    there.tell(inputs.SetQuota("user", "ada", Quota(Limits(gpus=UNLIMITED)), "root"))
    there.tick()
    assert reason_of(there.state, there.job(shut)) is Reason.RESOURCES


@pytest.mark.parametrize(
    ("asked", "user", "where", "told", "hint"),
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
    asked: dict[str, Any], user: str, where: str, told: str, hint: str
) -> None:
    refused = harness(QUEUES).refuse(inputs.Submit(spec(**asked), user))
    assert refused.where == where
    assert told in refused.message
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
    there = EngineHarness(ruled(QUEUES))
    job = there.submit(spec(**asked))
    assert there.job(job).spec.time_limit_s == limit
    assert there.job(job).spec.selector == selector


POOLS = {"a": QueueRule(select={"pool": "a"}), "b": QueueRule(select={"pool": "b", "disk": "x"})}


def pools() -> EngineHarness:
    """A node in each of two pools, and one in none."""
    there = EngineHarness(ruled(POOLS))
    there.join("a", labels={"pool": "a"})
    there.join("b", labels={"pool": "b", "disk": "x"})
    there.join("c", labels={"rack": "r"})
    return there


# A job in queue a, changed while it waits: what it selects then, and where it starts.
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
    there = pools()
    job = there.submit(spec(queue="a", **asked))
    if restarted:
        there = there.restarted()
        for name, host in (("a", POOLS["a"].select), ("b", POOLS["b"].select), ("c", {"rack": "r"})):
            there.join(name, labels=host)
    for other in sorted({"a", "b", "c"} - {node}):
        there.tell_drain(other)
    assert isinstance(there.tell(inputs.Edit(job, "ada", changes)).reply, inputs.Accepted)
    assert there.job(job).spec.selector == selector
    there.tick()
    assert there.nodes_of(job) == [node]


def test_two_changes_of_queue_leave_no_defaults() -> None:
    there = pools()
    job = there.submit(spec(queue="a"))
    for queue in ("b", "a", "default"):
        there.tell(inputs.Edit(job, "ada", {"queue": queue}))
    assert there.job(job).spec.selector == {}


def test_a_job_that_does_without_its_selector_stays_on_the_nodes_of_its_queue() -> None:
    there = pools()
    asked = spec(queue="a", selector={"disk": "y"}, relax=("selector",), relax_after_s=60.0)
    job = there.submit(asked)
    assert there.tick() == []
    there.tick_at(there.now + 60)
    assert there.nodes_of(job) == ["a"]


def test_without_any_queue_every_name_is_one() -> None:
    there = harness()
    assert there.job(there.submit(spec(queue="whatever"))).spec.queue == "whatever"


@pytest.mark.parametrize(
    ("tables", "asked", "told"),
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
    tables: dict[str, Any], asked: dict[str, Any], told: str
) -> None:
    refused = harness(**tables).refuse(inputs.Submit(spec(**asked), "ada"))
    assert refused.code == "over_quota"
    assert refused.message.startswith("can never start: ")
    assert told in refused.message


def test_a_table_of_ones_own_says_only_what_it_says() -> None:
    there = harness(users={"*": QuotaTable(gpus=2, queued=1), "ada": QuotaTable(gpus=4)})
    there.submit(spec(gpus=4))
    assert "queued jobs: 1 of 1" in there.refuse(inputs.Submit(spec(), "ada")).message
    there.refuse(inputs.Submit(spec(gpus=4), "bob"))


def test_queued_jobs_are_counted_as_they_come_and_go() -> None:
    there = harness(users={"*": QuotaTable(queued=3)})
    first = there.submit(spec(gpus=8))
    there.submit(spec(gpus=8, hold=True))
    there.submit(spec(gpus=8))
    refused = there.refuse(inputs.Submit(spec(), "ada"))
    assert "the quota of user 'ada' on queued jobs: 3 of 3 in use" in refused.message
    there.submit(spec(), user="bob")
    there.tick()
    waiting = there.submit(spec(gpus=8))  # the first runs
    there.refuse(inputs.Submit(spec(), "ada"))
    there.tell(inputs.Cancel(waiting, "ada"))
    there.submit(spec(gpus=8))
    there.refuse(inputs.Submit(spec(), "ada"))
    assert there.job(first).attempt == 1


def test_a_job_that_moves_is_counted_where_it_comes_and_only_there() -> None:
    there = harness(users={"ada": QuotaTable(queued=1)}, queues={"b": QuotaTable(queued=1)})
    job = there.submit(spec(queue="a"))
    there.submit(spec(queue="b"), "bob")
    refused = there.refuse(inputs.Edit(job, "ada", {"queue": "b"}))
    assert "the quota of queue 'b' on queued jobs: 1 of 1 in use" in refused.message
    there.tell(inputs.Edit(job, "ada", {"queue": "c"}))
    assert there.job(job).spec.queue == "c"


def test_an_array_is_taken_whole_or_not_at_all() -> None:
    there = harness(users={"*": QuotaTable(queued=5)})
    refused = there.refuse(inputs.Submit(spec(array="0-5"), "ada"))
    assert "0 of 5 in use, and these are 6 more" in refused.message
    there.submit(spec(array="0-4"))
    there.refuse(inputs.Submit(spec(), "ada"))


def test_a_quota_that_is_set_holds_at_once_and_after_a_restart() -> None:
    there = harness(users={"*": QuotaTable(queued=1)})
    there.tell(inputs.SetQuota("user", "ada", Quota(Limits(queued=2)), "root"))
    there.tell(inputs.SetQuota("user", "ada", Quota(Limits(gpus=1)), "root"))
    assert there.state.quotas.quota(("user", "ada")).hard == Limits(queued=2, gpus=1)
    there.submit(spec())
    there.refuse(inputs.Submit(spec(gpus=2), "ada"))
    there.submit(spec())
    there.refuse(inputs.Submit(spec(), "ada"))
    again = there.restarted()
    again.refuse(inputs.Submit(spec(), "ada"))
    again.tell(inputs.UnsetQuota("user", "ada", "root"))
    assert "2 of 1 in use" in again.refuse(inputs.Submit(spec(), "ada")).message
    again.tell(inputs.SetQuota("user", "*", Quota(Limits(queued=UNLIMITED)), "root"))
    again.submit(spec())


@pytest.mark.parametrize(
    ("given", "where"),
    [
        (inputs.SetQuota("group", "x", Quota(), "root"), "scope"),
        (inputs.SetQuota("user", "", Quota(), "root"), "name"),
        (inputs.SetQuota("user", "ada\n", Quota(), "root"), "name"),
        (inputs.SetQuota("user", "ada", Quota(Limits(gpus=-3)), "root"), "quota.hard.gpus"),
        (inputs.SetQuota("user", "ada", Quota(borrow=Limits(gpus=3)), "root"), "quota.borrow.gpus"),
        (inputs.SetQuota("project", "p", Quota(borrow=Limits(queued=3)), "root"), "quota.borrow.queued"),
        (inputs.SetQuota("project", "p", Quota(soft=Limits(queued=3)), "root"), "quota.soft.queued"),
        (inputs.UnsetQuota("user", "ada", "root"), "name"),
    ],
)
def test_invalid_quotas_are_refused(given: inputs.Input, where: str) -> None:
    assert harness().refuse(given).where == where


def started(there: EngineHarness) -> list[int]:
    """What one cycle starts."""
    return [start.job for start in there.tick()]


def why(there: EngineHarness, job: int) -> tuple[Reason, str]:
    told = there.engine.explain(there.job(job), there.now)
    assert told.reason is reason_of(there.state, there.job(job))
    return told.reason, told.sentence


BACKFILLS = [Easy(), Conservative()]


@pytest.mark.parametrize("backfill", BACKFILLS)
@pytest.mark.parametrize(
    ("tables", "asked", "many", "told"),
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
def test_a_job_that_would_pass_a_hard_limit_waits_and_says_why(
    backfill: Backfill, tables: dict[str, Any], asked: dict[str, Any], many: int, told: str
) -> None:
    there = EngineHarness(replace(ruled(**tables), backfill=backfill))
    there.join("a")
    jobs = [there.submit(spec(**asked)) for _ in range(5)]
    assert started(there) == jobs[:many]
    assert started(there) == []
    reason, sentence = why(there, jobs[many])
    assert (reason, told in sentence) == (Reason.QUOTA, True), sentence
    if "GPU-hours" not in told:  # those are spent
        there.exit(jobs[0])
        assert started(there) == [jobs[many]]


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_other_jobs_pass_a_job_at_its_limit(backfill: Backfill) -> None:
    there = EngineHarness(replace(ruled(users={"ada": QuotaTable(gpus=2)}), backfill=backfill))
    there.join("a")
    ada = [there.submit(spec(2, priority=90)) for _ in range(3)]
    bob = [there.submit(spec(2), "bob") for _ in range(3)]
    assert started(there) == [ada[0], *bob]
    assert started(there) == []


def test_a_queue_runs_at_most_max_running() -> None:
    there = harness({"short": QueueRule(max_running=2), "long": QueueRule()})
    jobs = [there.submit(spec(queue="short")) for _ in range(3)]
    other = there.submit(spec(queue="long"))
    assert started(there) == [*jobs[:2], other]
    assert "queue 'short' on running jobs: 2 of 2" in why(there, jobs[2])[1]


def test_queues_of_higher_priority_come_first() -> None:
    there = EngineHarness(ruled({"high": QueueRule(priority=10), "low": QueueRule(priority=-10)}))
    low, plain, high = (there.submit(spec(8, queue=queue)) for queue in ("low", "default", "high"))
    there.join("a")
    for job in (high, plain, low):
        assert started(there) == [job]
        there.exit(job)


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_a_shorter_job_behind_one_that_asks_for_too_many_gpu_hours_starts(backfill: Backfill) -> None:
    there = EngineHarness(replace(ruled(users={"ada": QuotaTable(gpu_hours=5)}), backfill=backfill))
    there.join("a")
    there.submit(spec(2, time_limit_s=2 * HOUR_S))
    long = there.submit(spec(2, time_limit_s=HOUR_S))
    short = there.submit(spec(2, time_limit_s=HOUR_S / 2))
    there.tick()
    assert (there.nodes_of(long), there.nodes_of(short)) == ([], ["a"])


def test_gpu_hours_are_those_of_the_window() -> None:
    """Two GPUs for two hours are four of five; a week later they are none."""
    there = harness(users={"ada": QuotaTable(gpu_hours=5)})
    first = there.submit(spec(2, time_limit_s=2.5 * HOUR_S))
    assert started(there) == [first]
    second = there.submit(spec(2, time_limit_s=HOUR_S))
    assert started(there) == []
    there.start(first)
    there.now += 2 * HOUR_S
    there.exit(first)
    assert there.tick() == []
    assert "4 of 5 in use, and this asks for 2" in why(there, second)[1]
    again = there.restarted()
    again.join("a")
    assert again.tick() == []
    due = again.engine.next_at
    assert 7 * 24 * HOUR_S <= due - again.now <= 7 * 24 * HOUR_S + HOUR_S
    again.now = due - 1
    assert again.tick() == []
    again.now = due
    assert started(again) == [second]


def test_a_soft_limit_puts_a_tenant_behind_all_others() -> None:
    there = harness(users={"ada": QuotaTable(soft=QuotaAmounts(gpus=2))})
    ada = [there.submit(spec(2, priority=90)) for _ in range(4)]
    bob = [there.submit(spec(2), "bob") for _ in range(2)]
    assert started(there) == [ada[0], *bob, ada[1]]
    carl = there.submit(spec(2), "carl")
    there.exit(ada[1])
    assert started(there) == [carl]
    there.exit(carl)
    assert started(there) == [ada[2]]


def test_a_project_borrows_unused_quota_of_others() -> None:
    vision = ProjectQuotaTable(gpus=2, borrow=BorrowTable(gpus=4))
    there = harness(projects={"vision": vision, "speech": ProjectQuotaTable(gpus=5)})
    jobs = [there.submit(spec(1, project="vision")) for _ in range(7)]
    assert started(there) == jobs[:6]  # two of its own, four borrowed
    assert "project 'vision' on GPUs: 6 of 6" in why(there, jobs[6])[1]
    speech = [there.submit(spec(3, project="speech")) for _ in range(1)]
    assert started(there) == []
    there.exit(jobs[0])  # three are free: they go to speech
    assert started(there) == speech
    there.exit(jobs[1])  # four of vision's run, three of speech's: all seven are in use
    assert started(there) == []
    assert "with all that projects may lend each other" in why(there, jobs[6])[1]


def test_nothing_is_lent_while_a_job_of_the_lender_waits() -> None:
    there = harness(
        projects={"v": ProjectQuotaTable(gpus=1, borrow=BorrowTable(gpus=4)), "s": ProjectQuotaTable(gpus=7)}
    )
    mine = [there.submit(spec(1, project="v", time_limit_s=60.0)) for _ in range(2)]
    assert started(there) == mine
    wide = there.submit(spec(7, project="s"))
    late = there.submit(spec(1, project="v", time_limit_s=10.0))
    assert started(there) == []
    reason, sentence = why(there, late)
    assert reason is Reason.QUOTA
    assert sentence.startswith(f"nothing is lent while job {wide} waits: the quota of project 'v' on GPUs")


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_a_limit_set_while_jobs_wait_is_kept_to_and_lifted_at_once(backfill: Backfill) -> None:
    there = EngineHarness(replace(PIPELINE, backfill=backfill))
    jobs = [there.submit(spec(1)) for _ in range(4)]
    there.tell(inputs.SetQuota("user", "ada", Quota(Limits(running=1)), "root"))
    there.join("a")
    assert started(there) == jobs[:1]
    there.tell(inputs.SetQuota("user", "ada", Quota(Limits(running=3)), "root"))
    assert started(there) == jobs[1:3]
    there.tell(inputs.UnsetQuota("user", "ada", "root"))
    assert started(there) == jobs[3:]


def test_a_forecast_keeps_to_quotas() -> None:
    there = harness(users={"ada": QuotaTable(running=1)})
    jobs = [there.submit(spec(1, time_limit_s=100.0)) for _ in range(3)]
    told = forecast(fork(there.engine), there.now).starts
    assert [told[job].at - there.now for job in jobs] == [0, 100, 200]


BY_MEMORY = spec(gpu=GpuWish(memory_mib=20 * 1024), time_limit_s=HOUR_S)


@pytest.mark.parametrize(
    ("story", "hosts", "table", "asked", "many", "told"),
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
def test_a_share_of_a_gpu_by_its_memory_counts_for_what_it_takes(
    backfill: Backfill,
    story: str,
    hosts: list[dict[str, Any]],
    table: QuotaTable,
    asked: dict[str, Any],
    many: int,
    told: str,
) -> None:
    there = EngineHarness(replace(ruled(users={"*": table}), backfill=backfill))
    for name, host in zip("ab", hosts, strict=False):
        there.join(name, **host)
    jobs = [there.submit(replace(BY_MEMORY, **asked)) for _ in range(4)]
    for _ in range(2):
        started(there)
    running = [job for job in jobs if there.job(job).state is not JobState.QUEUED]
    assert running == jobs[:many], story
    assert told in why(there, jobs[many])[1]
    assert there.state.accounts.tenant(("user", "ada")).used[2] == 250 * many
    again = there.restarted()
    assert (
        again.state.accounts.tenant(("user", "ada")).used == there.state.accounts.tenant(("user", "ada")).used
    )


def test_what_a_share_by_memory_has_spent_is_remembered() -> None:
    there = harness(users={"ada": QuotaTable(gpu_hours=0.5)})
    first, second = there.submit(BY_MEMORY), there.submit(replace(BY_MEMORY, time_limit_s=2 * HOUR_S))
    assert started(there) == [first]
    there.start(first)
    there.now += HOUR_S
    there.exit(first)
    again = there.restarted()
    again.join("a")
    assert started(again) == []
    assert "0.25 of 0.5 in use, and this asks for 0.5" in why(again, second)[1]


def test_a_share_by_memory_of_more_than_may_be_had_is_refused() -> None:
    refused = harness(users={"*": QuotaTable(gpus=0.2)}).refuse(inputs.Submit(BY_MEMORY, "ada"))
    assert "on GPUs is 0.2, and this asks for 0.25" in refused.message
