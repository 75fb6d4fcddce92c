"""The effect of a proposed change on the plan: which jobs the chart shows at other times, on other nodes or
in other colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from wire.api.forecasts import LIMIT, PlanEntry, Shift, WhatIfAnswer

NEW_JOB: Final = -1
"""The job id that the first job that is not submitted yet has in the chart. Further such jobs have the ids
-2, -3 and so on.
"""
LATER, SOONER, NEW = "warn", "good", "accent"
"""The styles of the jobs that a change affects: LATER for a job that would start later, never or be
preempted, SOONER for a job that would start sooner, and NEW for a job that is not submitted yet.
"""


@dataclass(frozen=True)
class PlanEffect:
    """The effect of a change: `shifts` has, by job id, the jobs whose start changes, and `new` the jobs that
    are not submitted yet.

    Example: a drain of gpu03 for four hours moves job 393 from 05:02 to 09:02. The chart then shows its bar
    four hours later, in the style LATER, and a mark where the bar was.
    """

    shifts: dict[int, Shift] = field(default_factory=dict)
    new: Sequence[Shift] = ()
    ended: frozenset[int] = frozenset()
    """The ids of the jobs that would be preempted."""

    @staticmethod
    def of(answer: WhatIfAnswer) -> PlanEffect:
        return PlanEffect(
            {shift.job: shift for shift in answer.shifts if not shift.new},
            [shift for shift in answer.shifts if shift.new and shift.becomes is not None],
            frozenset(each.job for each in answer.preempted),
        )

    def style(self, entry: PlanEntry) -> str | None:
        """Return the style in which the chart shows the job: LATER, SOONER or NEW; None if the change does
        not affect the job.
        """
        if entry.job <= NEW_JOB:
            return NEW
        if entry.job in self.ended:
            return LATER
        shift = self.shifts.get(entry.job)
        if shift is None:
            return None
        if shift.becomes is None:
            return LATER
        return LATER if shift.was is not None and shift.becomes > shift.was else SOONER

    def shifted_s(self, entry: PlanEntry) -> float:
        """Return the seconds by which the job would start later; negative for an earlier start. Return 0 if
        its start does not change, or is not known with and without the change.
        """
        shift = self.shifts.get(entry.job)
        if shift is None or shift.was is None or shift.becomes is None:
            return 0.0
        return shift.becomes - shift.was

    def with_new_jobs(self, entries: Sequence[PlanEntry], length_s: float) -> tuple[PlanEntry, ...]:
        """Return the jobs of the plan and the new jobs. A new job is drawn `length_s` seconds long, because
        the what-if answer does not contain its time limit.
        """
        added = tuple(
            PlanEntry(
                NEW_JOB - number,
                shift.label or "new",
                shift.name,
                shift.user,
                "",
                "",
                0.0,
                shift.nodes,
                shift.becomes or 0.0,
                (shift.becomes or 0.0) + length_s,
                LIMIT,
            )
            for number, shift in enumerate(self.new)
        )
        return (*entries, *added)

    def moved_nodes(self, entry: PlanEntry) -> PlanEntry:
        """Return the job with its nodes after the change, if the what-if answer names these nodes; otherwise
        return the job unchanged.
        """
        shift = self.shifts.get(entry.job)
        return replace(entry, nodes=shift.nodes) if shift is not None and shift.nodes else entry
