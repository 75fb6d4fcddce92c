"""The error that is raised if a simulation cannot start or finish."""

from __future__ import annotations


class SimulationRefused(Exception):
    """Raised if a simulation cannot start or finish. The message is a sentence with the reason; `hint` is the
    remedy."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
