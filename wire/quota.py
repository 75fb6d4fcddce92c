"""What users, projects and queues may hold: limits in the units that jobs are asked for in."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Optional

UNLIMITED = -1
"""In a limit: none at all, even where somebody else sets one."""

SCOPES = ("user", "project", "queue")
EVERYBODY = "*"
"""The name whose limits hold for each user (or project, or queue) that has none of its own."""


@dataclass(frozen=True)
class Limits:
    """None: nothing said about it."""

    cpu_milli: Optional[int] = None
    memory_mib: Optional[int] = None
    gpus: Optional[float] = None
    running: Optional[int] = None
    queued: Optional[int] = None
    gpu_hours: Optional[float] = None

    def over(self, below: Limits) -> Limits:
        """These, and where they say nothing the others."""
        mine = {each.name: getattr(self, each.name) for each in fields(self)}
        return Limits(
            **{name: getattr(below, name) if value is None else value for name, value in mine.items()}
        )


NOTHING = Limits()


@dataclass(frozen=True)
class Quota:
    """`hard` is never exceeded; who is over `soft` comes after everybody else.

    A project may go beyond its hard limit by `borrow`, out of what other projects leave unused of theirs.
    """

    hard: Limits = NOTHING
    soft: Limits = NOTHING
    borrow: Limits = NOTHING

    def over(self, below: Quota) -> Quota:
        """This, and where it says nothing the other."""
        return Quota(self.hard.over(below.hard), self.soft.over(below.soft), self.borrow.over(below.borrow))


def problems(scope: str, quota: Quota) -> list[tuple[str, str]]:
    """Everything wrong with a quota by itself, as (field, sentence)."""
    found = []
    for part in fields(quota):
        limits: Limits = getattr(quota, part.name)
        for each in fields(limits):
            value = getattr(limits, each.name)
            where = f"{part.name}.{each.name}"
            if value is not None and value != UNLIMITED and not 0 <= value <= 1 << 50:
                found.append((where, "must not be negative"))
            if value is not None and part.name == "soft" and each.name == "queued":
                found.append((where, "only a hard limit on queued jobs means anything"))
            if value is not None and part.name == "borrow":
                if scope != "project":
                    found.append((where, "only projects borrow from each other"))
                elif each.name in ("queued", "gpu_hours"):
                    found.append((where, "cannot be borrowed"))
    return found
