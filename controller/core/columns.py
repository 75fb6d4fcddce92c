"""The nodes as numpy columns: one row a node, in the order of names, so that ties break by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from wire.affinity import Taint
from wire.company import JobTerm

if TYPE_CHECKING:
    from controller.core.needs import Kind, Needs
    from controller.core.requests import Part

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Rows = NDArray[np.intp] | slice

ALL: slice = slice(None)
_WORD = re.compile(r"\w+")
ABSENT = -1
"""In `gpu_free`: no such GPU, or one that takes no work."""


class Wired(Protocol):
    """How the GPUs of each node are connected."""

    def groups(self, numa: bool, linked: bool) -> Bools:
        """By node, group and slot."""
        ...


class Companions(Protocol):
    """Which labelled jobs run where."""

    def keep(self, part: Part, columns: Columns) -> Bools:
        """The nodes where the part has the company it demands, and is welcome."""
        ...

    def pleases(self, part: Part, term: JobTerm, columns: Columns) -> Bools:
        """The nodes that are as one term says."""
        ...


class Appraisal(Protocol):
    """What free GPUs are worth to those who ask for GPUs."""

    def kept(self, part: Part, rows: NDArray[np.intp]) -> Floats:
        """Worth after the part minus worth before, per node: the higher the better."""
        ...

    def best_slot(self, part: Part, row: int, slots: Sequence[int]) -> int:
        """The GPU of a node, among these, from which a share takes the least."""
        ...


@dataclass(slots=True)
class Columns:
    """What filters and scorers read. They must not write."""

    labels: list[dict[str, str]]
    models: list[str]
    open: Bools
    cpu_total: Ints
    cpu_free: Ints
    memory_total: Ints
    memory_free: Ints
    scratch_total: Ints
    scratch_free: Ints
    gpu_free: Ints
    gpu_model: Ints
    gpu_count: Ints
    kinds: list[Kind] = field(default_factory=list)
    """What GPUs can be, by the code in `gpu_model`; `models` are their names."""
    turn: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The number of the last placement on each node, or 0."""
    company: Callable[[], Companions] | None = None
    """Which labelled jobs run where; None where nobody is thought to."""
    codes: dict[str, Ints] = field(default_factory=dict)
    known: dict[Part, Needs] = field(default_factory=dict)
    """What parts need of the GPUs, as worked out before; void when the nodes change by nature."""
    wiring: Callable[[], Wired] | None = None
    """How GPUs are connected; None where nobody knows."""
    taints: list[tuple[Taint, ...]] = field(default_factory=list)
    runtimes: list[str] = field(default_factory=list)
    """What runs images, by node; empty where nothing does."""
    found: dict[str, int] = field(default_factory=dict)
    worth: Callable[[], Appraisal] | None = None
    """The appraisal of these nodes as they are now; None where nobody keeps one."""

    @property
    def height(self) -> int:
        """Number of nodes."""
        return len(self.labels)

    @property
    def row_of(self) -> dict[str, int]:
        """The row of each node by name."""
        if len(self.found) != len(self.labels):
            self.found.clear()
            self.found.update((labels.get("node", ""), row) for row, labels in enumerate(self.labels))
        return self.found

    def domain(self, label: str) -> Ints:
        """By node: a number for the value of the label, -1 without one."""
        found = self.codes.get(label)
        if found is None:
            values = [labels.get(label) for labels in self.labels]
            numbers = {value: number for number, value in enumerate(dict.fromkeys(filter(None, values)))}
            found = np.array([numbers.get(value or "", -1) for value in values], dtype=np.int64)
            self.codes[label] = found
        return found

    @property
    def divided(self) -> bool:
        """Are there MIG instances?"""
        return any(kind.mig for kind in self.kinds)

    def groups(self, numa: bool, linked: bool) -> Bools:
        """By node, group and slot: GPUs that hang on one NUMA node, that are all linked, or both."""
        if self.wiring is None:
            return np.zeros((self.height, 0, self.gpu_free.shape[1]), dtype=np.bool_)
        return self.wiring().groups(numa, linked)

    def model_codes(self, names: tuple[str, ...]) -> list[int]:
        """Codes of model names; `H100` names every model with that word, but `A10` no A100."""
        wanted = [_words(name) for name in names]
        return [
            code for code, model in enumerate(self.models) if any(name in _words(model) for name in wanted)
        ]


def joined(one: Bools | None, other: Bools | None) -> Bools | None:
    """The rows of either; None: of neither."""
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _words(model: str) -> str:
    """The name in small letters, each word between blanks."""
    return f" {' '.join(_WORD.findall(model.casefold()))} "


def empty_columns(height: int, width: int) -> Columns:
    """Columns of so many nodes with room for so many GPUs each."""
    return Columns(
        labels=[{} for _ in range(height)],
        models=[],
        open=np.zeros(height, dtype=np.bool_),
        cpu_total=np.zeros(height, dtype=np.int64),
        cpu_free=np.zeros(height, dtype=np.int64),
        memory_total=np.zeros(height, dtype=np.int64),
        memory_free=np.zeros(height, dtype=np.int64),
        scratch_total=np.zeros(height, dtype=np.int64),
        scratch_free=np.zeros(height, dtype=np.int64),
        gpu_free=np.full((height, width), ABSENT, dtype=np.int64),
        gpu_model=np.full((height, width), ABSENT, dtype=np.int64),
        gpu_count=np.zeros(height, dtype=np.int64),
        taints=[()] * height,
        runtimes=[""] * height,
        turn=np.zeros(height, dtype=np.int64),
    )
