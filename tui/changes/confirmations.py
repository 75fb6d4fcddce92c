"""The texts of confirmation dialogs, which describe the effect of a change before the change is made."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tui.data.lists.move_lists import MoveRow
from tui.look import cells
from tui.look.styled_lines import Piece
from wire.api.forecasts import Easing, JobEdit, QuotaEdit, WhatIf
from wire.api.jobs import JobView
from wire.api.nodes import GpuView, NodeView
from wire.api.policy.quotas import QuotaView
from wire.api.policy.rebalance import MoveView, ProposalView, nodes_and_gpus
from wire.api.policy.reservations import ReservationView
from wire.job.spec import gpus_text
from wire.names import HIGHEST_PRIORITY, JobState
from wire.text import counted, duration, printable

TYPED_ABOVE: Final = 20
"""For a change of more jobs than this number, the user must type the number of jobs to confirm the change."""

LISTED: Final = 6


@dataclass(frozen=True)
class Confirmation:
    """The content of a confirmation dialog. If `must_type` is not empty, the user must type this text.

    If `reason` is not empty, the user may type a reason for the change. `reason` is the flag of the shell
    command for the typed text, such as --why. If `trial` is set, the dialog sends this what-if request and
    shows which jobs would start sooner or later.
    """

    title: str
    lines: tuple[Sequence[Piece], ...]
    button: str
    command: str
    must_type: str = ""
    reason: str = ""
    trial: WhatIf | None = None


def cancel(jobs: Sequence[JobView], now: float) -> Confirmation:
    """Return the content of the dialog that asks whether to cancel these jobs."""
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
                (f"{len(running):,} get SIGTERM now, SIGKILL after the grace time", "text"),
            ]
        )
        lines.append([("Lost     ", "muted"), (_lost(held, spent), "warn")])
    if waiting:
        lines.append([("Waiting  ", "muted"), (f"{waiting:,} leave the queue", "text")])
    return Confirmation(
        f"Cancel {number}?",
        (*lines, [], *_rows(jobs, now)),
        f"Cancel {number}",
        job_command("cancel", jobs),
        must_type=str(len(jobs)) if len(jobs) > TYPED_ABOVE else "",
        trial=WhatIf(cancel=tuple(job.id for job in jobs)),
    )


def preempt(jobs: Sequence[JobView], now: float) -> Confirmation:
    """Return the content of the dialog that asks whether to preempt these jobs."""
    number = counted(len(jobs), "job")
    held = sum(job.gpus for job in jobs)
    spent = sum(job.gpus * (now - (job.started_at or now)) for job in jobs) / 3600
    lines: list[Sequence[Piece]] = [
        [("Owners   ", "muted"), (_owners(jobs), "text")],
        [("Effect   ", "muted"), ("they save their state if they can, end, and are queued again", "text")],
        [("Lost     ", "muted"), (_lost(held, spent, brief=True), "warn"), (", unless saved", "muted")],
    ]
    return Confirmation(
        f"Preempt {number}?",
        (*lines, [], *_rows(jobs, now)),
        f"Preempt {number}",
        job_command("preempt", jobs),
        must_type=str(len(jobs)) if len(jobs) > TYPED_ABOVE else "",
        trial=WhatIf(preempt=tuple(job.id for job in jobs)),
    )


def requeue(jobs: Sequence[JobView], now: float) -> Confirmation:
    """Return the content of the dialog that asks whether to requeue these jobs."""
    asked = preempt(jobs, now)
    number = counted(len(jobs), "job")
    return replace(
        asked, title=f"Requeue {number}?", button=f"Requeue {number}", command=job_command("requeue", jobs)
    )


def priority(jobs: Sequence[JobView], by: int, now: float) -> Confirmation:
    """Return the content of the dialog that asks whether to change the priority of these jobs by `by`."""
    number, word = counted(len(jobs), "job"), "Raise" if by > 0 else "Lower"
    changes = new_priorities(jobs, by)
    lines: list[Sequence[Piece]] = [
        [("Owners   ", "muted"), (_owners(jobs), "text")],
        [
            ("Priority ", "muted"),
            (", ".join(sorted({f"{old.priority} → {new}" for old, new in changes})[:LISTED]), "strong"),
        ],
    ]
    commands = [
        f"{job_command('set', [job for job, value in changes if value == new])} --priority {new}"
        for new in sorted({value for _, value in changes})
    ]
    return Confirmation(
        f"{word} the priority of {number}?",
        (*lines, [], *_rows(jobs, now)),
        f"{word} priority",
        " && ".join(commands),
        must_type=str(len(jobs)) if len(jobs) > TYPED_ABOVE else "",
        trial=WhatIf(edit=tuple(JobEdit(job.id, {"priority": new}) for job, new in changes)),
    )


def new_priorities(jobs: Sequence[JobView], by: int) -> list[tuple[JobView, int]]:
    """Return each job with its priority after a change by `by`. A priority stays between 0 and 100."""
    return [(job, max(0, min(HIGHEST_PRIORITY, job.priority + by))) for job in jobs]


def advice(job: JobView, easing: Easing, command: str) -> Confirmation:
    """Return the content of the dialog that asks whether to make a change that would start a
    waiting job now.
    """
    words = [word for word in easing.command if not word.startswith("--")]
    trial = WhatIf(edit=(JobEdit(job.id, easing.changes),))
    if words[:2] == ["job", "release"]:
        trial = WhatIf(release=(job.id,))
    elif words[:2] == ["nodes", "resume"]:
        trial = WhatIf(resume=tuple(words[2:]))
    elif words[:2] == ["job", "preempt"]:
        victims = tuple(victim.job for victim in easing.victims)
        trial = WhatIf(preempt=victims, stay_held="--hold" in easing.command)
    lines: list[Sequence[Piece]] = [
        [("Change   ", "muted"), (printable(easing.sentence, 200), "strong")],
        [("Effect   ", "muted"), (f"job {printable(job.label)} would start now", "good")],
    ]
    for victim in easing.victims[:LISTED]:
        lost = f"loses {victim.gpu_hours:.1f} GPU-hours, unless saved"
        name = f"{printable(victim.label)} {printable(victim.name, 24)}  {printable(victim.user, 16)}  "
        lines.append([("Preempts ", "muted"), (name, "text"), (lost, "warn")])
    return Confirmation(
        f"Start job {printable(job.label)} sooner?", tuple(lines), "Apply", command, trial=trial
    )


def cordon_gpu(node: NodeView, gpu: GpuView) -> Confirmation:
    """Return the content of the dialog that asks whether to cordon a GPU."""
    name = f"{printable(node.name, 40)}:{gpu.number}"
    jobs = ", ".join(gpu.job_labels or map(str, gpu.jobs))
    return Confirmation(
        f"Cordon GPU {name}?",
        (
            [("Running  ", "muted"), (f"{jobs} continues to its end" if jobs else "no job", "text")],
            [("Effect   ", "muted"), ("no new job gets this GPU until it is resumed", "warn")],
        ),
        "Cordon",
        f"corral nodes cordon {shlex.quote(name)}",
        reason="--why",
    )


def drain(nodes: Sequence[NodeView]) -> Confirmation:
    """Return the content of the dialog that asks whether to drain these nodes."""
    names = ", ".join(printable(node.name, 40) for node in nodes)
    jobs = sum(len(node.jobs) for node in nodes)
    free = gpus_text(round(sum(len(node.gpus) - cells.gpus_used(node) for node in nodes), 2))
    return Confirmation(
        f"Drain {names}?",
        (
            [("Running  ", "muted"), (f"{counted(jobs, 'job')} continue to their end", "text")],
            [("Effect   ", "muted"), (f"no new job starts there; {free} free GPUs take no jobs", "warn")],
        ),
        "Drain",
        f"corral nodes drain {shlex.join(printable(node.name) for node in nodes)}",
        reason="--why",
        trial=WhatIf(drain=tuple(node.name for node in nodes)),
    )


def unset_quota(quota: QuotaView) -> Confirmation:
    """Return the content of the dialog that asks whether to remove the limits that a command has set for this
    quota.
    """
    name = printable(quota.name)
    return Confirmation(
        f"Unset the quota of {quota.scope} {printable(quota.name, 40)}?",
        ([("Effect   ", "muted"), ("the limits of scheduler.toml apply again, at once", "text")],),
        "Unset",
        f"corral quota unset {quota.scope} {shlex.quote(name)}",
        trial=WhatIf(quotas=(QuotaEdit(quota.scope, quota.name),)),
    )


def cancel_reservation(row: ReservationView, now: float) -> Confirmation:
    """Return the content of the dialog that asks whether to cancel this reservation."""
    spec = row.spec
    when = "it is active" if row.on else f"it begins in {duration(row.starts_at - now)}"
    again = f", and again every {duration(spec.every_s)}" if spec.every_s else ""
    return Confirmation(
        f"Cancel the reservation {printable(spec.name, 30)}?",
        (
            [("Nodes    ", "muted"), (printable(", ".join(row.nodes), 300), "accent")],
            [("Time     ", "muted"), (f"{when}{again}", "text")],
            [("Effect   ", "muted"), ("jobs of all users may start there again", "warn")],
        ),
        "Cancel it",
        f"corral reserve cancel {shlex.quote(printable(spec.name))}",
        trial=WhatIf(cancel_reservations=(spec.name,)),
    )


def move(steps: Sequence[MoveRow]) -> Confirmation:
    """Return the content of the dialog that asks whether to move running jobs to other nodes. `steps` has one
    proposed move or all proposed moves.
    """
    proposals = [step.what for step in steps if isinstance(step.what, ProposalView)]
    moves = [each for proposal in proposals for each in proposal.moves]
    number = counted(len({each.job for each in moves}), "job")
    only = proposals[0].id if len(proposals) == 1 else "all"
    cost = sum(proposal.gpu_hours for proposal in proposals)
    return Confirmation(
        f"Move {number}?" if only != "all" else f"Move {number} for {counted(len(proposals), 'proposal')}?",
        (
            *([("Purpose  ", "muted"), (printable(step.purpose, 200), "strong")] for step in steps[:LISTED]),
            [("Effect   ", "muted"), ("they save their state, end, and continue on reserved nodes", "text")],
            [("Cost     ", "muted"), (f"{cost:.2f} GPU-hours, computed again before the move", "warn")],
            [],
            *(move_line(each) for each in moves[:LISTED]),
        ),
        f"Move {number}",
        f"corral rebalance run {only}",
    )


def move_line(job_move: MoveView) -> Sequence[Piece]:
    """Return one line of the dialog: a job, its present nodes, and its nodes after the move."""
    return [
        (f"{printable(job_move.label)} ", "strong"),
        (f"{printable(job_move.name, 24)}  ", "text"),
        (f"{printable(job_move.user, 16)}  ", "muted"),
        (printable(f"{nodes_and_gpus(job_move.origin)} → {nodes_and_gpus(job_move.target)}", 100), "accent"),
    ]


def job_command(verb: str, jobs: Sequence[JobView]) -> str:
    return f"corral job {verb} {' '.join(shlex.quote(printable(job.label)) for job in jobs)}"


def _rows(jobs: Sequence[JobView], now: float) -> list[Sequence[Piece]]:
    """Return one line for each of the first LISTED jobs, and one line with the number of the other jobs.
    These lines are the last texts of the dialog, because a screen with few lines cuts off the end of the
    dialog, and these lines are the least important.
    """
    more = len(jobs) - LISTED
    rest: list[Sequence[Piece]] = [[(f"  … and {more:,} more", "muted")]] if more > 0 else []
    return [*(_row(job, now) for job in jobs[:LISTED]), *rest]


def _row(job: JobView, now: float) -> Sequence[Piece]:
    state, part = cells.job_state(job)
    gpus = f"{gpus_text(job.gpus)} GPU{'' if job.gpus <= 1 else 's'}" if job.gpus else "no GPU"
    since = cells.job_time(job, now)[0]
    return [
        (f"{state}  ", part),
        (f"{printable(job.label)} ", "strong"),
        (f"{printable(job.name, 24)}  ", "text"),
        (f"{printable(job.user, 16)} · {gpus} · {since}", "muted"),
    ]


def _owners(jobs: Sequence[JobView]) -> str:
    owners = Counter(printable(job.user, 24) for job in jobs).most_common()
    shown = ", ".join(
        f"{user} ({number:,})" if number > 1 and len(owners) > 1 else user for user, number in owners[:5]
    )
    return shown + (f" and {len(owners) - 5:,} more" if len(owners) > 5 else "")


def _lost(held: float, spent: float, *, brief: bool = False) -> str:
    if not held:
        return "their work since they started"
    hours = f"{spent:,.1f}" if spent >= 0.1 else "less than 0.1"
    since = " " if brief else " since they started, "
    return f"{hours} GPU-hours{since}on {gpus_text(round(held, 2))} GPU{'' if held <= 1 else 's'}"


def cancellable(job: JobView) -> bool:
    return not job.state.terminal


def priority_raisable(job: JobView) -> bool:
    return not job.state.terminal and job.priority < HIGHEST_PRIORITY


def priority_lowerable(job: JobView) -> bool:
    return not job.state.terminal and job.priority > 0


def preemptible(job: JobView) -> bool:
    return job.state in (JobState.SCHEDULED, JobState.RUNNING)


def holdable(job: JobView) -> bool:
    return job.state in (JobState.QUEUED, JobState.PREEMPTED)
