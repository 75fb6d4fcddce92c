"""The tab with the reason why a job waits: the criteria for its place in the queue, the jobs ahead of it, its
expected start, and changes that would start it now.
"""

from __future__ import annotations

from collections.abc import Sequence

from tui.job.attempts import Attempt, timeline
from tui.look import cells
from tui.look.styled_lines import Piece, bar, fit
from wire.api.forecasts import Explanation
from wire.api.jobs import JobDetail, JobView
from wire.api.reasons import FilterLoss, NodeScore, Points, Why
from wire.names import JobState
from wire.text import duration, printable

BAR = 30
"""The width, in terminal cells, of the bar of the criterion with the largest weight."""


def why_lines(
    job: JobView,
    detail: JobDetail | None,
    explanation: Explanation | None,
    tries: Sequence[Attempt],
    advice: Sequence[tuple[str, str]],
    now: float,
    width: int,
) -> list[list[Piece]]:
    """Return the lines of the tab. `advice` has the changes that would start the job now, each with its
    command. For a job that does not wait, the tab has the reason of its state and the timeline. For a
    running job, it also has the points of its nodes and of the best other nodes at its placement.
    """
    life = cells.fact("timeline", *timeline(job, tries, explanation, now, width - cells.LABEL - 1))
    if detail is None:
        return [life, cells.fact("why", ("loading…", "faint"))]
    if job.state is not JobState.QUEUED:
        text = detail.why.sentence or job.detail or "the job does not wait"
        placement = [] if explanation is None else _placement(explanation.why.nodes)
        return [cells.fact("why", (printable(text, 400), "text")), life, *placement]
    why = explanation.why if explanation is not None else detail.why
    lines: list[list[Piece]] = [*reason_lines(why, width), life]
    lines += start_lines(explanation, now, width) if explanation is not None else []
    lines += advice_lines(advice)
    lines += _ahead(why)
    lines += _score(why.receipt, width)
    return [*lines, *_nodes(why)]


def reason_lines(why: Why, width: int) -> list[list[Piece]]:
    """Return the main reason why the job waits, its place in the queue, the other reasons, the number of
    nodes that each filter rejected, and the number of nodes that are left.
    """
    lines = cells.wrapped_fact("why", printable(why.sentence, 400), "strong", width)
    if why.position is not None:
        place = f"{ordinal(why.position)} in the queue"
        if len(lines) == 1 and cells.LABEL + len(lines[0][1][0]) + len(place) + 4 < width:
            lines[0].append((f"   {place}", "muted"))
        else:
            lines.append(cells.fact("", (place, "muted")))
    for note in why.notes:
        lines += cells.wrapped_fact("", printable(note, 200), "text", width)
    lines += [cells.fact("", *_loss(loss)) for loss in why.losses]
    if why.losses:
        style = "good" if why.fitting else "warn"
        lines.append(cells.fact("", (f"{why.fitting:>5}  ", style), ("nodes left", "muted")))
    return lines


def start_lines(explanation: Explanation, now: float, width: int) -> list[list[Piece]]:
    """Return lines about the start of a waiting job: the latest start with the preemptions that it assumes,
    or the time before which the job does not start, or the reason why the start is unknown; then the likely
    start, and the reason why no other job is preempted.
    """
    lines: list[list[Piece]] = []
    if explanation.starts_at is not None:
        left = explanation.starts_at - now
        when = f"in {duration(left)} at the latest" if left >= 1 else "in the next cycle"
        nodes = printable(", ".join(explanation.nodes), 80)
        lines.append(cells.fact("starts", (when, "text"), (f"   on {nodes}", "muted")))
        lines += [
            cells.fact("", (f"assumes preemption: {printable(each, 160)}", "muted"))
            for each in explanation.assumes
        ]
    elif explanation.covers_until is not None:
        least = f"not within the next {duration(explanation.covers_until - now)}"
        lines.append(cells.fact("starts", (least, "text"), ("   later starts are unknown", "muted")))
    elif explanation.unknown:
        reason = f"not known: {printable(explanation.unknown, 400)}"
        lines += cells.wrapped_fact("starts", reason, "text", width)
    if explanation.likely_at is not None:
        likely = f"in {duration(max(0.0, explanation.likely_at - now))}"
        between = explanation.between
        span = (
            f"   8 of 10 between {cells.clock(between[0], now)} and {cells.clock(between[1], now)}"
            if between
            else ""
        )
        lines.append(cells.fact("likely", (likely, "text"), (span, "muted")))
    if explanation.no_preemption:
        reason = f"no job now: {printable(explanation.no_preemption, 400)}"
        lines += cells.wrapped_fact("preempts", reason, "text", width)
    return lines


