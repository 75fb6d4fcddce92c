"""The error of a simulation that cannot start or finish."""

from __future__ import annotations


class SimulationRefused(Exception):
    """What is wrong, in one sentence; `hint` says what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
