"""What a change would do, spelled out before it is done."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tui import cells
from tui.moves import Step
from tui.paint import Piece
from wire.api.forecasts import QuotaEdit, WhatIf
from wire.api.jobs import JobView
from wire.api.moves import MoveView, ProposalView, place
from wire.api.nodes import NodeView
from wire.api.tenants import QuotaView, ReservationView
from wire.spec import gpus_text
from wire.text import counted, duration, plain
from wire.words import JobState

TYPED_ABOVE: Final = 20
"""From so many jobs on, the number has to be typed."""

LISTED: Final = 6


@dataclass(frozen=True)
class Question:
    """A dialog: what would happen, the button that does it, and what must be typed first.

    With a `reason` flag a sentence may be typed, which the command says behind that flag. With a `trial` it
    is told who would start sooner and who later.
    """

    title: str
    lines: tuple[Sequence[Piece], ...]
    button: str
    command: str
    must_type: str = ""
    reason: str = ""
    trial: WhatIf | None = None


def cancel(jobs: Sequence[JobView], now: float) -> Question:
    """Ending jobs."""
    number = counted(len(jobs), "job")
    running = [job for job in jobs if job.started_at is not None]
    lines: list[Sequence[Piece]] = [[("Owners   ", "muted"), (_owners(jobs), "text")]]
    waiting = len(jobs) - len(running)
    if running:
        held = sum(job.gpus for job in running)
        spent = sum(job.gpus * (now - (job.started_at or now)) for job in running) / 3600
        lines.append(
            [
                ("Running  ", "muted"),
                (f"{len(running):,} to get SIGTERM now, SIGKILL after the grace time", "text"),
            ]
        )
        lines.append([("Lost     ", "muted"), (_lost(held, spent), "warn")])
    if waiting:
        lines.append([("Waiting  ", "muted"), (f"{waiting:,} to leave the queue", "text")])
    return Question(
        f"Cancel {number}?",
        (*lines, [], *_rows(jobs, now)),
        f"Cancel {number}",
        job_command("cancel", jobs),
        must_type=str(len(jobs)) if len(jobs) > TYPED_ABOVE else "",
        trial=WhatIf(cancel=tuple(job.id for job in jobs)),
    )


def preempt(jobs: Sequence[JobView], now: float) -> Question:
    """Ending attempts; the jobs stay."""
    number = counted(len(jobs), "job")
    held = sum(job.gpus for job in jobs)
    spent = sum(job.gpus * (now - (job.started_at or now)) for job in jobs) / 3600
    lines: list[Sequence[Piece]] = [
        [("Owners   ", "muted"), (_owners(jobs), "text")],
        [("Effect   ", "muted"), ("saved if they can, ended, and queued again in their places", "text")],
        [("Lost     ", "muted"), (_lost(held, spent), "warn"), (", unless saved", "muted")],
    ]
    return Question(
        f"Preempt {number}?",
        (*lines, [], *_rows(jobs, now)),
        f"Preempt {number}",
        job_command("preempt", jobs),
        must_type=str(len(jobs)) if len(jobs) > TYPED_ABOVE else "",
        trial=WhatIf(preempt=tuple(job.id for job in jobs)),
    )


def drain(nodes: Sequence[NodeView]) -> Question:
    """Emptying nodes."""
    names = ", ".join(plain(node.name, 40) for node in nodes)
    jobs = sum(len(node.jobs) for node in nodes)
    free = gpus_text(round(sum(len(node.gpus) - cells.gpus_used(node) for node in nodes), 2))
    return Question(
        f"Drain {names}?",
        (
            [("Running  ", "muted"), (f"{counted(jobs, 'job')} finish undisturbed", "text")],
            [("Effect   ", "muted"), (f"nothing new starts there; {free} free GPUs are closed", "warn")],
        ),
        "Drain",
        f"corral nodes drain {shlex.join(plain(node.name) for node in nodes)}",
        reason="--why",
        trial=WhatIf(drain=tuple(node.name for node in nodes)),
    )


def unset_quota(quota: QuotaView) -> Question:
    """Going back to the configuration."""
    name = plain(quota.name)
    return Question(
        f"Unset the quota of {quota.scope} {plain(quota.name, 40)}?",
        ([("Effect   ", "muted"), ("what scheduler.toml says holds again, from now on", "text")],),
        "Unset",
        f"corral quota unset {quota.scope} {shlex.quote(name)}",
        trial=WhatIf(quotas=(QuotaEdit(quota.scope, quota.name),)),
    )


def cancel_reservation(row: ReservationView, now: float) -> Question:
    """Giving nodes back."""
    spec = row.spec
    when = "it is on" if row.on else f"it was to begin in {duration(row.starts_at - now)}"
    again = f", and again every {duration(spec.every_s)}" if spec.every_s else ""
    return Question(
        f"Cancel the reservation {plain(spec.name, 30)}?",
        (
            [("Nodes    ", "muted"), (plain(", ".join(row.nodes), 300), "accent")],
            [("Time     ", "muted"), (f"{when}{again}", "text")],
            [("Effect   ", "muted"), ("everybody's jobs may start there again", "warn")],
        ),
        "Cancel it",
        f"corral reserve cancel {shlex.quote(plain(spec.name))}",
        trial=WhatIf(cancel_reservations=(spec.name,)),
    )


def move(steps: Sequence[Step]) -> Question:
    """Moving jobs as proposed: one proposal, or whatever there is."""
    proposals = [step.what for step in steps if isinstance(step.what, ProposalView)]
    moves = [each for proposal in proposals for each in proposal.moves]
    number = counted(len({each.job for each in moves}), "job")
    only = proposals[0].id if len(proposals) == 1 else "all"
    cost = sum(proposal.gpu_hours for proposal in proposals)
    return Question(
        f"Move {number}?" if only != "all" else f"Move {number} for {counted(len(proposals), 'proposal')}?",
        (
            *([("So that  ", "muted"), (plain(step.aim, 200), "strong")] for step in steps[:LISTED]),
            [("Effect   ", "muted"), ("they save their state, end, and go on in the place kept", "text")],
            [("Cost     ", "muted"), (f"{cost:.2f} GPU-hours, worked out anew before", "warn")],
            [],
            *(going(each) for each in moves[:LISTED]),
        ),
        f"Move {number}",
        f"corral rebalance run {only}",
    )


def going(each: MoveView) -> Sequence[Piece]:
    """A job, and from where to where it would go."""
    return [
        (f"{plain(each.label)} ", "strong"),
        (f"{plain(each.name, 24)}  ", "text"),
        (f"{plain(each.user, 16)}  ", "muted"),
        (plain(f"{place(each.origin)} → {place(each.target)}", 100), "accent"),
    ]


def job_command(verb: str, jobs: Sequence[JobView]) -> str:
    """The same thing for a shell."""
    return f"corral job {verb} {' '.join(shlex.quote(plain(job.label)) for job in jobs)}"


def _rows(jobs: Sequence[JobView], now: float) -> list[Sequence[Piece]]:
    """The first jobs, and how many more; below what matters, for a low screen cuts them off."""
    more = len(jobs) - LISTED
    rest: list[Sequence[Piece]] = [[(f"  … and {more:,} more", "muted")]] if more > 0 else []
    return [*(_row(job, now) for job in jobs[:LISTED]), *rest]


def _row(job: JobView, now: float) -> Sequence[Piece]:
    state, part = cells.job_state(job)
    gpus = f"{gpus_text(job.gpus)} GPU{'' if job.gpus <= 1 else 's'}" if job.gpus else "no GPU"
    since = cells.job_time(job, now)[0]
    return [
        (f"{state}  ", part),
        (f"{plain(job.label)} ", "strong"),
        (f"{plain(job.name, 24)}  ", "text"),
        (f"{plain(job.user, 16)} · {gpus} · {since}", "muted"),
    ]


def _owners(jobs: Sequence[JobView]) -> str:
    owners = Counter(plain(job.user, 24) for job in jobs).most_common()
    shown = ", ".join(
        f"{user} ({number:,})" if number > 1 and len(owners) > 1 else user for user, number in owners[:5]
    )
    return shown + (f" and {len(owners) - 5:,} more" if len(owners) > 5 else "")


def _lost(held: float, spent: float) -> str:
    if not held:
        return "their work since they started"
    hours = f"{spent:,.1f}" if spent >= 0.1 else "less than 0.1"
    return (
        f"{hours} GPU-hours since they started, on {gpus_text(round(held, 2))} GPU{'' if held <= 1 else 's'}"
    )


def cancellable(job: JobView) -> bool:
    """Whether there is still something to cancel."""
    return not job.state.terminal


def preemptible(job: JobView) -> bool:
    """Only what holds something can be made to let go of it."""
    return job.state in (JobState.SCHEDULED, JobState.RUNNING)


def holdable(job: JobView) -> bool:
    """Only what waits can be held."""
    return job.state in (JobState.QUEUED, JobState.PREEMPTED)
