"""Which plugins have failed, and whether they may be asked again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

PATIENCE = 3
"""Cycles in which a plugin may fail before nobody asks it any more."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A plugin failed, and in how many cycles it has by now."""

    kind: str
    name: str
    why: str
    times: int

    @property
    def given_up(self) -> bool:
        """Nobody asks it any more, until the controller starts anew."""
        return self.times >= PATIENCE


@dataclass(slots=True)
class Watch:
    """What the guards of one pipeline have seen."""

    turn: int = 0
    """Grows with every cycle."""
    faults: list[Fault] = field(default_factory=list)
    """Those that nobody has been told of."""
    _failed: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """How often, and in which turn last."""

    def trusts(self, kind: str, name: str) -> bool:
        """May it be asked in this cycle?"""
        times, last = self._failed.get((kind, name), (0, -1))
        return times < PATIENCE and last != self.turn

    def fail(self, kind: str, name: str, why: str) -> None:
        """It failed."""
        times = self._failed.get((kind, name), (0, -1))[0] + 1
        self._failed[kind, name] = times, self.turn
        self.faults.append(Fault(kind, name, why, times))

    def times(self) -> dict[tuple[str, str], int]:
        """In how many cycles each plugin, by kind and name, has failed."""
        return {plugin: times for plugin, (times, _) in self._failed.items()}

    def told(self) -> Sequence[Fault]:
        """The faults since this was last asked."""
        if not self.faults:
            return ()
        found, self.faults = self.faults, []
        return found
