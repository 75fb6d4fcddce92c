"""Processes of questions get a part of their time limit as CPU time, also on a busy machine."""

from __future__ import annotations

import time

from controller.questions.engine_copy.deadline import Deadline
from controller.questions.engine_copy.forked_processes import Fork

FAR_S = 3600.0


def compute(cpu_s: float) -> str:
    while time.process_time() < cpu_s:
        pass
    return "done"


def test_a_process_continues_after_the_soonest_end_until_it_had_its_cpu_time() -> None:
    now = time.monotonic()
    assert Fork(lambda: compute(0.1)).result(Deadline(now, now + FAR_S, cpu_s=FAR_S)) == "done"
    assert Fork(lambda: compute(FAR_S)).result(Deadline(now, now + FAR_S, cpu_s=0.05)) is None


def test_a_process_without_cpu_time_stops_at_the_latest_end() -> None:
    now = time.monotonic()
    assert Fork(lambda: time.sleep(FAR_S)).result(Deadline(now, now + 0.05, cpu_s=FAR_S)) is None


def test_before_the_soonest_end_cpu_time_does_not_count() -> None:
    now = time.monotonic()
    assert Fork(lambda: compute(0.05)).result(Deadline(now + FAR_S, now + FAR_S, cpu_s=0.0)) == "done"


def test_a_question_ends_at_its_time_limit_or_some_seconds_later() -> None:
    short, long = Deadline.after(1.0), Deadline.after(60.0)
    assert short.latest - short.soonest == 3.0
    assert long.latest - long.soonest == 8.0
    moved = short.later(0.5)
    assert (moved.soonest, moved.latest) == (short.soonest + 0.5, short.latest + 0.5)
