"""Describes why a job waits: its position and points in the queue, the rejected nodes, and the jobs that it
will preempt.
"""

from __future__ import annotations

from collections.abc import Sequence

from cli.output.details.facts import SHOWN
from cli.output.table_columns import clock
from wire.api.forecasts import Explanation
from wire.api.reasons import Ousted, Why
from wire.text import counted, printable

SHOWN_VICTIMS = 8


def of_why(why: Why) -> str:
    """Return lines with the reason why a job waits, its position and its points in the queue, and how many
    nodes each filter rejects.
    """
    lines = [why.sentence, *map(printable, why.notes)]
    if why.position is not None:
        lines.append(f"position {why.position} in the queue")
    if why.receipt:
        lines.append(f"{sum(each.points for each in why.receipt):.3f} points:")
        lines += [
            f"  {each.points:10.3f} = {each.factor:.4f} × {each.weight:g} {each.name.replace('_', ' ')}"
            + (f" ({each.note})" if each.note else "")
            for each in why.receipt
        ]
    lines += [
        f"{counted(loss.lost, 'node')}: {text}"
        for loss in why.losses
        # Leave out a cause if `why.sentence` already ends with this cause and its nodes.
        if not why.sentence.endswith(text := f"{loss.message} ({', '.join(loss.examples)})")
    ]
    return "\n".join(line for line in lines if line)


def of_node_scores(why: Why) -> str:
    """Return a line for each of the best nodes for a waiting job, with the total points of the node and the
    points from each scorer. For a running job, the points at its placement, with a mark at the nodes of the
    job.
    """
    placed = any(each.chosen for each in why.nodes)
    lines = ["points when the job was placed, * marks its nodes:"] if placed else []
    if why.nodes and not why.nodes[0].fits:
        lines = ["it fits on no node now; these could hold it:"]
    lines += [
        f"{'* ' if each.chosen else '  ' if placed else ''}{each.node}: {each.points:.1f} points = "
        + " + ".join(f"{part.factor:.2f} × {part.weight:g} {part.name}" for part in each.parts)
        for each in why.nodes
    ]
    return "\n".join(lines)


def of_ahead(why: Why) -> str:
    """Return a text with the first few jobs ahead of a waiting job in the queue, and the number of further
    jobs ahead.
    """
    lines = [f"job {each.label} ({printable(each.user)}): {printable(each.wants)}" for each in why.ahead]
    more = (why.position or 1) - 1 - len(why.ahead)
    return "\n".join(lines + ([f"and {more} more"] if more > 0 and lines else []))


def of_preemption(answer: Explanation) -> str:
    """Return lines about preemption: why the waiting job preempts no job now, and which running jobs it will
    preempt later.
    """
    lines = [f"no job now: {printable(answer.no_preemption, SHOWN)}"] if answer.no_preemption else []
    if answer.makes_room and answer.victims:
        lines.append(_victims_text(answer.victims))
    return "\n".join(lines)


def _victims_text(victims: Sequence[Ousted]) -> str:
    """Return a text with the first few victims (jobs that will be preempted), the time of the preemption, and
    the GPU-hours that all victims lose.
    """
    lost = sum(each.gpu_hours for each in victims)
    names = ", ".join(each.label for each in victims[:SHOWN_VICTIMS])
    more = f" and {len(victims) - SHOWN_VICTIMS} more" if len(victims) > SHOWN_VICTIMS else ""
    at = victims[0].at
    when = f" at {clock(at)}" if at is not None else " in its turn"
    return (
        f"job{'s' * (len(victims) > 1)} {names}{more}{when}, so that it can start: {lost:.1f} GPU-hours lost"
    )
