"""Labels and taints that operators set on a node, over those of its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from wire.affinity import KEY, Effect, Taint
from wire.spec import storable

_EFFECTS = [each.value for each in Effect]

Changes = Mapping[str, str | None]
"""Values by name; None takes away. A taint's name is `key:Effect`."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands over what a node has by itself: None hides it."""

    labels: Changes = field(default_factory=dict)
    taints: Changes = field(default_factory=dict)
    configured: tuple[Taint, ...] = ()
    """The taints of the configuration."""

    def over_labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """The labels as they count."""
        return _over(labels, self.labels)

    def over_taints(self) -> tuple[Taint, ...]:
        """The taints as they count, by name."""
        found = _over({name_of(taint): taint.value for taint in self.configured}, self.taints)
        return tuple(taint_named(name, value) for name, value in sorted(found.items()))

    def changed(self, labels: Changes, taints: Changes, known: Mapping[str, str]) -> Marks:
        """With these changes; `known` are the labels below. Nothing is hidden that is not there."""
        configured = {name_of(taint) for taint in self.configured}
        return replace(
            self,
            labels=_merged(self.labels, labels, known),
            taints=_merged(self.taints, taints, configured),
        )


def name_of(taint: Taint) -> str:
    """What a taint is known by: a node has at most one of a key and an effect."""
    return f"{taint.key}:{taint.effect.value}"


def taint_named(name: str, value: str) -> Taint:
    """The taint of that name."""
    key, _, effect = name.rpartition(":")
    return Taint(key, Effect(effect), value)


def mark_problem(labels: Changes, taints: Changes) -> tuple[str, str] | None:
    """What is wrong with the changes, as (field, sentence)."""
    for name, value in labels.items():
        if not KEY.fullmatch(name) or name == "node":
            return (
                f"labels.{name}",
                "is not a name for a label: letters, digits, '.', '_', '/', '-'; not 'node'",
            )
        if value is not None and not _storable(value):
            return f"labels.{name}", "must be Unicode text of at most 200 characters"
    for name, value in taints.items():
        key, _, effect = name.rpartition(":")
        if not KEY.fullmatch(key) or effect not in _EFFECTS:
            return f"taints.{name}", f"is not key:Effect with one of {', '.join(_EFFECTS)}"
        if value is not None and not _storable(value):
            return f"taints.{name}", "must be Unicode text of at most 200 characters"
    return None


def _storable(value: str) -> bool:
    return storable(value) and len(value) <= 200


def _over(below: Mapping[str, str], above: Changes) -> dict[str, str]:
    return {name: value for name, value in {**below, **above}.items() if value is not None}


def _merged(before: Changes, changes: Changes, known: Mapping[str, str] | set[str]) -> Changes:
    merged = {**before, **changes}
    return {name: value for name, value in merged.items() if value is not None or name in known}
