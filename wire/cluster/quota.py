"""Quotas of users, projects and queues. A quota sets limits on the resources that running jobs use, and on
numbers of jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Callable, Optional

from wire import amounts
from wire.text import memory

UNLIMITED = -1
"""A limit with this value means no limit, even if the quota named '*' sets one."""

SCOPES = ("user", "project", "queue")
ANY_NAME = "*"
"""The quota with this name applies to each user, project or queue that has no quota of its own."""


@dataclass(frozen=True)
class Limits:
    """Limits on the resources and jobs of a user, project or queue. A limit that is None is not set here,
    so that a more general quota may set it.
    """

    cpu_milli: Optional[int] = None
    memory_mib: Optional[int] = None
    gpus: Optional[float] = None
    running: Optional[int] = None
    queued: Optional[int] = None
    gpu_hours: Optional[float] = None

    def over(self, below: Limits) -> Limits:
        """Return these limits, with each limit that is None replaced by the limit in `below`."""
        mine = {each.name: getattr(self, each.name) for each in fields(self)}
        return Limits(
            **{name: getattr(below, name) if value is None else value for name, value in mine.items()}
        )


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Amount:
    """One kind of limit: its name in commands, its field in `Limits`, and functions to parse and print its
    value.
    """

    word: str
    field: str
    read: Callable[[str], Any]
    text: Callable[[Any], str]

    def read_limit(self, text: str) -> Any:
        """Return the value of a limit that a user wrote; "none" means no limit. Raise ValueError if the
        text is not a valid value.
        """
        if text.lower() == "none":
            return UNLIMITED
        try:
            return self.read(text)
        except ValueError as error:
            raise ValueError(f"{error}, or none") from None

    def limit_text(self, limits: Limits) -> str:
        """Return the value of this limit as text that `read_limit` can parse; empty if `limits` does not
        set it.
        """
        value = getattr(limits, self.field)
        return "" if value is None else "none" if value == UNLIMITED else self.text(value)


AMOUNTS = (
    Amount("gpus", "gpus", amounts.gpus, "{:g}".format),
    Amount("cpus", "cpu_milli", amounts.cores_milli, lambda milli: f"{milli / 1000:g}"),
    Amount("memory", "memory_mib", amounts.memory_mib, memory),
    Amount("running", "running", amounts.whole, str),
    Amount("queued", "queued", amounts.whole, str),
    Amount("gpu-hours", "gpu_hours", amounts.number, "{:g}".format),
)


@dataclass(frozen=True)
class Quota:
    """The limits of a user, project or queue. Jobs that would exceed a `hard` limit wait. Jobs that would
    exceed a `soft` limit start after all other jobs.

    A project may exceed its `hard` limit by the amounts in `borrow`, as long as other projects use less than
    their own quotas by the same amounts.
    """

    hard: Limits = NO_LIMITS
    soft: Limits = NO_LIMITS
    borrow: Limits = NO_LIMITS

    def over(self, below: Quota) -> Quota:
        """Return a quota with the limits that this quota sets. Each limit that it does not set is taken from
        `below`, a more general quota.
        """
        return Quota(self.hard.over(below.hard), self.soft.over(below.soft), self.borrow.over(below.borrow))


def quota_problems(scope: str, quota: Quota) -> list[tuple[str, str]]:
    """Return the errors in a quota, each as (field name, sentence for users)."""
    found = []
    for part in fields(quota):
        limits: Limits = getattr(quota, part.name)
        for each in fields(limits):
            value = getattr(limits, each.name)
            where = f"{part.name}.{each.name}"
            if value is not None and value != UNLIMITED and not 0 <= value <= 1 << 50:
                found.append((where, "must not be negative"))
            if value is not None and part.name == "soft" and each.name == "queued":
                found.append((where, "only a hard limit on queued jobs has an effect"))
            if value is not None and part.name == "borrow":
                if scope != "project":
                    found.append((where, "only projects borrow from each other"))
                elif each.name in ("queued", "gpu_hours"):
                    found.append((where, "cannot be borrowed"))
    return found
