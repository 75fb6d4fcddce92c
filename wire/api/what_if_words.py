"""Sums of a what-if answer as text, for the command line and the terminal UI."""

from __future__ import annotations

import math
from typing import Optional

from wire.api.forecasts import Shift, WhatIfAnswer
from wire.text import counted, duration


def delay(answer: WhatIfAnswer, shift: Shift) -> float:
    """Seconds by which the job would start later; below 0: sooner. A start beyond what is known counts as
    the end of what is known, and as never if nothing was cut off.
    """
    end = math.inf if answer.covers_until is None else answer.covers_until
    was, becomes = (end if at is None else at for at in (shift.was, shift.becomes))
    return 0.0 if was == becomes else becomes - was


def moment(answer: WhatIfAnswer, at: Optional[float]) -> str:
    """A start as a time from now, as text."""
    if at is None and answer.covers_until is not None:
        return f"after {duration(answer.covers_until - answer.now)}"
    if at is None:
        return "not known"
    return "now" if at - answer.now < 1 else f"in {duration(at - answer.now)}"


def counts(answer: WhatIfAnswer) -> tuple[int, int]:
    """The number of jobs that would start later, and sooner; the answer may list only some of them."""
    moved = [delay(answer, shift) for shift in answer.shifts if not shift.new]
    later = sum(each > 0 for each in moved)
    return max(answer.later, later), max(answer.sooner, len(moved) - later)


def hours(answer: WhatIfAnswer) -> str:
    """The waiting hours gained and lost, as text; empty if there are none."""
    if max(answer.later_h, answer.sooner_h) < 0.05:
        return ""
    return f"+{_hours(answer.later_h)} h / -{_hours(answer.sooner_h)} h waited"


def extent(answer: WhatIfAnswer) -> str:
    """What the answer does not cover; empty if it covers everything."""
    told = []
    if answer.trifles:
        told.append(f"{counted(answer.trifles, 'job')} would move by less than a minute or 5 % of the wait")
    if answer.covers_until is not None:
        told.append(f"starts are known for the next {duration(answer.covers_until - answer.now)}")
        if answer.unknown:
            told.append(
                f"{counted(answer.unknown, 'job')} {'starts' if answer.unknown == 1 else 'start'} later"
            )
    elif not answer.complete:
        told.append("not everything could be worked out in time")
    return "; ".join(told)


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.1f}"
