"""Queues and quotas as stories: who may submit what, who has to wait for whom, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core import inputs
from controller.core.accounts import HOUR_S
from controller.core.plugin import Pipeline
from controller.core.quotas import QueueRule, Rules
from controller.plugins.quotas.local import Local, ProjectTable, Table
from tests.worlds import PIPELINE, World, spec
from wire.quota import UNLIMITED, Limits, Quota

QUEUES = {
    "short": QueueRule(max_time_limit_s=7200, default_time_limit_s=3600, max_running=2),
    "vision": QueueRule(projects=("vision",), users=("ada", "bob"), select={"pool": "a"}),
}


def ruled(rules: dict[str, QueueRule] | None = None, **tables: Any) -> Pipeline:
    """The usual pipeline with these queues and quotas."""
    return replace(PIPELINE, rules=Rules(rules or {}, Local(**tables)))


def world(rules: dict[str, QueueRule] | None = None, **tables: Any) -> World:
    """One node with eight GPUs under these rules."""
    made = World(ruled(rules, **tables))
    made.join("a", labels={"pool": "a"})
    return made


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
def test_what_a_queue_does_not_take(
    asked: dict[str, Any], user: str, where: str, told: str, hint: str
) -> None:
    refused = world(QUEUES).refuse(inputs.Submit(spec(**asked), user))
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
def test_what_a_queue_gives(asked: dict[str, Any], limit: float | None, selector: dict[str, str]) -> None:
    there = World(ruled(QUEUES))
    job = there.submit(spec(**asked))
    assert there.job(job).spec.time_limit_s == limit
    assert there.job(job).spec.selector == selector


def test_without_any_queue_every_name_is_one() -> None:
    there = world()
    assert there.job(there.submit(spec(queue="whatever"))).spec.queue == "whatever"


@pytest.mark.parametrize(
    ("tables", "asked", "told"),
    [
        ({"users": {"ada": Table(gpus=2)}}, {"gpus": 4}, "user 'ada' on GPUs is 2, and this asks for 4"),
        ({"users": {"*": Table(gpus=0.5)}}, {"gpus": 1}, "user 'ada' on GPUs is 0.5, and this asks for 1"),
        ({"projects": {"default": ProjectTable(memory="1G")}}, {"memory_mib": 2048}, "memory is 1G"),
        ({"queues": {"*": Table(cpus=2)}}, {"cpu_milli": 3000}, "queue 'default' on CPUs is 2"),
        ({"users": {"ada": Table(running=0)}}, {}, "running jobs is 0"),
        (
            {"users": {"ada": Table(gpu_hours=10)}},
            {"gpus": 4, "time_limit_s": 3 * HOUR_S},
            "GPU-hours is 10, and this asks for 12",
        ),
        ({"users": {"ada": Table(gpu_hours=100)}}, {"gpus": 1}, "GPU-hours is 100, and this asks for 168"),
    ],
)
def test_what_could_never_start_is_refused_at_once(
    tables: dict[str, Any], asked: dict[str, Any], told: str
) -> None:
    refused = world(**tables).refuse(inputs.Submit(spec(**asked), "ada"))
    assert refused.code == "over_quota"
    assert refused.message.startswith("can never start: ")
    assert told in refused.message


def test_a_table_of_ones_own_says_only_what_it_says() -> None:
    there = world(users={"*": Table(gpus=2, queued=1), "ada": Table(gpus=4)})
    there.submit(spec(gpus=4))
    assert "queued jobs: 1 of 1" in there.refuse(inputs.Submit(spec(), "ada")).message
    there.refuse(inputs.Submit(spec(gpus=4), "bob"))


def test_queued_jobs_are_counted_as_they_come_and_go() -> None:
    there = world(users={"*": Table(queued=3)})
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


def test_an_array_is_taken_whole_or_not_at_all() -> None:
    there = world(users={"*": Table(queued=5)})
    refused = there.refuse(inputs.Submit(spec(array="0-5"), "ada"))
    assert "0 of 5 in use, and these are 6 more" in refused.message
    there.submit(spec(array="0-4"))
    there.refuse(inputs.Submit(spec(), "ada"))


def test_a_quota_that_is_set_holds_at_once_and_after_a_restart() -> None:
    there = world(users={"*": Table(queued=1)})
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
def test_what_is_no_quota(given: inputs.Input, where: str) -> None:
    assert world().refuse(given).where == where