def advice_lines(advice: Sequence[tuple[str, str]]) -> list[list[Piece]]:
    """Return lines with the changes that would start the job now, each followed by its shell command. The
    line of the first change also shows the key that applies this change.
    """
    lines = []
    for number, (sentence, command) in enumerate(advice):
        key: Piece = ("1 ", "key") if number == 0 else ("  ", "text")
        lines.append(cells.fact("or now", key, (printable(sentence, 160), "good")))
        lines.append(cells.fact("", (f"  $ {command}", "accent")))
    return lines


def _ahead(why: Why) -> list[list[Piece]]:
    """Return one line for each of the first jobs that are ahead of this job in the queue."""
    lines = []
    for number, each in enumerate(why.ahead, 1):
        lines.append(
            cells.fact(
                "" if number > 1 else "before it",
                (f"#{number:<3} ", "faint"),
                (f"{printable(each.label, 20):<6} ", "accent"),
                (f"{printable(each.user, 30)}: {printable(each.wants, 80)}", "text"),
            )
        )
    more = (why.position or 1) - 1 - len(why.ahead)
    return [*lines, cells.fact("", (f"and {more:,} more", "muted"))] if more > 0 and lines else lines


def _score(receipt: Sequence[Points], width: int) -> list[list[Piece]]:
    """Return the total points of the job, and a line with a bar for each criterion of the queue's order. The
    length of the bar shows the weight of the criterion, and its filled part shows the points of the job.
    """
    if not receipt:
        return []
    most = max(abs(each.weight) for each in receipt) or 1.0
    room = min(BAR, max(8, width - 60))
    total = sum(each.points for each in receipt)
    lines = [cells.fact("order by", (f"{total:,.1f} points", "strong"), ("  more points go first", "muted"))]
    for each in receipt:
        size = max(1, round(abs(each.weight) / most * room))
        share = abs(each.points / each.weight) if each.weight else 0.0
        style = "bar" if each.points >= 0 else "warn"
        lines.append(
            cells.fact(
                "",
                (f"{fit(printable(each.name.replace('_', ' '), 14), 14)} ", "text"),
                *bar(share, size, style),
                (" " * (room - size), "text"),
                (f" {each.points:>9,.1f}", "strong"),
                (f" of {each.weight:,.0f}", "faint"),
                (f"  {printable(each.note, 30)}" if each.note else "", "muted"),
            )
        )
    return lines


def _nodes(why: Why) -> list[list[Piece]]:
    """Return the nodes that the scorers rate best, with the points of each scorer. If the job fits on none of
    them now, the lines rate the nodes as if they were idle.
    """
    word = "best nodes" if any(node.fits for node in why.nodes) else "when idle"
    return [cells.fact(word if not at else "", *_node(node)) for at, node in enumerate(why.nodes[:5])]


def _placement(nodes: Sequence[NodeScore]) -> list[list[Piece]]:
    """Return the nodes of a running job, and then the best other nodes, with their points when the job was
    placed.
    """
    lines = []
    for word, chosen in (("placed on", True), ("not on", False)):
        found = [node for node in nodes if node.chosen is chosen][:5]
        lines += [cells.fact(word if not at else "", *_node(node)) for at, node in enumerate(found)]
    return lines


def _node(node: NodeScore) -> list[Piece]:
    parts = "  ".join(f"{printable(each.name, 16)} {each.points:.1f}" for each in node.parts)
    name = f"{printable(node.node, 24):<14} "
    return [(name, "accent"), (f"{node.points:>7.1f}  ", "text"), (parts, "muted")]


def _loss(loss: FilterLoss) -> list[Piece]:
    shown = ", ".join(printable(example, 30) for example in loss.examples[:3])
    return [
        (f"{-loss.lost:>5}  ", "warn"),
        (f"{printable(loss.filter, 16):<12} ", "accent"),
        (printable(loss.message, 160), "text"),
        (f"  {shown}" if shown else "", "faint"),
    ]


def ordinal(number: int) -> str:
    suffix = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{suffix}"
