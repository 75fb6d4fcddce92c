"""The tables [queues.NAME]: what each key does to jobs, from scheduler.toml to the decision of the engine."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from controller.config import ConfigRefused, load_text
from controller.core.explain.why_no_preemption import why_no_preemption
from controller.core.forecast.forecast import forecast, fork
from controller.core.model.decision.decision import Accepted, Refusal
from controller.core.model.inputs import agent_inputs, job_inputs, node_inputs
from controller.core.model.inputs.input import Requester
from controller.registry import build_pipeline
from controller.registry.checks.policy_summary import queue_policies
from tests.engine_harness import EngineHarness, spec
from wire.names import JobState, Reason


def under(text: str, nodes: int = 1) -> EngineHarness:
    """Nodes with eight GPUs each under this scheduler.toml."""
    harness = EngineHarness(build_pipeline(load_text(text, "scheduler.toml")))
    for number in range(nodes):
        harness.join(f"n{number + 1}")
    return harness


def refused(harness: EngineHarness, user: str = "ada", **asked: Any) -> Refusal:
    return harness.refuse(job_inputs.Submit(spec(**asked), user, asker=Requester(user)))


def accepted(harness: EngineHarness, user: str = "ada", **asked: Any) -> None:
    reply = harness.tell(job_inputs.Submit(spec(**asked), user, asker=Requester(user))).reply
    assert isinstance(reply, Accepted), reply


def problems(text: str) -> list[str]:
    """The mistakes that stop the controller, without their positions."""
    with pytest.raises(ConfigRefused) as caught:
        build_pipeline(load_text(text, "scheduler.toml"))
    return [str(each).removeprefix(f"{each.origin}: ") for each in caught.value.problems]


@pytest.mark.parametrize(
    "table", ["[queues.low]\nmax_priority", "[queues.low]\n[access.limits.queues.low]\npriority"]
)
def test_a_queue_caps_the_priority_that_users_may_request(table: str) -> None:
    harness = under(f'{table} = "LOW"')
    assert "at most LOW" in refused(harness, queue="low", priority=26).message
    accepted(harness, queue="low", priority=25)
    accepted(harness, priority=50)


def test_the_refusal_names_the_key_of_the_queue() -> None:
    harness = under("[queues.low]\nmax_priority = 10")
    assert refused(harness, queue="low", priority=11).message.endswith("by [queues.low] max_priority")


def test_a_priority_that_is_set_twice_and_differently_is_refused() -> None:
    text = '[queues.low]\nmax_priority = "LOW"\n[access.limits.queues.low]\npriority = '
    assert problems(text + '"HIGH"') == [
        "queues.low.max_priority: [access.limits.queues.low] sets another priority, HIGH "
        "(scheduler.toml:4). Leave out the key in [access.limits], which is the older place of this limit."
    ]
    build_pipeline(load_text(text + '"LOW"', "scheduler.toml"))


def test_the_default_project_of_a_queue_comes_before_that_of_the_user() -> None:
    harness = under(
        """
        [queues.batch]
        default_project = "sweeps"
        [queues.default]
        [projects.sweeps]
        [projects.vision]
        default_for = ["ada"]
        """
    )
    found = [
        harness.job(harness.submit(spec(**asked), user)).spec.project
        for asked, user in (
            ({"queue": "batch"}, "ada"),
            ({"queue": "batch", "project": "vision"}, "ada"),
            ({}, "ada"),
            ({}, "bob"),
        )
    ]
    assert found == ["sweeps", "vision", "vision", "default"]


def test_a_default_project_that_may_not_use_the_queue_is_refused() -> None:
    text = '[queues.batch]\nprojects = ["vision"]\ndefault_project = "speech"'
    assert problems(text) == [
        "queues.batch.default_project: project 'speech' may not use this queue. "
        "Add the project to `projects`."
    ]


def test_a_queue_refuses_jobs_with_too_few_or_too_many_gpus() -> None:
    harness = under("[queues.wide]\nmin_gpus_per_job = 2\nmax_gpus_per_job = 4")
    assert "at least 2 GPUs" in refused(harness, queue="wide", gpus=1).message
    assert "at most 4 GPUs" in refused(harness, queue="wide", gpus=8).message
    harness.submit(spec(4, queue="wide"))
    harness.submit(spec(8))
    assert "min_gpus_per_job is more than max_gpus_per_job" in "".join(
        problems("[queues.wide]\nmin_gpus_per_job = 5\nmax_gpus_per_job = 4")
    )


def running(harness: EngineHarness, user: str = "ada", **asked: Any) -> int:
    job = harness.submit(spec(**asked), user)
    harness.tick()
    harness.start(job)
    return job


PREEMPTING = "[preemption]\nstrategies = ['priority']\nmin_runtime_s = 0\n"


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            "[queues.book]\npreemptible = false",
            "no job on the nodes that it may use may be preempted for it: "
            "1 in queue book, which is not preemptible",
        ),
        (
            "[queues.book]\n[queues.default]\nmay_preempt = ['scavenge']\n[queues.scavenge]",
            "no job on the nodes that it may use may be preempted for it: "
            "1 in queue book, which is not in may_preempt of its queue",
        ),
        (
            "[queues.book]\n[queues.default]\nmay_preempt = []",
            "jobs in queue default preempt no jobs (may_preempt)",
        ),
        (
            "[queues.book]\nmin_runtime_s = 600",
            "jobs that could be preempted for it have run for less than 10m00s (min_runtime_s)",
        ),
    ],
)
def test_explain_names_the_queue_that_protects_a_job(table: str, sentence: str) -> None:
    harness = under(PREEMPTING + table)
    running(harness, gpus=8, queue="book", priority=10)
    waiting = harness.submit(spec(8, priority=100))
    harness.tick()
    cycle = harness.engine.profile_cycles.of(harness.job(waiting))
    assert why_no_preemption(cycle, harness.job(waiting), harness.now) == sentence


def test_no_suggestion_preempts_a_job_of_a_queue_that_is_not_preemptible() -> None:
    for table, planned in (("", True), ("preemptible = false", False)):
        harness = under(f"[queues.book]\n{table}")
        running(harness, gpus=8, queue="book", priority=10)
        waiting = harness.job(harness.submit(spec(8, priority=100)))
        assert (harness.engine.preemption_plan(waiting, harness.now)[0] is not None) == planned


@pytest.mark.parametrize("strategy", ["'fair'", "{ name = 'pressure', most = 10 }"])
def test_a_protected_queue_holds_against_every_strategy(strategy: str) -> None:
    for table, preempted in (("", True), ("preemptible = false", False)):
        harness = under(f"[preemption]\nstrategies = [{strategy}]\nmin_runtime_s = 0\n[queues.book]\n{table}")
        running(harness, gpus=8, queue="book", project="a", priority=10)
        waiting = harness.submit(spec(4, project="b"))
        harness.tick()
        assert bool(harness.job(waiting).claim) == preempted


def test_a_protected_queue_holds_against_reclaim_of_quota() -> None:
    text = """
        [quota]
        reclaim = "preempt"
        projects.a = { gpus = 4, borrow = { gpus = 4 } }
        projects.b = { gpus = 4 }
        [preemption]
        min_runtime_s = 0
        [queues.book]
        """
    for table, preempted in (("", True), ("preemptible = false", False)):
        harness = under(text + table)
        running(harness, gpus=4, queue="book", project="a")
        running(harness, gpus=4, queue="book", project="a")
        waiting = harness.submit(spec(4, project="b"))
        harness.tick()
        assert bool(harness.job(waiting).claim) == preempted


def test_a_job_of_a_protected_queue_is_not_moved() -> None:
    text = "[rebalance]\nmode = 'propose'\nmin_ratio = 0\n[preemption]\nmin_runtime_s = 0\n[queues.book]\n"
    for table, moved in (("", True), ("preemptible = false", False)):
        harness = under(text + table, nodes=2)
        for _ in range(2):
            running(harness, gpus=5, queue="book", checkpoint_signal="USR1")
        harness.tell(job_inputs.Cancel(2, "ada"))
        harness.exit(2, 0)
        harness.tell(node_inputs.Drain("n1", "root"))
        assert bool(harness.engine.rebalancer.proposals(harness.now)) == moved


def test_a_queue_that_does_not_exist_cannot_be_preempted() -> None:
    text = "[queues.default]\nmay_preempt = ['default', 'scavange']\n[queues.scavenge]"
    assert problems(text) == [
        "queues.default.may_preempt[1]: there is no queue 'scavange'. Did you mean 'scavenge'?"
    ]


def test_a_queue_limits_the_running_jobs_and_the_gpus_of_each_user() -> None:
    harness = under("[queues.book]\nmax_running_per_user = 2\n[queues.wide]\nmax_gpus_per_user = 3")
    for _ in range(2):
        running(harness, gpus=1, queue="book")
    third = harness.submit(spec(1, queue="book"))
    other = harness.submit(spec(1, queue="book"), "bob")
    elsewhere = harness.submit(spec(2, queue="wide"))
    wide = harness.submit(spec(2, queue="wide"))
    harness.tick()
    assert [bool(harness.nodes_of(job)) for job in (third, other, elsewhere, wide)] == [
        False,
        True,
        True,
        False,
    ]
    assert harness.why(third).reason is Reason.QUOTA
    assert harness.why(third).sentence == (
        "the limit of user 'ada' in queue 'book' on running jobs: 2 of 2 in use"
    )
    assert harness.why(wide).sentence == (
        "the limit of user 'ada' in queue 'wide' on GPUs: 2 of 3 in use, and this asks for 2"
    )
    harness.exit(1)
    harness.tick()
    assert harness.nodes_of(third) == ["n1"]
    assert (
        "the limit of user 'ada' in queue 'wide' on GPUs is 3"
        in refused(harness, queue="wide", gpus=4).message
    )


def test_a_queue_limits_the_waiting_and_running_jobs_of_each_user() -> None:
    harness = under("[queues.book]\nmax_jobs_per_user = 3\n[queues.default]")
    running(harness, gpus=8, queue="book")
    harness.submit(spec(8, queue="book"))
    waiting = harness.submit(spec(8))
    assert refused(harness, queue="book", array="0-1").message == (
        "user 'ada' has 2 jobs in queue 'book', and may have 3 jobs there"
    )
    harness.tell(job_inputs.Edit(waiting, "ada", {"queue": "book"}))
    assert harness.job(waiting).spec.queue == "book"
    harness.submit(spec(8, queue="book"), "bob")
    refused(harness, queue="book")
    harness.exit(1)
    harness.submit(spec(8, queue="book"))


def test_limits_on_users_of_a_queue_hold_after_a_restart_and_follow_a_reload() -> None:
    text = "[queues.book]\nmax_running_per_user = {}"
    harness = under(text.format(1))
    running(harness, gpus=1, queue="book")
    waiting = harness.submit(spec(1, queue="book"))
    again = harness.restarted()
    assert again.why(waiting).reason is Reason.QUOTA
    wider = harness.restarted(build_pipeline(load_text(text.format(2), "scheduler.toml")))
    wider.join("n1")
    wider.tick()
    assert wider.job(waiting).state is JobState.SCHEDULED
    without = harness.restarted(build_pipeline(load_text("", "scheduler.toml")))
    without.join("n1")
    without.tick()
    assert without.job(waiting).state is JobState.SCHEDULED


QUOTAS = """
[quota]
users."*" = { gpus = 2 }
projects.default = { gpus = 4 }
queues.scavenge = { gpus = 6 }
[queues.default]
[queues.scavenge]
"""


def test_a_queue_exempt_from_quotas_counts_for_no_user_and_no_project() -> None:
    for table, starts in (("", 2), ("exempt = ['quota']", 6)):
        harness = under(QUOTAS + table, nodes=2)
        jobs = [harness.submit(spec(1, queue="scavenge")) for _ in range(8)]
        harness.tick()
        assert sum(bool(harness.nodes_of(job)) for job in jobs) == starts
        own = harness.submit(spec(2))
        harness.tick()
        assert bool(harness.nodes_of(own)) == bool(table)
    plain = harness.restarted(build_pipeline(load_text(QUOTAS, "scheduler.toml")))
    assert plain.state.accounts.tenant(("user", "ada")).used[2] == 8_000
    assert harness.state.accounts.tenant(("user", "ada")).used[2] == 2_000


def test_reclaim_of_quota_leaves_exempt_jobs_out() -> None:
    text = """
        [quota]
        reclaim = "preempt"
        projects.a = { gpus = 4, borrow = { gpus = 4 } }
        projects.b = { gpus = 4 }
        [preemption]
        min_runtime_s = 0
        [queues.default]
        [queues.scavenge]
        exempt = ["quota"]
        """
    harness = under(text)
    running(harness, gpus=8, project="a", queue="scavenge")
    waiting = harness.submit(spec(4, project="b"))
    harness.tick()
    assert not harness.job(waiting).claim
    harness.exit(1)
    harness.tick()
    harness.start(waiting)
    running(harness, gpus=4, project="a")
    exempt = harness.submit(spec(4, project="b", queue="scavenge"))
    harness.tick()
    assert not harness.job(exempt).claim


def test_a_queue_exempt_from_fair_share_is_not_charged() -> None:
    text = "[preemption]\nstrategies = ['fair']\nmin_runtime_s = 0\n[queues.default]\n[queues.scavenge]\n{}"
    for table, charge in (("", 8.0), ("exempt = ['fair_share']", 0.0)):
        harness = under(text.format(table))
        held = running(harness, gpus=8, project="a", queue="scavenge")
        assert harness.job(held).charge == charge
        assert harness.state.shares.accounts[("a", "ada")].usage.rate == charge
        waiting = harness.submit(spec(4, project="b"))
        harness.tick()
        assert bool(harness.job(waiting).claim) == bool(charge)
        harness.exit(held)
        assert harness.state.shares.accounts[("a", "ada")].usage.rate == 0.0


@pytest.mark.parametrize(
    ("queue", "state"), [("book", JobState.CANCELLED), ("again", JobState.QUEUED), ("default", None)]
)
def test_each_queue_decides_what_happens_to_idle_jobs(queue: str, state: JobState | None) -> None:
    harness = under(
        """
        [queues.book]
        idle = "cancel"
        idle_grace_s = 10
        [queues.again]
        idle = "requeue"
        idle_grace_s = 10
        """
    )
    job = running(harness, gpus=1, queue=queue)
    harness.now += 3_600.0
    harness.tell(agent_inputs.GpusIdle(job, 1, harness.now - 1_800.0))
    harness.now += 10.0
    harness.tell(agent_inputs.GpusIdle(job, 1, harness.now - 1_810.0))
    assert (harness.job(job).stopping is Reason.IDLE) == (state is not None)
    if state is not None:
        harness.exit(job, None, signal=15)
        assert harness.job(job).state is state


NIGHT = """
[scheduler]
time_zone = "Europe/Berlin"
backfill = "{backfill}"
[queues.night]
hours = ["20:00-08:00"]
[queues.default]
"""
NOON = datetime(2026, 11, 16, 12, tzinfo=ZoneInfo("Europe/Berlin")).timestamp()


@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
def test_jobs_outside_the_hours_of_their_queue_wait_until_they_begin(backfill: str) -> None:
    harness = EngineHarness(build_pipeline(load_text(NIGHT.format(backfill=backfill), "s.toml")), now=NOON)
    harness.join("n1")
    closed = harness.submit(spec(8, queue="night", time_limit_s=36_000.0, priority=90))
    harness.tick()
    assert harness.why(closed).reason is Reason.HOURS
    assert harness.why(closed).sentence == (
        "queue 'night' starts jobs only 20:00-08:00 (Europe/Berlin): the next time in 8h00m"
    )
    other = running(harness, gpus=8, time_limit_s=3_600.0)
    assert harness.nodes_of(other) == ["n1"]
    assert forecast(fork(harness.engine), harness.now, (), closed).starts[closed].at == NOON + 8 * 3_600.0
    harness.exit(other)
    again = harness.restarted()
    again.join("n1")
    again.tick()
    assert again.engine.next_at == NOON + 8 * 3_600.0
    again.tick_at(NOON + 8 * 3_600.0 - 1.0)
    assert not again.nodes_of(closed)
    again.tick_at(NOON + 8 * 3_600.0)
    assert again.nodes_of(closed) == ["n1"]


def test_hours_do_not_depend_on_the_time_zone_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for zone in ("Asia/Tokyo", "America/New_York"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        harness = EngineHarness(build_pipeline(load_text(NIGHT.format(backfill="easy"), "s.toml")), now=NOON)
        closed = harness.state.quotas.closed("night", NOON)
        assert closed is not None
        assert closed.opens_at == NOON + 8 * 3_600.0
    monkeypatch.undo()
    time.tzset()


def test_a_deadline_that_the_hours_of_the_queue_rule_out_is_refused() -> None:
    harness = EngineHarness(build_pipeline(load_text(NIGHT.format(backfill="easy"), "s.toml")), now=NOON)
    harness.join("n1")
    late = refused(harness, queue="night", time_limit_s=3_600.0, deadline_at=NOON + 8.5 * 3_600.0)
    assert late.message.startswith("can never be met: queue 'night' starts jobs only")
    harness.submit(spec(queue="night", time_limit_s=3_600.0, deadline_at=NOON + 9 * 3_600.0))


def test_hours_that_cannot_be_read_are_refused() -> None:
    text = "[queues.a]\nhours = ['mon-fri 20:00-08:00', 'always']\n[scheduler]\ntime_zone = 'Mars'"
    zone, hours = sorted(problems(text), reverse=True)
    assert "there is no time zone 'Mars'" in zone
    assert hours.startswith("queues.a.hours[1]: 'always' is not a time of the week")


def test_the_policy_of_a_queue_in_words() -> None:
    config = load_text(
        """
        [queues.book]
        max_priority = "HIGH"
        default_project = "vision"
        max_gpus_per_job = 1
        max_running_per_user = 2
        max_jobs_per_user = 9
        preemptible = false
        idle = "cancel"
        idle_after_s = 7200
        hours = ["mon-fri 08:00-20:00"]
        [queues.scavenge]
        min_gpus_per_job = 1
        may_preempt = []
        min_runtime_s = 60
        exempt = ["quota", "fair_share"]
        """,
        "scheduler.toml",
    )
    found = {each.queue: each.rules for each in queue_policies(config, build_pipeline(config))}
    assert found == {
        "book": (
            "job priority at most HIGH",
            "jobs without --project go to vision",
            "at most 1 GPU per job",
            "each user at most 2 running jobs, 9 waiting or running jobs",
            "starts jobs only mon-fri 08:00-20:00 (UTC)",
            "its jobs are never preempted or moved",
            "jobs with idle GPUs are flagged after 2h00m and cancelled 10m00s later",
        ),
        "default": (),
        "scavenge": (
            "at least 1 GPU per job",
            "its jobs may be preempted after 1m00s",
            "its jobs preempt no jobs",
            "exempt from the quotas of users and projects",
            "not charged to shares",
        ),
    }
