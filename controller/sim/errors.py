"""The error of a simulation that cannot start or finish."""

from __future__ import annotations


class SimulationRefused(Exception):
    """A simulation cannot start or finish. The message gives the reason in one sentence, `hint` the
    remedy."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
