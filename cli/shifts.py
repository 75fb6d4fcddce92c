"""The answer to what-if: who would start when, and who would make room."""

from __future__ import annotations

import shlex
import sys

from cli.messages import note
from cli.options import options_of
from cli.output import Column, Format, Table
from cli.tables import RED, YELLOW
from wire.api.forecasts import Shift, WhatIfAnswer
from wire.text import duration

SHOWN = 10
"""Jobs that make room that are named."""


def show(answer: WhatIfAnswer, output: Format) -> int:
    """Print the answer; the exit code says whether all of it would be accepted."""
    _table(answer).show(output, answer.shifts, answer)
    if output in (Format.TABLE, Format.WIDE):
        sys.stdout.flush()
        for refused in answer.refused:
            note(f"This would be refused: {refused}")
        if answer.why is not None:
            note(f"It would wait: {answer.why.sentence}.")
        for easing in answer.easings:
            note(f"It would start at once {easing.sentence}: {shlex.join(options_of(easing.changes))}")
        for ousted in answer.preempted[:SHOWN]:
            lost = f"{ousted.gpu_hours:.1f} GPU-hours lost"
            note(
                f"Job {ousted.label} ({ousted.name}, {ousted.user}) would make room for {ousted.by}: {lost}."
            )
        if len(answer.preempted) > SHOWN:
            note(f"{len(answer.preempted) - SHOWN} more would make room.")
        if answer.passed_over:
            tables = ", ".join(f"[{name}]" for name in answer.passed_over)
            note(f"Not considered, though they differ from what runs: {tables}.")
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
