"""[access.limits] and [projects]: the most that callers may request, and the members of projects."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from controller.config.tables.fields import Name, Section
from wire.names import HIGHEST_PRIORITY, PRIORITIES


def _priority(value: Any) -> Any:
    """Convert the name of a priority to its number; other values stay unchanged."""
    if isinstance(value, str):
        if value.upper() not in PRIORITIES:
            names = ", ".join(PRIORITIES)
            raise ValueError(f"{value!r} is not a priority; write {names}, or a number from 0 to 100")
        return PRIORITIES[value.upper()]
    return value


Priority = Annotated[int, Field(ge=0, le=HIGHEST_PRIORITY), BeforeValidator(_priority)]
Seconds = Annotated[float, Field(ge=0, le=315_360_000)]


class LimitSection(Section):
    """One table of limits. If a key is missing, another table decides."""

    priority: Priority | None = None
    not_preemptible: bool | None = None
    min_runtime_s: Seconds | None = None
    grace_s: Seconds | None = None
    deadline: bool | None = None


class OperatorLimits(LimitSection):
    """The limits of operators. They also apply to what operators set on jobs of users."""

    priority: Priority | None = HIGHEST_PRIORITY
    not_preemptible: bool | None = True
    deadline: bool | None = True


class LimitsSection(LimitSection):
    """The limits of users, with tables of other limits for some users."""

    priority: Priority | None = PRIORITIES["NORMAL"]
    not_preemptible: bool | None = False
    min_runtime_s: Seconds | None = 3_600.0
    grace_s: Seconds | None = 3_600.0
    operators: OperatorLimits = OperatorLimits()
    users: dict[Name, LimitSection] = {}
    projects: dict[Name, LimitSection] = {}
    queues: dict[Name, LimitSection] = {}


class ProjectSection(Section):
    """One project. If it has no members, all users may submit to it."""

    members: list[Name] = []
