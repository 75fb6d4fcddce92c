"""What a simulation cannot be started with."""

from __future__ import annotations


class SimulationRefused(Exception):
    """What is wrong in a sentence, and what to do about it in another."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
