"""corral what-if …: what would change, asked before it is done."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cli.asked import Asked, asking
from cli.commands import application, examples
from cli.jobs import spec_of
from cli.messages import note
from cli.output import Column, Format, Output, Table
from cli.selection import Jobs, select
from cli.shares import Hard, Share, Soft, Weight, change_of
from cli.submit import JOB_SETTINGS, JobCommand, Words
from cli.tables import RED, YELLOW
from wire.api import Shift, WhatIf, WhatIfAnswer
from wire.client import Client
from wire.text import duration

SHOWN = 10
"""Jobs that make room that are named."""
Nodes = Annotated[list[str], typer.Argument(metavar="NODE...", help="Names of nodes.", show_default=False)]

app = application("Ask what would change, before doing it. Nothing is done.")


@app.command(
    "submit",
    cls=JobCommand,
    context_settings=JOB_SETTINGS,
    epilog=examples(
        "corral what-if submit --gpus 8 --time 4h -- python train.py",
        "corral what-if submit --gpus 16 --nodes 2 --priority high train.sh",
    ),
)
@asking
def submit(
    context: typer.Context,
    asked: Asked,
    words: Words = [],  # noqa: B006 - never changed
    output: Output = Format.TABLE,
) -> int:
    """When would this job start, and who would start later because of it?"""
    spec = spec_of(asked, words, is_command=context.meta["is_command"])
    return _answer(WhatIf(submit=(spec,)), output)


@app.command(epilog=examples("corral what-if cancel 7", "corral what-if cancel 7_[0-3]"))
def cancel(jobs: Jobs, output: Output = Format.TABLE) -> int:
    """Who would start sooner if these jobs were cancelled?"""
    found = select(Client(), jobs, mine=False)
    return _answer(WhatIf(cancel=tuple(job.id for job in found)), output)


@app.command(epilog=examples("corral what-if drain gpu01", "corral what-if drain gpu01 gpu02 -o json"))
def drain(nodes: Nodes, output: Output = Format.TABLE) -> int:
    """Who would start later if these nodes took no new work?"""
    return _answer(WhatIf(drain=tuple(nodes)), output)


@app.command(epilog=examples("corral what-if resume gpu01"))
def resume(nodes: Nodes, output: Output = Format.TABLE) -> int:
    """Who would start sooner if these nodes took work again?"""
    return _answer(WhatIf(resume=tuple(nodes)), output)


@app.command(epilog=examples("corral what-if share vision 3", "corral what-if share vision/ada --hard 500"))
def share(
    name: Share,
    weight: Weight = None,
    soft: Soft = None,
    hard: Hard = None,
    output: Output = Format.TABLE,
) -> int:
    """Who would start sooner and who later if this share had another weight, or other limits?"""
    return _answer(WhatIf(shares=(change_of(name, weight, soft, hard),)), output)


def _answer(asked: WhatIf, output: Format) -> int:
    answer = Client().what_if(asked)
    _table(answer).show(output, answer.shifts, answer)
    if output in (Format.TABLE, Format.WIDE):
        sys.stdout.flush()
        for refused in answer.refused:
            note(f"This would be refused: {refused}")
        for ousted in answer.preempted[:SHOWN]:
            lost = f"{ousted.gpu_hours:.1f} GPU-hours lost"
            note(
                f"Job {ousted.label} ({ousted.name}, {ousted.user}) would make room for {ousted.by}: {lost}."
            )
        if len(answer.preempted) > SHOWN:
            note(f"{len(answer.preempted) - SHOWN} more would make room.")
        note(_summary(answer))
    return 5 if answer.refused else 0


def _summary(answer: WhatIfAnswer) -> str:
    moved = [shift for shift in answer.shifts if not shift.new]
    later = sum(_delay(shift) > 0 for shift in moved)
    told = f"{later} would start later, {len(moved) - later} sooner, {answer.unchanged} as now."
    if not answer.whole:
        told += " Jobs without a time limit hide what comes after them."
    return told


def _table(answer: WhatIfAnswer) -> Table[Shift]:
    def moment(at: float | None) -> str:
        if at is None:
            return "not known"
        return "now" if at - answer.now < 1 else f"in {duration(at - answer.now)}"

    return Table(
        [
            Column("JOB", lambda shift: "(new)" if shift.new else shift.label, right=True),
            Column("NAME", lambda shift: shift.name, keep=1, least=8),
            Column("USER", lambda shift: shift.user, keep=2),
            Column("STARTS", lambda shift: "-" if shift.new else moment(shift.was)),
            Column("THEN", lambda shift: moment(shift.becomes)),
            Column("DELAY", _told, colour=lambda shift: RED if _delay(shift) > 0 else YELLOW),
            Column("ON", lambda shift: ",".join(shift.nodes), keep=3, least=6),
        ],
        lambda shift: shift.label,
    )


def _told(shift: Shift) -> str:
    if shift.new or shift.was is None or shift.becomes is None:
        return "-"
    return f"{'+' if _delay(shift) > 0 else '-'}{duration(abs(_delay(shift)))}"


def _delay(shift: Shift) -> float:
    if shift.becomes is None:
        return float("inf")
    return shift.becomes - (float("inf") if shift.was is None else shift.was)
