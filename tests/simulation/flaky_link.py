"""The link between controller and host: connections whose frames arrive in order or are lost."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable

from controller.sim.generate.random_numbers import RandomStream
from controller.sim.replay.replay_clock import Clock
from wire.agent.frames import AgentFrame, ControllerFrame
from wire.agent.reports import Hello

SILENCE_S = 15.0
"""Seconds of silence after which the controller closes a connection."""


class Direction(enum.Enum):
    """Directions of a link; each can be cut alone."""

    UP = "to the controller"
    DOWN = "to the host"


Frame = AgentFrame | ControllerFrame


class FlakyLink:
    """Delivers frames in order. A short cut delays them; a long one loses the connection and its frames."""

    def __init__(
        self,
        clock: Clock,
        rng: RandomStream,
        latency_s: float,
        deliver: Callable[[Direction, Frame], None],
        lost: Callable[[str], None],
    ) -> None:
        self.open = False
        self.cut: frozenset[Direction] = frozenset()
        self._clock = clock
        self._rng = rng
        self._latency_s = latency_s
        self._deliver = deliver
        self._lost = lost
        self._number = dict.fromkeys(Direction, 0)
        """Number of the connection whose frames still arrive."""
        self._greeted = False
        self._last = dict.fromkeys(Direction, 0.0)
        self._waiting: list[tuple[Direction, Frame]] = []
        self._armed: list[Callable[[], None]] = []

    @property
    def well(self) -> bool:
        """Whether both directions are open."""
        return self.open and self._greeted and not self.cut

    def connect(self, hello: Hello) -> None:
        """A new connection; the hello is its first frame."""
        self._end()
        self.open = True
        self.send(Direction.UP, hello)

    def close(self, why: str, after_s: float = 0.0) -> None:
        """End this connection; the controller notices after this many seconds."""
        number = self._number[Direction.UP]
        if after_s:
            self._clock.after(after_s, lambda: self._close(number, why))
        else:
            self._close(number, why)

    def _close(self, number: int, why: str) -> None:
        if self.open and number == self._number[Direction.UP]:
            self._end()
            self._lost(why)

    def drop(self) -> None:
        """End the connection because the controller crashed; its last frames may still arrive."""
        self._end([Direction.UP] if self._rng.chance(0.5) else Direction)

    def _end(self, ways: Iterable[Direction] = Direction) -> None:
        self.open = self._greeted = False
        self._waiting.clear()
        for way in ways:
            self._number[way] += 1

    def send(self, way: Direction, frame: Frame) -> None:
        """Send a frame; without a connection it is lost, and the next hello replaces it."""
        if not self.open or (way is Direction.DOWN and not self._greeted):
            return
        armed, self._armed = self._armed, []
        for strike in armed:
            strike()
        if not self.open:
            return
        if way in self.cut:
            self._waiting.append((way, frame))
        else:
            self._schedule(way, frame)

    def _schedule(self, way: Direction, frame: Frame) -> None:
        number, arrival = self._number[way], self._clock.now + self._latency_s * self._rng.uniform()
        self._last[way] = arrival = max(arrival, self._last[way])
        self._clock.at(arrival, lambda: self._arrive(number, way, frame))

    def _arrive(self, number: int, way: Direction, frame: Frame) -> None:
        if number != self._number[way]:
            return
        if isinstance(frame, Hello):
            self._greeted = True
        self._deliver(way, frame)

    # --- faults ---

    def arm(self, strike: Callable[[], None]) -> None:
        """Call this when the next frame is about to leave."""
        self._armed.append(strike)

    def disarm(self) -> None:
        """Forget the armed call."""
        self._armed.clear()

    def cut_off(self, ways: Iterable[Direction]) -> None:
        """Cut these directions; the controller notices the silence later."""
        self.cut = frozenset(ways)
        number = self._number[Direction.UP]
        self._clock.after(SILENCE_S, lambda: self._notice(number))

    def _notice(self, number: int) -> None:
        # A cut in either direction silences the agent, because it only answers pings that it gets.
        if self.cut and number == self._number[Direction.UP]:
            self.close("the agent has been silent")

    def heal(self) -> None:
        """Repair the link; delayed frames pass first."""
        self.cut = frozenset()
        waiting, self._waiting = self._waiting, []
        for way, frame in waiting:
            self._schedule(way, frame)
