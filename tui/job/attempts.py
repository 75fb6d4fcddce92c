"""Finds the attempts of a job in its events, and shows them as a list and as a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tui.look import cells
from tui.look.styled_lines import Piece, fit, heading, length
from tui.plan.timeline import Timeline
from tui.pulse.lists import event_style
from wire.api.forecasts import Explanation
from wire.api.jobs import JobView
from wire.api.service.cluster import EventView
from wire.names import JobState
from wire.text import counted, duration, printable

SHOWN_STEPS = 3
"""The timeline shows at most this number of attempts, the last ones."""
CHART_LEFT = 7
"""The width of the numbers to the left of the bars of the attempts."""


@dataclass(frozen=True)
class Attempt:
    """One attempt: its number, its nodes and its times in seconds since 1970. `end` describes how the attempt
    ended; empty while the attempt runs.
    """

    number: int
    placed_at: float
    nodes: tuple[str, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None
    end: str = ""
    cause: str = ""
    """The job or the user that preempted the attempt."""
    lost_gpu_hours: float = 0.0


def attempts(events: Sequence[EventView]) -> list[Attempt]:
    """Return the attempts in the events of a job, oldest first.

    1. A placement begins an attempt. The attempt starts with the first start on one of its nodes.
    2. The attempt ends with the last exit on one of its nodes. The text `end` comes from the event that ended
       the attempt: a preemption, a requeue or the end of the job.
    """
    found: dict[int, Attempt] = {}
    last = 0
    for event in events:
        data = event.data
        number = data.get("attempt")
        if event.kind == "JobPlaced":
            nodes = tuple(str(each["node"]) for each in data.get("allocations", ()))
            last = int(data["attempt"])
            found[last] = Attempt(last, event.at, nodes)
            continue
        attempt = found.get(last if number is None else int(number))
        if attempt is None:
            continue
        if event.kind in ("AttemptStarted", "MembersStarted") and attempt.started_at is None:
            attempt = replace(attempt, started_at=event.at)
        elif event.kind in ("AttemptExited", "MembersExited"):
            attempt = replace(attempt, ended_at=event.at)
        elif event.kind == "JobPreempted":
            cause = str(data.get("by", ""))
            attempt = replace(
                attempt,
                ended_at=attempt.ended_at or event.at,
                cause=cause,
                end=f"preempted by {cause}",
                lost_gpu_hours=float(data.get("gpu_hours") or 0.0),
            )
        elif event.kind == "JobRequeued":
            end = attempt.end or f"{_word(data.get('reason'))} {data.get('detail') or ''}".strip()
            attempt = replace(attempt, ended_at=attempt.ended_at or event.at, end=end)
        elif event.kind == "JobEnded":
            end = f"{_word(data.get('state'))} {data.get('detail') or ''}".strip()
            attempt = replace(attempt, ended_at=attempt.ended_at or event.at, end=end)
        found[attempt.number] = attempt
    return list(found.values())


def attempt_lines(job: JobView, tries: Sequence[Attempt], now: float, width: int) -> list[list[Piece]]:
    """Return the lines of the tab with the attempts: one line for each attempt."""
    if not tries:
        return [[], [("  no attempt yet: the job has not been placed on nodes", "muted")]]
    nodes_width = max(12, min(30, width // 4))
    lines: list[list[Piece]] = [
        [(f"  {'#':>3}  {'PLACED':<12}  {'WAITED':>7}  {'RAN':>7}  {fit('NODES', nodes_width)}  END", "head")]
    ]
    queued_at = job.submitted_at
    for attempt in tries:
        waited = duration(max(0.0, attempt.placed_at - queued_at))
        ran = "-" if attempt.started_at is None else duration((attempt.ended_at or now) - attempt.started_at)
        runs = attempt.ended_at is None
        end = "runs" if runs else printable(attempt.end or "ended", 200)
        style = "running" if runs else _end_style(attempt.end)
        lost = f"  lost {attempt.lost_gpu_hours:.1f} GPU-hours" if attempt.lost_gpu_hours >= 0.05 else ""
        lines.append(
            [
                (f"  {attempt.number:>3}", "strong"),
                (f"  {cells.clock(attempt.placed_at, now):<12}  {waited:>7}", "muted"),
                (f"  {ran:>7}  ", "text"),
                (fit(printable(", ".join(attempt.nodes), 200), nodes_width), "accent"),
                (f"  {end}", style),
                (lost, "warn"),
            ]
        )
        queued_at = attempt.ended_at or now
    return lines


def attempt_chart(job: JobView, tries: Sequence[Attempt], now: float, width: int) -> list[list[Piece]]:
    """Return the attempts as bars over the time since the submit, and the sums of all waits, run times and
    lost GPU-hours. In each bar, `░` is the wait before the attempt and `█` the time in which it ran.
    """
    if not tries:
        return []
    end = job.ended_at or now
    line = Timeline(job.submitted_at, max(1.0, end - job.submitted_at), max(10, width - CHART_LEFT))
    bars: list[list[Piece]] = []
    queued_at, waited, ran = job.submitted_at, 0.0, 0.0
    for attempt in tries:
        began = attempt.started_at or attempt.placed_at
        stopped = attempt.ended_at or end
        waited += max(0.0, attempt.placed_at - queued_at)
        ran += max(0.0, stopped - attempt.started_at) if attempt.started_at is not None else 0.0
        first, run = line.cells(queued_at, began), line.cells(began, stopped + line.cell_s)
        gap = max(0, run.start - first.start)
        style = "running" if attempt.ended_at is None else _end_style(attempt.end)
        bars.append(
            [
                (f"  {attempt.number:>3}  ", "strong"),
                (" " * first.start, "text"),
                ("░" * gap, "queued"),
                ("█" * max(1, len(run)), style),
            ]
        )
        queued_at = stopped
    if job.state is JobState.QUEUED:
        waited += max(0.0, now - queued_at)
        first = line.cells(queued_at, now)
        bars.append([("     → ", "muted"), (" " * first.start, "text"), ("░" * len(first), "queued")])
    lost = sum(attempt.lost_gpu_hours for attempt in tries)
    title: list[Piece] = [
        ("time since the submit  ", "strong"),
        (f"waited {duration(waited)}  ", "queued"),
        (f"ran {duration(ran)}", "running"),
        (f"  lost {lost:.1f} GPU-hours" if lost >= 0.05 else "", "warn"),
    ]
    return [[], heading(title, width), [(" " * CHART_LEFT + line.line(now), "faint")], *bars]


def timeline(
    job: JobView, tries: Sequence[Attempt], explanation: Explanation | None, now: float, width: int
) -> list[Piece]:
    """Return the history of the job as one line: waits, attempts with their ends, and the expected start. If
    the line is too long, the first attempts are shown only as a number, such as 3 attempts.

    Example: submitted 05:42 ─ waited 4h ─ ran 12m, preempted by 411 ─ waits 25m ··· starts ≤ 08:52
    """
    for shown in range(SHOWN_STEPS, -1, -1):
        line = _timeline(job, tries, explanation, now, max(0, len(tries) - shown))
        if length(line) <= width:
            break
    return line


def _timeline(
    job: JobView, tries: Sequence[Attempt], explanation: Explanation | None, now: float, hidden: int
) -> list[Piece]:
    """Return the line of `timeline`. The first `hidden` attempts are shown only as a number."""
    line: list[Piece] = [(f"submitted {cells.clock(job.submitted_at, now)}", "muted")]
    queued_at = job.submitted_at
    if hidden:
        line += [_DASH, (counted(hidden, "attempt"), "muted")]
        queued_at = tries[hidden - 1].ended_at or now
    for attempt in tries[hidden:]:
        line += [_DASH, (f"waited {duration(max(0.0, attempt.placed_at - queued_at))}", "queued")]
        if attempt.started_at is not None:
            ran = duration((attempt.ended_at or now) - attempt.started_at)
            line += [_DASH, (f"{'ran' if attempt.ended_at else 'runs'} {ran}", "running")]
        if attempt.end:
            line.append((f", {printable(attempt.end, 60)}", _end_style(attempt.end)))
        queued_at = attempt.ended_at or now
    if job.state is JobState.QUEUED:
        line += [_DASH, (f"waits {duration(max(0.0, now - queued_at))}", "queued")]
        if explanation is not None and explanation.starts_at is not None:
            line += [(" ··· ", "faint"), (f"starts ≤ {cells.clock(explanation.starts_at, now)}", "good")]
    return line


def event_lines(events: Sequence[EventView], now: float) -> list[list[Piece]]:
    """Return the lines of the tab with the events of the job, oldest first."""
    return [
        [
            (f"  {cells.clock(event.at, now):<12}  ", "faint"),
            (printable(event.text, 300), event_style(event.kind)),
        ]
        for event in events
    ]


_DASH: Piece = (" ─ ", "faint")


def _word(reason: object) -> str:
    return str(reason or "").replace("_", " ").lower()


def _end_style(end: str) -> str:
    if end.startswith("completed"):
        return "completed"
    return "failed" if end.startswith("failed") else "warn"
