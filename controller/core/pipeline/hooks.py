"""Interfaces of plugins that inform other systems: metrics plugins, and hooks for placements."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from controller.core.model.allocation import Allocation

if TYPE_CHECKING:
    from controller.core.state.state import State

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
OURS = "corral_"
"""The prefix of the names of the controller's own metrics. Plugins must not use this prefix."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of a Prometheus metric. `labels` distinguish samples with the same name."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    about: str = ""
    kind: str = "gauge"
    """"gauge", or "counter" for a value that never decreases."""


class MetricsSource(Protocol):
    """A metrics plugin. It must not change the state. It must be fast, because the engine waits for it."""

    name: ClassVar[str]

    def collect(self, state: State, now: float) -> Iterable[Sample]:
        """Return the samples for the state at the time `now`."""
        ...


@dataclass(frozen=True, slots=True)
class Placed:
    """The placement of a job: the object that hook plugins receive."""

    job: int
    label: str
    name: str
    user: str
    project: str
    queue: str
    attempt: int
    at: float
    waited_s: float
    nodes: tuple[Allocation, ...]


class Hook(Protocol):
    """A hook: a plugin that is called for each placement of a job. Plugins of other kinds may also have the
    method `on_placed`.
    """

    name: ClassVar[str]

    def on_placed(self, placed: Placed) -> None:
        """Inform another system of a placement. This method is called after the placement is on disk, in a
        separate thread. It is called for one placement at a time.
        """
        ...


def sample_problem(sample: Any) -> str:
    """Return the first mistake in the name, kind, value or labels of a Prometheus sample from a plugin.
    Return an empty text if there is none.
    """
    if not isinstance(sample, Sample):
        return f"gave a {type(sample).__name__}, not a Sample"
    if not _NAME.fullmatch(sample.name) or sample.name.startswith(OURS):
        return f"gave the metric name {sample.name!r}: use letters, digits and _, and not the prefix {OURS}"
    if sample.kind not in ("gauge", "counter"):
        return f"gave the unknown kind {sample.kind!r}: use 'gauge' or 'counter'"
    if not isinstance(sample.value, int | float) or math.isnan(sample.value):
        return f"gave {sample.value!r} for {sample.name}, which is not a number"
    strange = [key for key in sample.labels if not _LABEL.fullmatch(key)]
    return f"gave an invalid label name {strange[0]!r}" if strange else ""
