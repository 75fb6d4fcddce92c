"""The nodes as numpy columns: one row a node, in the order of names, so that ties break by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Rows = NDArray[np.intp] | slice

ALL: slice = slice(None)
ABSENT = -1
"""In `gpu_free`: no such GPU, or one that takes no work."""


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
    gpu_free: Ints
    gpu_model: Ints
    gpu_count: Ints

    @property
    def height(self) -> int:
        """Number of nodes."""
        return len(self.labels)

    def model_codes(self, names: tuple[str, ...]) -> list[int]:
        """Codes of model names; `H100` names every model that has it as a word or a beginning."""
        wanted = [name.casefold() for name in names]
        return [
            code
            for code, model in enumerate(self.models)
            if any(_names(model.casefold(), name) for name in wanted)
        ]


def _names(model: str, name: str) -> bool:
    return model == name or model.startswith(name) or name in model.replace("-", " ").split()


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
        gpu_free=np.full((height, width), ABSENT, dtype=np.int64),
        gpu_model=np.full((height, width), ABSENT, dtype=np.int64),
        gpu_count=np.zeros(height, dtype=np.int64),
    )
