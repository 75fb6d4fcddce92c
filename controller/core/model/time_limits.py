"""The settings about the time limits of running jobs: their extension, and the warning before a limit ends a
job.
"""

from __future__ import annotations

from dataclasses import dataclass

WARNING_PART = 0.1
"""The owner of a job is warned at the earliest when only this fraction of the job's time limit is left."""


@dataclass(frozen=True, slots=True)
class ShortLimit:
    """A time limit, in seconds, that is shorter than the job requests, so that the job could start earlier
    (`--time-min`). `why` says why the limit is not longer.
    """

    limit_s: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class TimeLimitRules:
    """The settings of [jobs] in scheduler.toml about the time limits of running jobs."""

    owners_may_extend: bool = True
    """True: the owner of a running job may extend its limit if no planned start of another job is delayed."""
    warning_s: float = 600.0
    """The owner is warned at most this many seconds before the time limit ends a job; 0: no warning."""
    ends_backfilled: bool = False
    """True: the preemption strategy `window` is in use. It may preempt a backfilled job after its predicted
    end, for another job that was already waiting when the backfilled job started. The owner is then also
    warned before the predicted end.
    """

    def lead_s(self, limit_s: float) -> float:
        """Return how many seconds before the end of a job its owner is warned. `limit_s` is the job's time
        limit in seconds.
        """
        return min(self.warning_s, WARNING_PART * limit_s)


TIME_LIMIT_RULES = TimeLimitRules()
