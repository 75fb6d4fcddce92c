"""Quotas and weights by hours of the week: the tables [hours.NAME]."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import starmap
from typing import Any

import pytest

from controller.config import ConfigRefused, load_text
from controller.core.engine import Engine
from controller.core.forecast.forecast import forecast, fork
from controller.core.model.events.event import Event
from controller.core.model.events.tenants import HoursChanged
from controller.core.model.inputs import controller_inputs, job_inputs, policy_inputs
from controller.core.model.job import NEVER
from controller.core.pipeline.pipeline import Pipeline
from controller.core.state.state import State
from controller.registry import build_pipeline
from controller.registry.hours import hours_sentences, timetable_of
from controller.sim.cluster import nodes_of
from controller.sim.replay.history import history_of
from controller.sim.replay.replayer import Replay
from controller.sim.simulation import Simulation
from controller.sim.trace_job import TraceJob
from tests.engine_harness import EngineHarness, spec
from wire.cluster.quota import Limits, Quota
from wire.names import Reason

HOUR = 3_600.0
MONDAY = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()
"""A Monday at noon."""

NIGHT = """
[scheduler]
time_zone = "UTC"
[quota.projects.batch]
gpus = 8
[hours.night]
hours = ["20:00-08:00"]
[hours.night.quota.projects.batch]
gpus = 16
[hours.night.quota.queues.notebooks]
gpus = 0
"""


def pipeline_of(text: str = NIGHT) -> Pipeline:
    return build_pipeline(load_text(text, "scheduler.toml"))


def harness_of(text: str = NIGHT, nodes: str = "abcd") -> EngineHarness:
    """Nodes with eight GPUs each, on a Monday at noon."""
    harness = EngineHarness(pipeline_of(text), now=MONDAY)
    for name in nodes:
        harness.join(name)
    harness.tick()
    return harness


def job(gpus: int = 8, hours: float = 100.0, **more: Any) -> Any:
    return spec(gpus, cpu_milli=1_000, memory_mib=1_024, time_limit_s=hours * HOUR, **more)


def running(harness: EngineHarness, *jobs: int) -> list[bool]:
    return [bool(harness.nodes_of(each)) for each in jobs]


def test_the_limit_of_the_night_starts_a_job_without_another_input() -> None:
    harness = harness_of()
    one, two = (harness.submit(job(project="batch")) for _ in range(2))
    harness.tick()
    assert running(harness, one, two) == [True, False]
    assert harness.why(two).reason is Reason.QUOTA
    assert harness.engine.next_at == MONDAY + 8 * HOUR
    harness.tick_at(harness.engine.next_at)
    assert running(harness, one, two) == [True, True]
    changed = [(each.at, each.tables) for each in harness.events if isinstance(each, HoursChanged)]
    assert changed == [(MONDAY + 8 * HOUR, ("night",))]
    harness.tick_at(MONDAY + 20 * HOUR)
    assert running(harness, one, two) == [True, True]  # running jobs go on
    assert harness.state.hours == ()
    harness.exit(two)
    harness.tick()
    three = harness.submit(job(project="batch"))
    harness.tick()
    assert running(harness, three) == [False]


def test_a_queue_that_is_closed_at_night_and_its_reason() -> None:
    harness = harness_of()
    harness.tick_at(MONDAY + 8 * HOUR)
    asked = harness.submit(job(1, queue="notebooks"))
    harness.tick()
    assert running(harness, asked) == [False]
    why = harness.why(asked)
    assert why.reason is Reason.QUOTA
    assert "limits in force: [hours.night]; in 12h00m: [quota]" in why.notes
    harness.tick_at(MONDAY + 20 * HOUR)
    assert running(harness, asked) == [True]


def test_a_job_that_only_the_night_allows_is_accepted_by_day() -> None:
    harness = harness_of()
    wide = harness.submit(job(16, nodes=2, project="batch"))
    harness.tick()
    assert running(harness, wide) == [False]
    refusal = harness.refuse(job_inputs.Submit(job(24, nodes=3, project="batch"), "ada"))
    assert "quota of project 'batch' on GPUs" in refusal.message
    harness.tick_at(MONDAY + 8 * HOUR)
    assert running(harness, wide) == [True]


def test_the_forecast_uses_the_limits_of_the_planned_time() -> None:
    harness = harness_of()
    one, two = (harness.submit(job(project="batch")) for _ in range(2))
    harness.tick()
    found = forecast(fork(harness.engine), harness.now, until=two)
    assert found.starts[two].at == MONDAY + 8 * HOUR
    assert running(harness, one, two) == [True, False]


def test_the_forecast_waits_for_the_night_on_an_idle_cluster() -> None:
    harness = harness_of()
    wide = harness.submit(job(16, nodes=2, project="batch"))
    harness.tick()
    found = forecast(fork(harness.engine), harness.now, until=wide)
    assert found.starts[wide].at == MONDAY + 8 * HOUR


def test_a_forecast_of_a_job_that_never_starts_ends() -> None:
    harness = harness_of(nodes="a")
    harness.tell_drain("a")
    waits = harness.submit(job(project="batch"))
    found = forecast(fork(harness.engine), harness.now, until=waits)
    assert found.starts == {}
    assert found.whole or found.known_until > harness.now + 7 * 24 * HOUR


def test_a_job_without_a_limit_does_not_prolong_a_forecast_over_the_hours() -> None:
    harness = harness_of(nodes="a")
    endless = harness.submit(spec(1, project="batch", time_limit_s=None))
    harness.tick()
    waits = harness.submit(job(project="other"))
    harness.tick()
    assert running(harness, endless, waits) == [True, False]
    found = forecast(fork(harness.engine), harness.now, until=waits, steps=60)
    assert (found.starts, found.whole, found.known_until) == ({}, False, NEVER)


def test_an_order_of_an_operator_comes_before_the_hours() -> None:
    harness = harness_of()
    harness.tick_at(MONDAY + 8 * HOUR)
    harness.tell(policy_inputs.SetQuota("project", "batch", Quota(Limits(gpus=24)), "root"))
    jobs = [harness.submit(job(project="batch")) for _ in range(4)]
    harness.tick()
    assert running(harness, *jobs) == [True, True, True, False]
    assert harness.state.quotas.quota(("project", "batch")).hard.gpus == 24


def test_the_first_table_of_the_file_applies() -> None:
    text = """
    [hours.weekend]
    hours = ["sat-sun"]
    quota.users."*".gpus = 4
    [hours.night]
    hours = ["20:00-08:00"]
    quota.users."*" = { gpus = 2, running = 3 }
    """
    timetable = timetable_of(load_text(text, "scheduler.toml"))
    saturday = MONDAY + 5 * 24 * HOUR + 9 * HOUR
    assert timetable.in_force(saturday) == ("weekend", "night")
    harness = harness_of(text)
    for at, gpus, most in ((MONDAY + 9 * HOUR, 2, 3), (saturday - 9 * HOUR, 4, None), (saturday, 4, 3)):
        harness.tick_at(at)
        limits = harness.state.quotas.quota(("user", "ada")).hard
        assert (limits.gpus, limits.running) == (gpus, most)
    combinations = {tuple(each.name for each in tables) for tables in timetable.combinations()}
    assert combinations == {(), ("weekend",), ("night",), ("weekend", "night")}


def test_changes_at_the_end_of_summer_time() -> None:
    text = '[scheduler]\ntime_zone = "Europe/Berlin"\n[hours.night]\nhours = ["20:00-08:00"]\n'
    timetable = timetable_of(load_text(text, "scheduler.toml"))
    saturday = datetime(2026, 10, 24, 12, tzinfo=UTC).timestamp()
    evening = timetable.next_change(saturday)
    assert datetime.fromtimestamp(evening, UTC).isoformat() == "2026-10-24T18:00:00+00:00"
    assert timetable.next_change(evening) - evening == 13 * HOUR
    always = timetable_of(load_text("[hours.x]\nhours = ['mon-sun']", "scheduler.toml"))
    assert always.next_change(saturday) == float("inf")


WEIGHTS = """
[scheduler]
order = "fair"
time_zone = "UTC"
[fair_share]
weights = { batch = 1, online = 4 }
[hours.night]
hours = ["20:00-08:00"]
weights = { batch = 16 }
"""


def first_project(harness: EngineHarness) -> str:
    """The project of the job that starts on the only free node."""
    jobs = {name: harness.submit(job(project=name)) for name in ("batch", "online")}
    harness.tick()
    [found] = [name for name, number in jobs.items() if harness.nodes_of(number)]
    for number in jobs.values():
        if harness.nodes_of(number):
            harness.start(number)
            harness.exit(number)
        else:
            harness.tell(job_inputs.Cancel(number, "root"))
    return found


def test_weights_of_the_night() -> None:
    harness = harness_of(WEIGHTS, "a")
    assert first_project(harness) == "online"
    accounts = harness.state.shares.accounts
    assert accounts["batch",].weight == 1.0
    version = harness.state.shares.version
    harness.tick_at(MONDAY + 9 * HOUR)
    assert accounts["batch",].weight == 16.0
    assert accounts[()].weights == 20.0
    assert harness.state.shares.version > version
    assert first_project(harness) == "batch"
    harness.tell(policy_inputs.SetShare("batch", 2.0, "root"))
    assert accounts["batch",].weight == 2.0  # an operator's weight comes first
    harness.tick_at(MONDAY + 21 * HOUR)
    assert accounts["batch",].weight == 2.0
    assert accounts[()].weights == 6.0


def test_the_same_after_a_restart_and_under_a_new_configuration() -> None:
    harness = harness_of()
    harness.tick_at(MONDAY + 9 * HOUR)
    after = harness.restarted()
    assert after.state.hours == ("night",)
    assert after.state.quotas.quota(("project", "batch")).hard.gpus == 16
    after.now = harness.now
    after.tick()
    assert [each for each in after.events if isinstance(each, HoursChanged)] == []
    harness.tell(
        controller_inputs.ApplyConfig("digest", "root", pipeline_of("[quota.projects.batch]\ngpus = 3"))
    )
    harness.tick()
    assert harness.state.hours == ()
    assert harness.state.quotas.quota(("project", "batch")).hard.gpus == 3
    harness.tell(controller_inputs.ApplyConfig("digest", "root", pipeline_of(NIGHT.replace("= 16", "= 32"))))
    harness.tick()
    assert harness.state.quotas.quota(("project", "batch")).hard.gpus == 32


def test_replay_of_a_journal_gives_the_same_changes() -> None:
    text = NIGHT + "[hours.night.quota.users.'*']\nrunning = 3\n[quota.users.'*']\nrunning = 2\n"
    cluster = nodes_of(4, 8, 64, 512 * 1024, "H100")
    jobs = starmap(
        TraceJob,
        (
            (number + 1, 2_700.0 * number, job(4, 6, project="batch"), HOUR * (2 + number % 5))
            for number in range(60)
        ),
    )
    journal: list[Event] = []
    pipeline = pipeline_of(text)
    simulation = Simulation(Engine(pipeline, State(pipeline.order)), journal.append)
    for name, facts in cluster.nodes.items():
        simulation.add_node(name, facts)
    simulation.run_pass()
    simulation.add_work(jobs)
    simulation.run()
    again: list[Event] = []
    Replay(history_of(journal), pipeline_of(text), observe=again.append).run()
    assert again == journal
    assert len([each for each in journal if isinstance(each, HoursChanged)]) > 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[hours.x]", "hours.x.hours: is missing"),
        ("[hours.x]\nhours = []", "hours.x.hours: "),
        ("[hours.x]\nhours = ['8-20']", "'8-20' is not a time of the week"),
        ("[hours.x]\nhours = ['sat']\nquota.users.ada.gpu = 3", "there is no such key. Did you mean 'gpus'?"),
        ("[hours.x]\nhours = ['sat']\nquota.project.a.gpus = 3", "Did you mean 'projects'?"),
        ("[hours.x]\nhours = ['sat']\nquota.users.ada.gpus = -3", "gpus must not be negative"),
        ("[hours.x]\nhours = ['sat']\nweights = { a = 0 }", "hours.x.weights.a: must be greater than 0"),
        ("[hours.x]\nhours = ['sat']\nquotas = {}", "there is no such key. Did you mean 'quota'?"),
    ],
)
def test_mistakes(text: str, told: str) -> None:
    with pytest.raises(ConfigRefused) as refused:
        pipeline_of(text)
    assert told in str(refused.value)
    assert str(refused.value).count("\n") == 0


def test_sentences_of_config_check() -> None:
    config = load_text(NIGHT + WEIGHTS[WEIGHTS.index("[hours") :].replace("night", "late"), "scheduler.toml")
    assert hours_sentences(config) == (
        "night, 20:00-08:00 (UTC): quota of project batch, quota of queue notebooks",
        "late, 20:00-08:00 (UTC): weight 16 of batch",
    )
