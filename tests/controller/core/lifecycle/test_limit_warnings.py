"""Warnings before the time limit ends a job: when they come, and where."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.core.forecast.forecast import forecast, fork
from controller.core.model.events.attempts import EndWarned
from controller.core.model.inputs import job_inputs
from controller.core.model.job import NEVER
from controller.core.model.time_limits import TimeLimitRules
from tests.engine_harness import PIPELINE, EngineHarness, spec
from wire.agent.orders import Note
from wire.job.start_conditions import Restart, RestartWhen
from wire.names import Reason

NOW, HOUR = 1_000.0, 3_600.0


def running(limit: float | None, rules: TimeLimitRules | None = None, nodes: int = 1) -> EngineHarness:
    """Job 1 runs since NOW."""
    harness = EngineHarness(replace(PIPELINE, limits=rules or TimeLimitRules()))
    for node in "abc"[:nodes]:
        harness.join(node)
    harness.submit(spec(8 * nodes, nodes=nodes, time_limit_s=limit))
    harness.tick()
    harness.start(1)
    return harness


def warnings(harness: EngineHarness) -> list[EndWarned]:
    return [event for event in harness.events if isinstance(event, EndWarned)]


def notes(harness: EngineHarness) -> list[str]:
    return [sent.frame.text for sent in harness.sent if isinstance(sent.frame, Note)]


@pytest.mark.parametrize(
    ("limit", "warning_s", "at"),
    [
        (10 * HOUR, 600.0, 10 * HOUR - 600),
        (HOUR, 600.0, HOUR - 360),
        (HOUR, 0.0, NEVER),
        (9.0, 600.0, NEVER),
        (None, 600.0, NEVER),
    ],
    ids=["configured", "a tenth", "off", "too short", "no limit"],
)
def test_warning_comes_so_long_before_the_end(limit: float | None, warning_s: float, at: float) -> None:
    harness = running(limit, TimeLimitRules(warning_s=warning_s))
    assert harness.engine.limit_warnings.next_at == (at if at == NEVER else NOW + at)


def test_warning_is_an_event_a_note_on_each_node_and_a_sentence() -> None:
    harness = running(HOUR, nodes=2)
    assert "time limit" not in harness.why(1).sentence
    harness.tick_at(NOW + HOUR - 360)
    assert warnings(harness) == [
        EndWarned(1, harness.now, 1, NOW + HOUR, Reason.TIME_LIMIT, "its time limit")
    ]
    assert notes(harness) == 2 * [
        "its time limit of 1h00m ends it in 6m00s; "
        "'corral job set 1 --time +1h' extends it if that delays no other job"
    ]
    assert harness.why(1).sentence == "running on a, b; its time limit of 1h00m ends it in 6m00s"
    harness.tick_at(NOW + HOUR - 1)
    assert len(warnings(harness)) == 1
    again = harness.restarted()
    assert again.engine.limit_warnings.next_at == NEVER, "it was warned before the restart"


def test_extended_job_is_warned_again_before_its_new_end() -> None:
    harness = running(HOUR)
    harness.tick_at(NOW + HOUR - 360)
    harness.tell(job_inputs.Edit(1, "root", {"time_limit_s": 3 * HOUR}))
    assert "ends it in" not in harness.why(1).sentence
    assert harness.engine.next_at == NOW + 3 * HOUR - 600
    harness.tick_at(NOW + 3 * HOUR - 600)
    assert [event.ends_at for event in warnings(harness)] == [NOW + HOUR, NOW + 3 * HOUR]


def test_ended_and_stopped_jobs_are_not_warned() -> None:
    for end in (lambda harness: harness.exit(1), lambda harness: harness.tell(job_inputs.Cancel(1, "ada"))):
        harness = running(HOUR)
        end(harness)
        assert harness.engine.limit_warnings.next_at == NEVER
        harness.tick_at(NOW + HOUR - 100)
        assert warnings(harness) == []


def test_next_attempt_is_warned_too() -> None:
    harness = running(HOUR)
    harness.tick_at(NOW + HOUR - 360)
    harness.tell(job_inputs.Requeue(1, "ada"))
    harness.exit(1, None, signal=15, why="requeued")
    harness.tick()
    harness.start(1)
    assert harness.engine.limit_warnings.next_at == harness.now + HOUR - 360


def test_forecasts_do_not_stop_at_warnings() -> None:
    harness = running(HOUR)
    waiting = harness.submit(spec(8, time_limit_s=HOUR))
    moments: list[float] = []
    found = forecast(fork(harness.engine), NOW, going=lambda moment, _: bool(moments.append(moment)) or True)
    assert found.starts[waiting].at == NOW + HOUR
    assert moments == [NOW + HOUR]


def after_limit(harness: EngineHarness, **asked: Any) -> str:
    """The text for the owner of a job that its time limit of one hour has ended."""
    job = harness.submit(spec(1, **{"time_limit_s": HOUR, **asked}))
    harness.tick()
    harness.start(job)
    harness.now += HOUR
    harness.exit(job, None, signal=15, why="time_limit")
    assert harness.job(job).reason is Reason.TIME_LIMIT
    return harness.why(job).sentence


def idle() -> EngineHarness:
    harness = EngineHarness(PIPELINE)
    harness.join("a")
    return harness


def test_job_that_its_limit_has_ended_is_told_what_to_do() -> None:
    assert after_limit(idle()) == (
        "time limit: it ran its whole limit of 1h00m; submit it again with a longer limit, such as --time "
        "120m; with checkpoints (--checkpoint-signal, --checkpoint-dir) the next run could continue from the "
        "last one, and start earlier with --time-min"
    )
    saves = after_limit(idle(), checkpoint_signal="USR1", checkpoint_dir="/ckpt")
    assert saves.endswith("such as --time 120m")


def test_run_time_of_similar_jobs_is_in_the_advice() -> None:
    harness = idle()
    for _ in range(5):
        job = harness.submit(spec(1, name="train", time_limit_s=9 * HOUR))
        harness.tick()
        harness.start(job)
        harness.now += 2.5 * HOUR
        harness.exit(job)
    longer = after_limit(harness, name="train")
    assert "similar jobs ran up to 2h30m: submit it again with a longer limit, such as --time 180m" in longer
    harness = idle()
    for _ in range(5):
        job = harness.submit(spec(1, name="train", time_limit_s=HOUR))
        harness.tick()
        harness.start(job)
        harness.now += HOUR / 4
        harness.exit(job)
    hung = after_limit(harness, name="train")
    assert "similar jobs ended within 15m00s: look at its output before another run" in hung
    assert "such as --time" not in hung


def test_requeued_job_gets_no_advice() -> None:
    again = after_limit_requeued()
    assert "submit it again" not in again
    assert "restart 1 of 2" in again


def after_limit_requeued() -> str:
    harness = idle()
    job = harness.submit(spec(1, time_limit_s=HOUR, restart=Restart(RestartWhen.ON_FAILURE, 2, delay_s=60.0)))
    harness.tick()
    harness.start(job)
    harness.exit(job, None, signal=15, why="time_limit")
    return harness.job(job).detail
