"""[access.limits]: the greatest values, for example the highest priority, that users and operators may
request.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from controller.config.tables.fields import Name, Section
from wire.names import HIGHEST_PRIORITY, PRIORITIES


def _priority(value: Any) -> Any:
    """Return the number of a priority that is written as a name; other values are returned unchanged."""
    if isinstance(value, str):
        if value.upper() not in PRIORITIES:
            names = ", ".join(PRIORITIES)
            raise ValueError(f"{value!r} is not a priority; write {names}, or a number from 0 to 100")
        return PRIORITIES[value.upper()]
    return value


Priority = Annotated[int, Field(ge=0, le=HIGHEST_PRIORITY), BeforeValidator(_priority)]
Seconds = Annotated[float, Field(ge=0, le=315_360_000)]


class LimitSection(Section):
    """One table with the greatest values that users may request for a job.

    Up to four tables apply to a job, in this order: the tables of its queue, of its user, of its project, and
    of all users. The value of a key comes from the first of these tables that contains the key.
    """

    priority: Priority | None = None
    not_preemptible: bool | None = None
    min_runtime_s: Seconds | None = None
    grace_s: Seconds | None = None
    deadline: bool | None = None


class OperatorLimits(LimitSection):
    """The greatest values that operators may request, also in edits of other users' jobs."""

    priority: Priority | None = HIGHEST_PRIORITY
    not_preemptible: bool | None = True
    deadline: bool | None = True


class LimitsSection(LimitSection):
    """The greatest values that users may request, and tables with other limits for single users, projects and
    queues."""

    priority: Priority | None = PRIORITIES["NORMAL"]
    not_preemptible: bool | None = False
    min_runtime_s: Seconds | None = 3_600.0
    grace_s: Seconds | None = 3_600.0
    operators: OperatorLimits = OperatorLimits()
    users: dict[Name, LimitSection] = {}
    projects: dict[Name, LimitSection] = {}
    queues: dict[Name, LimitSection] = {}
