"""Nodes where something runs images, for jobs that have one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Bools, Columns, Rows
from controller.core.requests import Part


@dataclass(frozen=True, slots=True)
class Image:
    """Keeps nodes whose agent has found podman, docker or apptainer."""

    name: ClassVar[str] = "image"
    static: ClassVar[bool] = True

    def keep(self, part: Part, nodes: Columns, rows: Rows) -> Bools:
        """True where an image can be run."""
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        able = not part.contained
        return np.fromiter(
            (able or bool(nodes.runtimes[row]) for row in chosen), dtype=np.bool_, count=len(chosen)
        )

    def concerns(self, part: Part) -> bool:
        """Whether the part asks for any of this."""
        return part.contained

    def explain(self, part: Part) -> str:
        """What is wrong with a lost node."""
        return "no container runtime"
