"""Labels and taints that operators set on a node. These labels and taints override those of the
configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from wire.job.placement.affinity import KEY, Effect, Taint
from wire.job.spec import is_storable

_EFFECTS = [each.value for each in Effect]

LabelChanges = Mapping[str, str | None]
"""The new value of each label or taint, by name. None removes the label or taint. The name of a taint is
`key:Effect`.
"""


@dataclass(frozen=True, slots=True)
class NodeOverrides:
    """The labels and taints that operators set on one node. The value None hides a taint of the
    configuration, or a label of the configuration or the agent.
    """

    labels: LabelChanges = field(default_factory=dict)
    taints: LabelChanges = field(default_factory=dict)
    configured: tuple[Taint, ...] = ()
    """The taints of the configuration."""

    def effective_labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return `labels` with the changes that operators made."""
        return _over(labels, self.labels)

    def effective_taints(self) -> tuple[Taint, ...]:
        """Return the configured taints with the changes that operators made, sorted by name."""
        found = _over({taint_name(taint): taint.value for taint in self.configured}, self.taints)
        return tuple(taint_from_name(name, value) for name, value in sorted(found.items()))

    def updated(self, labels: LabelChanges, taints: LabelChanges, known: Mapping[str, str]) -> NodeOverrides:
        """Return a copy with the changes `labels` and `taints` of an operator.

        The value None removes a label or taint of an operator, and hides a label or taint of the
        configuration or the agent. `known` contains the node's labels from the configuration and the agent.
        """
        configured = {taint_name(taint) for taint in self.configured}
        return replace(
            self,
            labels=_merged(self.labels, labels, known),
            taints=_merged(self.taints, taints, configured),
        )


def taint_name(taint: Taint) -> str:
    """Return the name of a taint, `key:Effect`. A node has at most one taint with each name."""
    return f"{taint.key}:{taint.effect.value}"


def taint_from_name(name: str, value: str) -> Taint:
    key, _, effect = name.rpartition(":")
    return Taint(key, Effect(effect), value)


def override_problem(labels: LabelChanges, taints: LabelChanges) -> tuple[str, str] | None:
    """Return the first invalid change as (field, error message); None if all changes are valid."""
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
    return is_storable(value) and len(value) <= 200


def _over(below: Mapping[str, str], above: LabelChanges) -> dict[str, str]:
    return {name: value for name, value in {**below, **above}.items() if value is not None}


def _merged(before: LabelChanges, changes: LabelChanges, known: Mapping[str, str] | set[str]) -> LabelChanges:
    merged = {**before, **changes}
    return {name: value for name, value in merged.items() if value is not None or name in known}
