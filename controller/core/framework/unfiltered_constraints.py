"""Finds constraints of a job that no filter in the configuration checks. A job with such a constraint is
refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from controller.core.framework.interfaces import Filter
from controller.core.model.request import PerNodeRequest
from wire.job.placement.affinity import Effect

NO_CONSTRAINTS = PerNodeRequest(0, 0)
UNFILTERED_HINT = "Leave it out, or have an operator put the filter into 'filters' in [scheduler]."


def first_unfiltered(filters: Sequence[Filter], part: PerNodeRequest) -> str | None:
    """Return the field name of the first constraint of the request that no filter checks; None if all
    constraints are checked.
    """
    for field, value in _constraints(part):
        constraint: dict[str, Any] = {field: value}
        asked = replace(NO_CONSTRAINTS, **constraint)
        if not any(each.concerns(asked) and not each.concerns(NO_CONSTRAINTS) for each in filters):
            return field
    return None


def _constraints(part: PerNodeRequest) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield (field name, values) for each constraint of the request on nodes or other jobs. Amounts such as
    CPUs are not constraints.
    """
    if part.selector:
        yield "selector", part.selector
    if part.affinity:
        yield "affinity", part.affinity
    demanded = tuple(term for term in part.company if not term.prefer)
    if demanded:
        yield "company", demanded


def unfiltered_message(field: str) -> str:
    return f"{field} cannot be checked, because the filter {field!r} is not configured"


def unfiltered_taint(filters: Sequence[Filter], taints: Mapping[str, str | None]) -> str | None:
    """Return the first of the new taints, as `key:Effect`, that no filter enforces; None if all are enforced.
    Taints with the effect PreferNoSchedule need no filter.
    """
    if any(each.name == "taints" for each in filters):
        return None
    soft = f":{Effect.PREFER_NO_SCHEDULE.value}"
    return next(
        (each for each, value in taints.items() if value is not None and not each.endswith(soft)), None
    )
