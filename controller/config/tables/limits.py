"""[access.limits] and [projects]: the most that callers may ask for, and the members of projects."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from controller.config.tables.fields import Name, Section
from wire.names import HIGHEST_PRIORITY, PRIORITIES


def _priority(value: Any) -> Any:
    """A priority by its name or its number."""
    if isinstance(value, str):
        if value.upper() not in PRIORITIES:
            names = ", ".join(PRIORITIES)
            raise ValueError(f"{value!r} is not a priority; write {names}, or a number from 0 to 100")
        return PRIORITIES[value.upper()]
    return value


Priority = Annotated[int, Field(ge=0, le=HIGHEST_PRIORITY), BeforeValidator(_priority)]
Seconds = Annotated[float, Field(ge=0, le=315_360_000)]


class LimitSection(Section):
    """One table of limits. For a key that is left out, another table decides."""

    priority: Priority | None = None
    not_preemptible: bool | None = None
    min_runtime_s: Seconds | None = None
    grace_s: Seconds | None = None
    deadline: bool | None = None


class OperatorLimits(LimitSection):
    """The limits of operators, also for what they give to jobs of users."""

    priority: Priority | None = HIGHEST_PRIORITY
    not_preemptible: bool | None = True
    deadline: bool | None = True


class LimitsSection(LimitSection):
    """The limits of users, and the tables with other limits for some of them."""

    priority: Priority | None = PRIORITIES["NORMAL"]
    not_preemptible: bool | None = False
    min_runtime_s: Seconds | None = 3_600.0
    grace_s: Seconds | None = 3_600.0
    operators: OperatorLimits = OperatorLimits()
    users: dict[Name, LimitSection] = {}
    projects: dict[Name, LimitSection] = {}
    queues: dict[Name, LimitSection] = {}


class ProjectSection(Section):
    """One project. Without members all users may submit to it."""

    members: list[Name] = []
