"""Wishes that no filter looks at: whoever has one would be placed as if it had none, and is not placed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from controller.core.plugin import Filter
from controller.core.requests import Part
from wire.affinity import Effect

NO_WISH = Part(0, 0)
HEED_HINT = "Leave it out, or have an operator put the filter into 'filters' in [scheduler]."


def unheeded(filters: Sequence[Filter], part: Part) -> str | None:
    """The first field of a spec that no filter concerns itself with; None: all are looked at."""
    for field, value in _wishes(part):
        wish: dict[str, Any] = {field: value}
        asked = replace(NO_WISH, **wish)
        if not any(each.concerns(asked) and not each.concerns(NO_WISH) for each in filters):
            return field
    return None


def _wishes(part: Part) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """What nodes have to meet and is no number, field by field."""
    if part.selector:
        yield "selector", part.selector
    if part.affinity:
        yield "affinity", part.affinity
    demanded = tuple(term for term in part.company if not term.prefer)
    if demanded:
        yield "company", demanded


def nobody_heeds(field: str) -> str:
    """What is said of such a wish."""
    return f"nothing here looks at {field}, for the filter {field!r} is not configured"


def unheeded_taint(filters: Sequence[Filter], taints: Mapping[str, str | None]) -> str | None:
    """A taint, written `key:effect`, that is to keep jobs away and would not; None: all do what they say."""
    if any(each.name == "taints" for each in filters):
        return None
    soft = f":{Effect.PREFER_NO_SCHEDULE.value}"
    return next(
        (each for each, value in taints.items() if value is not None and not each.endswith(soft)), None
    )
