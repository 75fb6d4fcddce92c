"""Counts the failures of plugins, and decides that a plugin that fails too often is no longer called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_FAILED_CYCLES = 3
"""A plugin that has failed in this many scheduling cycles is no longer called."""


@dataclass(frozen=True, slots=True)
class PluginFault:
    """One failure of a plugin. `times` is the number of scheduling cycles in which the plugin has failed so
    far, including this one.
    """

    kind: str
    name: str
    why: str
    times: int

    @property
    def given_up(self) -> bool:
        """True if the plugin has failed in so many cycles that the engine does not call it until the
        controller restarts or gets another configuration.
        """
        return self.times >= MAX_FAILED_CYCLES


@dataclass(slots=True)
class CircuitBreaker:
    """Records failures of plugins, and decides whether a plugin may be called.

    1. A plugin that fails is not called again in the same scheduling cycle. The engine uses a fixed result
       instead. For example, a failing filter rejects all nodes, unless it has `on_error = "pass"`.
    2. The plugin is called again in the next cycle.
    3. After failures in MAX_FAILED_CYCLES cycles the plugin is not called until the controller restarts or
       gets another configuration.
    """

    cycle: int = 0
    """The number of the current scheduling cycle."""
    faults: list[PluginFault] = field(default_factory=list)
    """Failures that `take_faults` has not returned yet."""
    failed: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """The failures of each plugin, by (kind, name): the number of cycles with failures, and the number of the
    last cycle with a failure.
    """
    _why: dict[tuple[str, str], str] = field(default_factory=dict)
    """The last error of each plugin, by (kind, name)."""

    def allows(self, kind: str, name: str) -> bool:
        """Return whether the plugin may be called in this scheduling cycle."""
        times, last = self.failed.get((kind, name), (0, -1))
        return times < MAX_FAILED_CYCLES and last != self.cycle

    def fail(self, kind: str, name: str, why: str) -> None:
        times = self.failed.get((kind, name), (0, -1))[0] + 1
        self.failed[kind, name] = times, self.cycle
        self._why[kind, name] = why
        self.faults.append(PluginFault(kind, name, why, times))

    def times(self) -> dict[tuple[str, str], int]:
        """Return in how many scheduling cycles each plugin has failed, by (kind, name) of the plugin."""
        return {plugin: times for plugin, (times, _) in self.failed.items()}

    def why(self, kind: str, name: str) -> str:
        """Return the last error of the plugin; empty if the plugin never failed."""
        return self._why.get((kind, name), "")

    @property
    def failing(self) -> tuple[str, ...]:
        """One sentence for each plugin that has failed, with its last error."""
        return tuple(
            f"{kind} {name}: {self._why[kind, name]}"
            + ("; it is not called again" if times >= MAX_FAILED_CYCLES else "")
            for (kind, name), (times, _) in sorted(self.failed.items())
        )

    def begin_cycle(self) -> bool:
        """Begin the next scheduling cycle. Return True if a plugin failed in the last cycle and may be called
        again.
        """
        self.cycle += 1
        return any(
            times < MAX_FAILED_CYCLES and last == self.cycle - 1 for times, last in self.failed.values()
        )

    def take_faults(self) -> Sequence[PluginFault]:
        """Return the failures since the last call of this method."""
        found, self.faults = self.faults, []
        return found
