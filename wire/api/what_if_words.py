"""Summarises a what-if answer as text, for the command line and the terminal UI."""

from __future__ import annotations

import math
from typing import Optional

from wire.api.forecasts import Shift, WhatIfAnswer
from wire.text import counted, duration


def delay(answer: WhatIfAnswer, shift: Shift) -> float:
    """Return how many seconds later a job would start; below 0 if the job would start earlier. An unknown
    start counts as the end of the forecast; if the forecast is complete, it counts as infinitely late.
    """
    end = math.inf if answer.covers_until is None else answer.covers_until
    was, becomes = (end if at is None else at for at in (shift.was, shift.becomes))
    return 0.0 if was == becomes else becomes - was


def moment(answer: WhatIfAnswer, at: Optional[float]) -> str:
    """Return the start time `at` of a job as text for users, such as `in 2h10m`."""
    if at is None and answer.covers_until is not None:
        return f"after {duration(answer.covers_until - answer.now)}"
    if at is None:
        return "not known"
    return "now" if at - answer.now < 1 else f"in {duration(at - answer.now)}"


def counts(answer: WhatIfAnswer) -> tuple[int, int]:
    """Return the number of jobs that would start later, and the number of jobs that would start sooner. Both
    numbers include jobs that the answer does not list.
    """
    moved = [delay(answer, shift) for shift in answer.shifts if not shift.new]
    later = sum(each > 0 for each in moved)
    return max(answer.later, later), max(answer.sooner, len(moved) - later)


def hours(answer: WhatIfAnswer) -> str:
    """Return two sums as text: the hours of all delays, and the hours by which jobs start earlier. If both
    sums are below 0.05 hours, return an empty text.
    """
    if max(answer.later_h, answer.sooner_h) < 0.05:
        return ""
    return f"+{_hours(answer.later_h)} h / -{_hours(answer.sooner_h)} h waited"


def starts_known_in_one_case(answer: WhatIfAnswer) -> list[str]:
    """Return up to two clauses for users: the number of jobs whose start would become unknown by the changes,
    and the number of jobs whose start would become known. A clause with the number 0 is left out.
    """
    found = []
    if answer.now_unknown:
        found.append(f"the start of {counted(answer.now_unknown, 'job')} would no longer be known")
    if answer.now_known:
        found.append(f"the start of {counted(answer.now_known, 'job')} would become known")
    return found


def extent(answer: WhatIfAnswer) -> str:
    """Return a text on the limits of the answer: the number of jobs with small changes, which the answer does
    not list, the time up to which starts are known, and the number of jobs that start after this time. Return
    an empty text for an answer without such limits.
    """
    limits = []
    if answer.trifles:
        limits.append(f"{counted(answer.trifles, 'job')} would move by less than a minute or 5 % of the wait")
    if answer.covers_until is not None:
        limits.append(f"starts are known for the next {duration(answer.covers_until - answer.now)}")
        if answer.unknown:
            limits.append(
                f"{counted(answer.unknown, 'job')} {'starts' if answer.unknown == 1 else 'start'} later"
            )
    elif not answer.complete:
        limits.append("the forecast is not complete, because its time limit was reached")
    return "; ".join(limits)


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}"
