"""The attempts of a job, found in its events, and the timeline of the job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tui.recorded import NOW, job, life
from tui.job.attempts import attempt_chart, attempt_lines, attempts, timeline
from tui.look.styled_lines import length
from wire.api.forecasts import Explanation
from wire.api.reasons import Why
from wire.names import JobState, Reason

WAITING = job(10, submitted_at=NOW - 17_400)
WHY = Why(Reason.RESOURCES, "")


def text(pieces: list[tuple[str, str]]) -> str:
    return "".join(part for part, _ in pieces)


def test_attempts_have_their_times_nodes_and_ends() -> None:
    first, second = attempts(life(10))
    assert (first.number, first.nodes, first.end, first.cause) == (
        1,
        ("node-1", "node-2"),
        "preempted by 6",
        "6",
    )
    assert (NOW - first.placed_at, NOW - first.started_at, NOW - first.ended_at) == (15_000, 14_990, 10_990)
    assert first.lost_gpu_hours == 17.7
    assert (second.nodes, second.end, NOW - second.ended_at) == (("node-2",), "node lost node-2", 7_000)
    assert attempts(()) == []


def test_running_attempt_has_no_end() -> None:
    (_, second) = attempts(life(10)[:-2])
    assert second.ended_at is None
    last = text(attempt_lines(WAITING, [second], NOW, 120)[-1])
    assert last.split()[-1] == "runs"
    assert "2h29m" in last


def test_end_of_the_job_is_the_end_of_its_last_attempt() -> None:
    ended = replace(life(10)[-1], kind="JobEnded", data={"state": "FAILED", "detail": "exit code 1"})
    assert attempts((*life(10)[:-1], ended))[1].end == "failed exit code 1"


def test_timeline_ends_with_the_latest_start() -> None:
    explanation = Explanation(WAITING, WHY, NOW + 5_400)
    line = text(timeline(WAITING, attempts(life(10)), explanation, NOW, 300))
    assert line == (
        "submitted 05:50:00 ─ waited 40m00s ─ ran 1h06m, preempted by 6 ─ waited 33m10s ─ ran 33m10s, "
        "node lost node-2 ─ waits 1h56m ··· starts ≤ 12:10:00"
    )
    running = replace(WAITING, state=JobState.RUNNING)
    assert text(timeline(running, attempts(life(10)), None, NOW, 300)).endswith("node lost node-2")


@pytest.mark.parametrize(("width", "counts"), [(120, "1 attempt "), (70, "2 attempts ")])
def test_timeline_that_is_too_long_counts_its_first_attempts(width: int, counts: str) -> None:
    line = timeline(WAITING, attempts(life(10)), Explanation(WAITING, WHY, NOW + 5_400), NOW, width)
    assert counts in text(line)
    assert text(line).endswith("starts ≤ 12:10:00")
    assert length(line) <= width


def test_attempts_are_bars_over_the_time_since_the_submit() -> None:
    lines = [text(line) for line in attempt_chart(WAITING, attempts(life(10)), NOW, 107)]
    assert "waited 3h09m  ran 1h39m  lost 17.7 GPU-hours" in lines[1]
    first, second, waits = lines[3:]
    assert first.startswith("    1  ░░░░░░░░░░░░░█")
    assert second.startswith("    2  ")
    assert first.rindex("█") <= second.index("░") < second.index("█")
    assert waits.endswith("░")
    assert waits.startswith("     → ")
    assert len(waits) == 107
    assert attempt_chart(WAITING, [], NOW, 107) == []
