"""The `image` filter keeps nodes that can run the job's container image, with GPUs if the job needs any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.cluster.node_table import Bools, NodeTable, Rows
from controller.core.model.request import PerNodeRequest


@dataclass(frozen=True, slots=True)
class ImageFilter:
    """Keeps nodes whose agent found podman, docker or apptainer, with GPU support if the job requests
    GPUs.
    """

    name: ClassVar[str] = "image"
    static: ClassVar[bool] = True

    def keep(self, part: PerNodeRequest, nodes: NodeTable, rows: Rows) -> Bools:
        chosen = range(nodes.height)[rows] if isinstance(rows, slice) else rows
        if not part.contained:
            return np.ones(len(chosen), dtype=np.bool_)
        without_gpus = not part.wants_gpus
        return np.fromiter(
            (bool(nodes.runtimes[row]) and (without_gpus or not nodes.image_gpus[row]) for row in chosen),
            dtype=np.bool_,
            count=len(chosen),
        )

    def concerns(self, part: PerNodeRequest) -> bool:
        return part.contained

    def explain(self, part: PerNodeRequest) -> str:
        return "no container runtime that gives GPUs" if part.wants_gpus else "no container runtime"
