"""Nodes with the GPUs free: whole ones, a share of one, of the right model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.core.columns import Bools, Columns, Rows
from controller.core.requests import Part
from wire.spec import gpus_text
from wire.words import WHOLE_GPU


@dataclass(frozen=True, slots=True)
class Gpu:
    """Keeps nodes with enough healthy, free GPUs of the models asked."""

    name: ClassVar[str] = "gpu"

    def keep(self, part: Part, nodes: Columns, rows: Rows) -> Bools:
        """True where the GPUs fit."""
        free = nodes.gpu_free[rows]
        fits = free >= (part.share or WHOLE_GPU)
        if part.models:
            fits &= np.isin(nodes.gpu_model[rows], nodes.model_codes(part.models))
        enough: Bools = fits.sum(axis=1) >= max(1, part.gpus)
        return enough

    def concerns(self, part: Part) -> bool:
        """Whether the part asks for any of this."""
        return bool(part.gpus or part.share)

    def explain(self, part: Part) -> str:
        """What is wrong with a lost node."""
        kind = f"{' or '.join(part.models)} " if part.models else ""
        if part.share:
            return f"no {kind}GPU with {gpus_text(part.share / WHOLE_GPU)} free"
        return f"no free {kind}GPU" if part.gpus == 1 else f"fewer than {part.gpus} free {kind}GPUs"
