"""The order of events behind the tables of SC'15 (predictsim), for comparing with them to the last digit.

Within a second jobs arrive before others end, and every single event is followed by a cycle of its own.
A job that ends exactly at its limit is the exception: its room was promised from that second on, so
it is free for those that arrive in it.
"""

from __future__ import annotations

import heapq

from controller.sim.agents import Key
from controller.sim.simulation import NEWS, REQUEST, Happening, Simulation

_RANKS = {REQUEST: 1, NEWS: 2}
_AT_LIMIT = 0


class OneByOne(Simulation):
    """A simulation that runs a cycle after every event."""

    def at(self, when: float, rank: int, happening: Happening) -> None:
        """Let something happen then; requests come first."""
        super().at(when, _RANKS.get(rank, rank), happening)

    def _let_end(self, key: Key, seconds: float, ending: Happening) -> None:
        super()._let_end(key, seconds, ending)
        if seconds >= self.engine.state.jobs[key[0]].limit:
            # Ends before its turn comes, which then is a cycle and nothing else.
            super().at(self.now + seconds, _AT_LIMIT, ending)

    def step(self) -> bool:
        """One event and its cycle; False when nothing is left to happen."""
        if not self._heap:
            return False
        self.now, rank, _, happening = heapq.heappop(self._heap)
        happening(self.now)
        if rank != _AT_LIMIT:
            self._cycle()
        return True
