"""The settings of a driver, and the functions with which a driver reads the state of the controller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controller.engines.driver.foreign_attempts import LossRules


@dataclass(frozen=True, slots=True)
class DriverRules:
    """The settings of [engines.NAME] that hold for all engines."""

    interval_s: float = 10.0
    timeout_s: float = 30.0
    lost_after_s: float = 300.0
    breaker_failures: int = 3
    ask_patience_s: float = 600.0
    """Seconds for which the driver repeats an ask() that the engine refuses. Then the job goes to another
    node.
    """

    @property
    def losses(self) -> LossRules:
        return LossRules(self.interval_s, self.lost_after_s)


@dataclass(frozen=True, slots=True)
class Journal:
    """The functions with which the driver reads the state of the controller."""

    now: Callable[[], float]
    """Seconds since 1970; never goes back."""
    node_of: Callable[[int, int, int], str | None]
    """Return the node of (job, attempt, rank) if this attempt has not ended there; otherwise None."""
    may_act: Callable[[], bool] = lambda: True
    """Return whether this controller may send orders. False if another controller may lead."""
