"""Converts the answer to a what-if request to lines of text."""

from __future__ import annotations

from typing import Final

from tui.look.styled_lines import Piece, fit
from wire.api.forecasts import Shift, WhatIfAnswer
from wire.api.what_if_words import counts, delay, extent, hours, moment, starts_known_in_one_case
from wire.text import counted, printable

WORST_AND_BEST: Final = {"later": "worst", "sooner": "best"}
"""The word before the job with the largest delay, and the word before the job with the largest gain."""


def what_if_lines(answer: WhatIfAnswer, lines: int) -> list[list[Piece]]:
    """Return at most `lines` lines: a refused change, the start of the first new job, a summary, the numbers
    of jobs that would be preempted, moved or ended, and then the jobs of `_worst_and_best`.
    """
    found: list[list[Piece]] = [
        [("would be refused: ", "bad"), (printable(refused, 300), "bad")] for refused in answer.refused[:1]
    ]
    new = [shift for shift in answer.shifts if shift.new]
    moved = [shift for shift in answer.shifts if not shift.new]
    found += [_start(answer, shift) for shift in new[:1]]
    if answer.shifts or not answer.refused:
        found.append(_summary(answer, moved))
    if answer.preempted:
        found.append([(f"{counted(len(answer.preempted), 'job')} would be preempted", "warn")])
    for how in ("moved", "ended"):
        leaving = sum(each.how == how for each in answer.leaving)
        if leaving:
            found.append([(f"{counted(leaving, 'job')} would be {how}", "warn" if how == "moved" else "bad")])
    shown = _worst_and_best(answer, moved, max(0, lines - len(found)))
    named: set[str] = set()
    for shift in shown:
        word = "later" if delay(answer, shift) > 0 else "sooner"
        found.append(_row(answer, shift, word if word in named else WORST_AND_BEST[word]))
        named.add(word)
    return found[:lines]


def _summary(answer: WhatIfAnswer, moved: list[Shift]) -> list[Piece]:
    later, sooner = counts(answer)
    pieces: list[Piece] = []
    if later:
        pieces += [(f"{later:,} start{'s' * (later == 1)} later", "warn"), (", ", "muted")]
    if sooner:
        pieces += [(f"{sooner:,} start{'s' * (sooner == 1)} sooner", "good"), (", ", "muted")]
    if not later and not sooner:
        other = "other " * (len(moved) < len(answer.shifts))
        known = " with a known start" if answer.not_known else ""
        pieces.append((f"no {other}job{known} starts sooner or later", "text"))
    else:
        pieces.append((f"{answer.unchanged:,} as now", "muted"))
    if answer.not_known:
        pieces.append((f", {answer.not_known:,} not known", "warn"))
    if waited := hours(answer):
        pieces.append((f"; {waited}", "text"))
    if not answer.whole:
        pieces.append(("; starts after a job without a time limit are unknown", "faint"))
    pieces += [
        (f"; {sentence}", "faint")
        for sentence in (*starts_known_in_one_case(answer), extent(answer))
        if sentence
    ]
    return pieces


def _worst_and_best(answer: WhatIfAnswer, shifts: list[Shift], limit: int) -> list[Shift]:
    """Return at most `limit` jobs: first the jobs that would start later, the largest delay first; then the
    jobs that would start earlier, the largest gain first. Each of the two groups gets half of the list. If a
    group has fewer jobs than that, the other group gets the rest.
    """
    later = sorted(
        (each for each in shifts if delay(answer, each) > 0), key=lambda each: -delay(answer, each)
    )
    sooner = sorted(
        (each for each in shifts if delay(answer, each) <= 0), key=lambda each: delay(answer, each)
    )
    most = max(limit - len(sooner), (limit + 1) // 2)
    return [*later[:most], *sooner][:limit]


def _start(answer: WhatIfAnswer, shift: Shift) -> list[Piece]:
    where = f" on {printable(', '.join(shift.nodes), 60)}" if shift.nodes else ""
    pieces: list[Piece] = [(f"starts {moment(answer, shift.becomes)}{where}", "strong")]
    if answer.why is not None:
        pieces.append((f": {printable(answer.why.sentence, 200)}", "muted"))
    return pieces


def _row(answer: WhatIfAnswer, shift: Shift, word: str) -> list[Piece]:
    later = delay(answer, shift) > 0
    was, becomes = (moment(answer, at) for at in (shift.was, shift.becomes))
    return [
        (fit(word, 8), "warn" if later else "good"),
        (fit(printable(shift.label), 7), "strong"),
        (f"{was} → {becomes}".ljust(22), "text"),
        (f" {printable(shift.name, 24)}  ", "text"),
        (printable(shift.user, 16), "muted"),
    ]
