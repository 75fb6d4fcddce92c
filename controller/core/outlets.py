"""What plugins tell the world outside: figures for whoever watches, and placements once they are on disk."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from controller.core.events import Allocation

if TYPE_CHECKING:
    from controller.core.state import State

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
OURS = "corral_"
"""How the controller's own figures begin; those of plugins begin otherwise."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure, as Prometheus knows them; `labels` tell it from others of its name."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    about: str = ""
    kind: str = "gauge"
    """Or counter: one that only grows."""


class Metrics(Protocol):
    """Gives figures when somebody asks for them. Reads, never writes; quick, for all wait for it."""

    name: ClassVar[str]

    def collect(self, state: State, now: float) -> Iterable[Sample]:
        """The figures at this moment."""
        ...


@dataclass(frozen=True, slots=True)
class Placed:
    """A job that was given its place, as a hook hears of it."""

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
    """Hears of placements. Any plugin may have this method; one that has no other is a hook."""

    name: ClassVar[str]

    def on_placed(self, placed: Placed) -> None:
        """Called once the placement is on disk, in a thread of its own, one after the other."""
        ...


def sample_problem(sample: Any) -> str:
    """What is wrong with what a plugin gave for a sample; empty if nothing is."""
    if not isinstance(sample, Sample):
        return f"gave a {type(sample).__name__}, which is no Sample"
    if not _NAME.fullmatch(sample.name) or sample.name.startswith(OURS):
        return f"cannot name a figure {sample.name!r}: letters, digits and _, and not {OURS}…"
    if sample.kind not in ("gauge", "counter"):
        return f"knows no kind {sample.kind!r}: gauge, or counter"
    if not isinstance(sample.value, int | float) or math.isnan(sample.value):
        return f"gave {sample.value!r} for {sample.name}, which is no number"
    strange = [key for key in sample.labels if not _LABEL.fullmatch(key)]
    return f"cannot name a label {strange[0]!r}" if strange else ""
