"""Converts the tables [hours.NAME] in force to the object of wire.api for clients."""

from __future__ import annotations

from controller.core.model.job import NEVER
from controller.core.state.state import State
from wire.api.policy.shares import HoursInForce


def hours_in_force(state: State, now: float) -> HoursInForce | None:
    """Return the names of the tables [hours.NAME] that are in force now, the time of the next change (None if
    there is none), and the names of the tables in force after this change. Return None if scheduler.toml has
    no table [hours.NAME].
    """
    timetable = state.quotas.rules.timetable
    if not timetable.tables:
        return None
    until = timetable.next_change(now)
    present = timetable.in_force(now)
    return HoursInForce(present, *((None, ()) if until == NEVER else (until, timetable.in_force(until))))
