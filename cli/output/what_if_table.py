"""Prints the answer to a what-if request: changed start times, and jobs that would be preempted."""

from __future__ import annotations

import sys
from typing import Annotated

from cli.flags import switch
from cli.output.formats import Column, Format, Table
from cli.output.stderr import print_note
from cli.output.table_columns import RED, YELLOW
from cli.spec.spec_to_flags import command_of
from wire.api.forecasts import Shift, WhatIfAnswer
from wire.api.what_if_words import counts, delay, extent, hours, moment, starts_known_in_one_case
from wire.text import duration

DryRun = Annotated[
    bool, switch("--dry-run", "Change nothing. Only show which jobs would start earlier and which later.")
]
"""The flag --dry-run of commands that change the cluster."""

SHOWN = 10
"""The most jobs of each kind that are shown: jobs that would start later, jobs that would start earlier,
preempted jobs, and jobs that would be moved or ended. -o json shows more jobs.
"""


def show(answer: WhatIfAnswer, output: Format) -> int:
    """Print the answer. Return exit code 5 if part of the change would be refused, otherwise 0."""
    few = output in (Format.TABLE, Format.WIDE)
    _table(answer).show(output, _worst_and_best(answer, SHOWN) if few else answer.shifts, answer)
    if few:
        sys.stdout.flush()
        for refused in answer.refused:
            print_note(f"This would be refused: {refused}")
        if answer.why is not None:
            print_note(f"It would wait: {answer.why.sentence}.")
        for easing in answer.easings:
            print_note(f"It would start at once {easing.sentence}: {command_of(easing)}")
        for ousted in answer.preempted[:SHOWN]:
            lost = f"{ousted.gpu_hours:.1f} GPU-hours lost"
            print_note(
                f"Job {ousted.label} ({ousted.name}, {ousted.user}) is preempted for {ousted.by}: {lost}."
            )
        for leaving in answer.leaving[:SHOWN]:
            print_note(f"Job {leaving.label} ({leaving.name}, {leaving.user}) is {leaving.how}.")
        if len(answer.leaving) > SHOWN:
            print_note(f"{len(answer.leaving) - SHOWN} more jobs would be moved or ended.")
        if len(answer.preempted) > SHOWN:
            print_note(f"{len(answer.preempted) - SHOWN} more jobs would be preempted.")
        if answer.passed_over:
            tables = ", ".join(f"[{name}]" for name in answer.passed_over)
            print_note(f"Not considered, although they differ from the configuration in effect: {tables}.")
        _sum_up(answer)
    return 5 if answer.refused else 0


def summarise(answer: WhatIfAnswer) -> None:
    """Print on stderr the refused parts of the change, the jobs with the largest changes of their start time,
    and the number of jobs that would start later or sooner.
    """
    for refused in answer.refused:
        print_note(f"This would be refused: {refused}")
    shown = _worst_and_best(answer, SHOWN // 2)
    for line in _table(answer).lines(shown, None) if shown else ():
        print_note(line)
    _sum_up(answer)


def _worst_and_best(answer: WhatIfAnswer, limit: int) -> list[Shift]:
    """Return at most twice `limit` jobs that the change would submit, then at most `limit` jobs with the
    largest delays, then at most `limit` jobs whose start becomes earlier by the longest times.
    """
    new = [shift for shift in answer.shifts if shift.new]
    moved = [shift for shift in answer.shifts if not shift.new]
    later = [shift for shift in moved if delay(answer, shift) > 0]
    sooner = [shift for shift in moved if delay(answer, shift) <= 0]
    later.sort(key=lambda shift: -delay(answer, shift))
    sooner.sort(key=lambda shift: delay(answer, shift))
    return [*new[: 2 * limit], *later[:limit], *sooner[:limit]]


def _sum_up(answer: WhatIfAnswer) -> None:
    later, sooner = counts(answer)
    waited = hours(answer)
    line = f"{later} would start later, {sooner} sooner, {answer.unchanged} as now"
    if answer.not_known:
        line += f", {answer.not_known} not known"
    print_note(f"{line}{f' ({waited})' if waited else ''}.")
    if not answer.whole:
        print_note("Start times that depend on the end of a job without a time limit are unknown.")
    for sentence in (*starts_known_in_one_case(answer), extent(answer)):
        if sentence:
            print_note(f"{sentence[0].upper()}{sentence[1:]}.")
    if answer.covers_until is not None:
        print_note("Add --within 10s, or more, to look further ahead.")


def _table(answer: WhatIfAnswer) -> Table[Shift]:
    return Table(
        [
            Column("JOB", lambda shift: "(new)" if shift.new else shift.label, right=True),
            Column("NAME", lambda shift: shift.name, rank=1, narrow=8),
            Column("USER", lambda shift: shift.user, rank=2),
            Column("STARTS", lambda shift: "-" if shift.new else moment(answer, shift.was)),
            Column("THEN", lambda shift: moment(answer, shift.becomes)),
            Column(
                "DELAY",
                lambda shift: _change_text(answer, shift),
                colour=lambda shift: RED if delay(answer, shift) > 0 else YELLOW,
            ),
            Column("ON", lambda shift: ",".join(shift.nodes), rank=3, narrow=6),
        ],
        lambda shift: shift.label,
        kind=Shift,
    )


def _change_text(answer: WhatIfAnswer, shift: Shift) -> str:
    seconds = delay(answer, shift)
    if shift.new:
        return "-"
    if abs(seconds) == float("inf"):
        return "not known"
    least = ">" if shift.was is None or shift.becomes is None else ""
    return f"{least}{'+' if seconds > 0 else '-'}{duration(abs(seconds))}"
