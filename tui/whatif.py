"""What the controller answers to what-if, in as many lines as there are."""

from __future__ import annotations

import math

from tui.paint import Piece, fit
from wire.api.forecasts import Shift, WhatIfAnswer
from wire.text import counted, duration, plain


def outcome(answer: WhatIfAnswer, lines: int) -> list[list[Piece]]:
    """Who would start sooner and who later, the longest delays first."""
    told: list[list[Piece]] = [
        [("would be refused: ", "bad"), (plain(refused, 300), "bad")] for refused in answer.refused[:1]
    ]
    new = [shift for shift in answer.shifts if shift.new]
    moved = sorted((shift for shift in answer.shifts if not shift.new), key=lambda shift: -abs(delay(shift)))
    told += [_start(answer, shift) for shift in new[:1]]
    if answer.shifts or not answer.refused:
        told.append(_summary(answer, moved))
    if answer.preempted:
        told.append([(f"{counted(len(answer.preempted), 'job')} would make room", "warn")])
    told += [_row(answer, shift) for shift in moved]
    return told[:lines]


def delay(shift: Shift) -> float:
    """How much later it would start; what is not foretold is as good as never."""
    was, becomes = (math.inf if at is None else at for at in (shift.was, shift.becomes))
    return 0.0 if was == becomes else becomes - was


def _summary(answer: WhatIfAnswer, moved: list[Shift]) -> list[Piece]:
    later = sum(delay(shift) > 0 for shift in moved)
    sooner = len(moved) - later
    pieces: list[Piece] = []
    if later:
        pieces += [(f"{later:,} start{'s' * (later == 1)} later", "warn"), (", ", "muted")]
    if sooner:
        pieces += [(f"{sooner:,} start{'s' * (sooner == 1)} sooner", "good"), (", ", "muted")]
    if not moved:
        pieces.append((f"nobody{' else' * (len(moved) < len(answer.shifts))} starts sooner or later", "text"))
    else:
        pieces.append((f"{answer.unchanged:,} as now", "muted"))
    if not answer.whole:
        pieces.append(("; behind jobs without a time limit nothing can be told", "faint"))
    return pieces


def _start(answer: WhatIfAnswer, shift: Shift) -> list[Piece]:
    where = f" on {plain(', '.join(shift.nodes), 60)}" if shift.nodes else ""
    pieces: list[Piece] = [(f"starts {_moment(answer, shift.becomes)}{where}", "strong")]
    if answer.why is not None:
        pieces.append((f": {plain(answer.why.sentence, 200)}", "muted"))
    return pieces


def _row(answer: WhatIfAnswer, shift: Shift) -> list[Piece]:
    later = delay(shift) > 0
    was, becomes = (_moment(answer, at) for at in (shift.was, shift.becomes))
    return [
        (fit("later" if later else "sooner", 8), "warn" if later else "good"),
        (fit(plain(shift.label), 7), "strong"),
        (f"{was} → {becomes}".ljust(22), "text"),
        (f" {plain(shift.name, 24)}  ", "text"),
        (plain(shift.user, 16), "muted"),
    ]


def _moment(answer: WhatIfAnswer, at: float | None) -> str:
    if at is None:
        return "not known"
    return "now" if at - answer.now < 1 else f"in {duration(at - answer.now)}"
