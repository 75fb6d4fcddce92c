"""The settings about the time limits of running jobs: their extension, and the warning before their end."""

from __future__ import annotations

from dataclasses import dataclass


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


TIME_LIMIT_RULES = TimeLimitRules()
