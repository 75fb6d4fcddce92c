"""Alarms of jobs that wait much longer than usual: the usual waits by kind, and when an alarm is due."""

from __future__ import annotations

import pytest

from controller.core.accounting import wait_alarms
from controller.core.accounting.wait_alarms import LEAST_S, RECENT, WaitAlarms, wait_group_of
from controller.core.model.events.queued import WaitAlarmed
from controller.core.model.inputs import job_inputs
from controller.core.model.inputs.controller_inputs import NoteLongWait
from tests.engine_harness import EngineHarness, spec

HOUR_S = 3_600.0


def _harness(alarms: WaitAlarms, wait_s: float) -> EngineHarness:
    """A node on which one job has started after this wait and runs, while another job waits."""
    harness = EngineHarness()
    harness.join("n1", gpus=8)
    first = harness.submit(spec(8, hold=True))
    harness.tell(job_inputs.Release(first, "ann"))
    harness.now += wait_s
    harness.tick()
    alarms.observe(harness.state, harness.events)
    harness.submit(spec(8))
    return harness


def test_alarm_is_due_after_the_factor_times_the_median_of_the_kind() -> None:
    alarms = WaitAlarms()
    harness = _harness(alarms, 0.5 * HOUR_S)
    median_s = alarms.usual_s(("default", 4))
    assert median_s == pytest.approx(0.5 * HOUR_S, rel=0.12)
    assert median_s is not None
    waits = harness.state.jobs[2].ready_at
    assert not [*alarms.due(harness.state, 10, waits + 9.9 * median_s)]
    assert [*alarms.due(harness.state, 10, waits + 10.1 * median_s)] == [NoteLongWait(2, median_s)]
    assert not [*alarms.due(harness.state, 0, waits + 1e9)]


def test_short_waits_and_kinds_without_waits_give_no_alarm() -> None:
    alarms = WaitAlarms()
    harness = _harness(alarms, 0.0)
    narrow = harness.submit(spec(1))
    assert wait_group_of(harness.state.jobs[narrow]) == ("default", 1)
    waits = harness.state.jobs[2].ready_at
    assert not [*alarms.due(harness.state, 10, waits + LEAST_S - 1)]
    assert [each.job for each in alarms.due(harness.state, 10, waits + LEAST_S + 1)] == [2]


def test_alarm_is_recorded_once_and_survives_a_restart() -> None:
    harness = _harness(WaitAlarms(), 0.0)
    harness.now += 2 * HOUR_S
    for number in (1, 2, 2, 99):
        harness.tell(NoteLongWait(number, 60.0))
    found = [event for event in harness.events if isinstance(event, WaitAlarmed)]
    assert [(event.job, event.waited_s, event.usual_s) for event in found] == [(2, 2 * HOUR_S, 60.0)]
    assert any("wait_alarm" in note for note in harness.why(2).notes)
    alarms = WaitAlarms()
    alarms.observe(harness.state, harness.events)
    assert not [*alarms.due(harness.state, 1, harness.now + 1e6)]


def test_waits_are_stored_and_recent_ones_count_more() -> None:
    alarms = WaitAlarms()
    harness = _harness(alarms, 0.0)
    kind = wait_group_of(harness.state.jobs[1])
    for _ in range(2 * RECENT):
        alarms._add(kind, 10.0)
    for _ in range(RECENT):
        alarms._add(kind, 1_000.0)
    assert alarms.usual_s(kind) == pytest.approx(1_000.0, rel=0.12)
    loaded = WaitAlarms()
    loaded.load(alarms.take_changed())
    assert loaded.usual_s(kind) == alarms.usual_s(kind)
    assert alarms.take_changed() == []


def test_number_of_kinds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_alarms, "MOST_GROUPS", 3)
    alarms = WaitAlarms()
    for number in range(5):
        alarms._add((f"q{number}", 1), 10.0)
    stored = {row.name: row.body for row in alarms.take_changed()}
    assert stored['["q0", 1]'] is None
    assert [alarms.usual_s((f"q{number}", 1)) is None for number in range(5)] == [
        True,
        True,
        False,
        False,
        False,
    ]
