"""What lies between the controller and a host: one connection after the other, each in order or lost."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable

from controller.sim.clock import Clock
from controller.sim.generate.dice import Dice
from wire.frames import AgentFrame, ControllerFrame, Hello

SILENCE_S = 15.0
"""After so long without a word the controller gives a connection up."""


class Way(enum.Enum):
    """Two directions, and each can be cut by itself."""

    UP = "to the controller"
    DOWN = "to the host"


Frame = AgentFrame | ControllerFrame


class Line:
    """Delivers in order. A short cut only delays; a longer one costs the connection and what was on it."""

    def __init__(
        self,
        clock: Clock,
        dice: Dice,
        latency_s: float,
        deliver: Callable[[Way, Frame], None],
        lost: Callable[[str], None],
    ) -> None:
        self.open = False
        self.cut: frozenset[Way] = frozenset()
        self._clock = clock
        self._dice = dice
        self._latency_s = latency_s
        self._deliver = deliver
        self._lost = lost
        self._number = dict.fromkeys(Way, 0)
        """Of the connection whose frames still arrive."""
        self._greeted = False
        self._last = dict.fromkeys(Way, 0.0)
        self._waiting: list[tuple[Way, Frame]] = []
        self._armed: list[Callable[[], None]] = []

    @property
    def well(self) -> bool:
        """Do both hear each other?"""
        return self.open and self._greeted and not self.cut

    def connect(self, hello: Hello) -> None:
        """A new connection; the hello is its first frame."""
        self._end()
        self.open = True
        self.send(Way.UP, hello)

    def close(self, why: str, after_s: float = 0.0) -> None:
        """This connection is over, and after so much time the controller sees it."""
        number = self._number[Way.UP]
        if after_s:
            self._clock.after(after_s, lambda: self._close(number, why))
        else:
            self._close(number, why)

    def _close(self, number: int, why: str) -> None:
        if self.open and number == self._number[Way.UP]:
            self._end()
            self._lost(why)

    def drop(self) -> None:
        """The connection is over because the controller is; its last words may still arrive."""
        self._end([Way.UP] if self._dice.chance(0.5) else Way)

    def _end(self, ways: Iterable[Way] = Way) -> None:
        self.open = self._greeted = False
        self._waiting.clear()
        for way in ways:
            self._number[way] += 1

    def send(self, way: Way, frame: Frame) -> None:
        """Put a frame on its way; without a connection it is lost, and the next hello makes good for it."""
        if not self.open or (way is Way.DOWN and not self._greeted):
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

    def _schedule(self, way: Way, frame: Frame) -> None:
        number, arrival = self._number[way], self._clock.now + self._latency_s * self._dice.roll()
        self._last[way] = arrival = max(arrival, self._last[way])
        self._clock.at(arrival, lambda: self._arrive(number, way, frame))

    def _arrive(self, number: int, way: Way, frame: Frame) -> None:
        if number != self._number[way]:
            return
        if isinstance(frame, Hello):
            self._greeted = True
        self._deliver(way, frame)

    # --- what goes wrong ---

    def arm(self, strike: Callable[[], None]) -> None:
        """Let it happen at the worst moment: when the next frame is about to leave."""
        self._armed.append(strike)

    def disarm(self) -> None:
        """Let it not happen after all."""
        self._armed.clear()

    def cut_off(self, ways: Iterable[Way]) -> None:
        """Nothing passes in these directions; in the end the controller notices the silence."""
        self.cut = frozenset(ways)
        number = self._number[Way.UP]
        self._clock.after(SILENCE_S, lambda: self._notice(number))

    def _notice(self, number: int) -> None:
        # A cut either way silences the agent: it answers pings, and only pings that it gets.
        if self.cut and number == self._number[Way.UP]:
            self.close("the agent has been silent")

    def heal(self) -> None:
        """Everything passes again, first what was kept."""
        self.cut = frozenset()
        waiting, self._waiting = self._waiting, []
        for way, frame in waiting:
            self._schedule(way, frame)
