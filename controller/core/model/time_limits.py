"""The settings about the time limits of running jobs: their extension, and the warning before their end."""

from __future__ import annotations

from dataclasses import dataclass

WARNING_PART = 0.1
"""A warning comes at most this fraction of the time limit before the end."""


@dataclass(frozen=True, slots=True)
class ShortLimit:
    """A time limit in seconds that is shorter than the job requests. The scheduler gave it to the attempt, so
    that the job could start earlier (`--time-min`). `why` names the reason.
    """

    limit_s: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class TimeLimitRules:
    """The settings of [jobs] in scheduler.toml about the time limits of running jobs."""

    owners_may_extend: bool = True
    """True: the owner of a running job may extend its limit if no promised start is delayed by it."""
    warning_s: float = 600.0
    """The owner is warned this many seconds before the time limit ends a job; 0: no warning."""
    ends_backfilled: bool = False
    """True: a job that runs longer than predicted may be preempted for a job that waited before it started
    (preemption strategy `window`). The owner is warned before the predicted end, too.
    """

    def lead_s(self, limit_s: float) -> float:
        """Return how many seconds before the end a job with this time limit is warned of it."""
        return min(self.warning_s, WARNING_PART * limit_s)


TIME_LIMIT_RULES = TimeLimitRules()
