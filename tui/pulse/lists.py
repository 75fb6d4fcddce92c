"""Draws the panels of the view Pulse that are lists: alarms, GPUs by project, the next starts, and the last
events."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from tui.data.lists.filter import exact_filter
from tui.look import glyphs
from tui.look.styled_lines import Piece, fit, share_bar
from tui.pulse.alarms import Alarm
from tui.pulse.panel import Jump, PanelRow, title
from wire.api.forecasts import Plan
from wire.api.jobs import JobView
from wire.api.policy.shares import ShareView
from wire.api.service.cluster import EventView
from wire.job.spec import gpus_text
from wire.names import JobState
from wire.text import duration, printable

EVENT_STYLES = (
    ("Failed", "bad"),
    ("Lost", "bad"),
    ("Refused", "warn"),
    ("Preempt", "preempted"),
    ("Drain", "warn"),
    ("Placed", "running"),
    ("Ended", "completed"),
    ("Queued", "queued"),
)
"""Pairs (text, style). An event has the style of the first pair whose text is a part of the kind of the
event, such as JobEnded.
"""
RANKED = 50
"""The panel of the next starts shows the rank of each job if it is at least this number of cells wide."""
QUIET = ("AttemptStarted", "AttemptExited", "GpuReadings", "AttemptStopping")
"""Kinds of events that only repeat another event of the same job."""


def alarm_list(alarms: Sequence[Alarm], now: float, width: int, height: int) -> list[PanelRow]:
    """Return the panel of alarms, at most `height` rows high."""
    heading: list[Piece] = [("alarms", "strong")]
    if alarms:
        heading.append((f" {len(alarms)}", "bad" if alarms[0].style == "bad" else "warn"))
    rows = [title(heading, width, Jump("view", "alarms"))]
    if not alarms:
        rows.append(PanelRow([(f" {glyphs.JOB[JobState.COMPLETED]} nothing needs attention", "good")]))
    for alarm in alarms[: max(0, height - 1)]:
        since = "" if alarm.since is None else f" {duration(max(0.0, now - alarm.since))}"
        text = fit(alarm.text, max(0, width - 4 - len(since)))
        rows.append(
            PanelRow(
                [(f" {glyphs.ALARM[alarm.style]} ", alarm.style), (text, "text"), (since, "muted")],
                alarm.jump,
            )
        )
    return rows


def holders(
    running: Iterable[JobView], shares: Sequence[ShareView], gpus: int, width: int, height: int
) -> list[PanelRow]:
    """Return the panel with the GPUs that each project holds, beside the fair share of the project. If there
    is only one project, the panel shows users.

    The fair share of a project is a part of all GPUs, computed from the weights on all levels of the
    fair-share tree.
    """
    fair = _fair_parts(shares)
    jobs = list(running)
    by_project = len({job.project for job in jobs} | fair.keys()) > 1
    held: Counter[str] = Counter()
    for job in jobs:
        held[job.project if by_project else job.user] += job.gpus  # type: ignore[assignment]
    field = "project" if by_project else "user"
    rows = [title([(f"GPUs by {field}", "strong")], width, Jump("view", "shares"))]
    most = max([*held.values(), *(part * gpus for part in fair.values()), 1.0])
    room = max(4, width - 12 - 6 - 12)
    for name, number in held.most_common(max(0, height - 1)):
        part = fair.get(name) if by_project else None
        pieces: list[Piece] = [
            (f" {fit(printable(name), 10)} ", "text"),
            (f"{gpus_text(round(number, 2)):>5} ", "strong"),
            *share_bar(number / most, None if part is None else part * gpus / most, room),
        ]
        if part is not None:
            pieces.append((f" fair {part * gpus:.0f}", "muted"))
        rows.append(PanelRow(pieces, Jump("filter", f"{field}:{exact_filter(name)} state:running")))
    if len(rows) == 1:
        rows.append(PanelRow([(" no job holds GPUs", "faint")]))
    return rows


def next_starts(plan: Plan | None, now: float, width: int, height: int) -> list[PanelRow]:
    """Return the panel of the waiting jobs that are expected to start next."""
    rows = [
        title(
            [("next to start ", "strong"), ("≈ likely ≤ latest", "muted")],
            width,
            Jump("view", "plan"),
        )
    ]
    if plan is None:
        return [*rows, PanelRow([(" loading…", "faint")])]
    entries = [entry for entry in plan.entries if entry.certainty != "certain"]
    entries.sort(key=lambda entry: entry.likely_at or entry.starts_at)
    ranked = width >= RANKED
    for number, entry in enumerate(entries[: max(0, height - 1)], 1):
        at = entry.likely_at or entry.starts_at
        where = printable(entry.nodes[0], 8) if len(entry.nodes) == 1 else f"×{len(entry.nodes)}"
        sign = "≈" if entry.certainty == "likely" or entry.likely_at is not None else "≤"
        when = f"{sign} {duration(max(0.0, at - now))}"
        room = max(4, width - (6 if ranked else 1) - 7 - 5 - 9 - 10)
        rows.append(
            PanelRow(
                [
                    (f" #{number:<4}" if ranked else " ", "faint"),
                    (f"{fit(printable(entry.label), 6)} ", "accent"),
                    (fit(printable(entry.name), room), "text"),
                    (f"{gpus_text(entry.gpus):>4} ", "text"),
                    (f"{when:>9}", "good" if entry.certainty == "likely" else "muted"),
                    (f"  {where}", "muted"),
                ],
                Jump("job", entry.job),
            )
        )
    if not entries:
        rest = (
            f"{plan.without_start} waiting jobs have no known start" if plan.without_start else "no job waits"
        )
        rows.append(PanelRow([(f" {rest}", "faint")]))
    return rows


def last_events(events: Sequence[EventView], width: int, height: int) -> list[PanelRow]:
    """Return the panel of the last events, newest first, without the kinds in QUIET."""
    rows = [title([("just now", "strong")], width, Jump("view", "events"))]
    for event in events:
        if len(rows) >= height:
            break
        if event.kind in QUIET:
            continue
        style = event_style(event.kind)
        jump = (
            Jump("job", event.job)
            if event.job is not None
            else Jump("node", event.node)
            if event.node
            else Jump("view", "events")
        )
        at = time.strftime("%H:%M:%S", time.localtime(event.at))
        rows.append(
            PanelRow([(f" {at} ", "faint"), (fit(printable(event.text), max(0, width - 11)), style)], jump)
        )
    return rows


def event_style(kind: str) -> str:
    """Return the style name for a kind of event, such as JobEnded; "muted" if EVENT_STYLES has no part of its
    name.
    """
    return next((style for word, style in EVENT_STYLES if word in kind), "muted")


def _fair_parts(shares: Sequence[ShareView]) -> dict[str, float]:
    """Return the fair share of each project as a fraction of the cluster (0 to 1): the product of the parts
    by weight on all levels of the fair-share tree.
    """
    parts = {share.path: share.part for share in shares}
    named = [share.path for share in shares if share.share == share.path[-1]]
    organisations = {path[:-1] for path in named}
    return {
        path[-1]: math.prod(parts.get(path[:depth], 1.0) for depth in range(1, len(path) + 1))
        for path in named
        if path not in organisations
    }
