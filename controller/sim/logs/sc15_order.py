"""The order of events within a second in predictsim, the simulator of a paper at SC'15.

With this order, Corral's simulation reproduces the tables of the paper exactly. Within one second, submits
come before the ends of jobs, and a scheduling cycle follows every event. There is one exception: a job that
ends exactly at its time limit ends before the submits of that second. New jobs can then use its nodes.
"""

from __future__ import annotations

import heapq

from controller.sim.simulation import REPORT, REQUEST, Callback, Simulation
from controller.sim.virtual_agents import Key

_RANKS = {REQUEST: 1, REPORT: 2}
_AT_LIMIT = 0


class Sc15Simulation(Simulation):
    """A simulation that handles the events of a second in the order of the simulator predictsim, and runs a
    scheduling cycle after each event.
    """

    def schedule(self, when: float, rank: int, callback: Callback) -> None:
        """Schedule a callback. Among callbacks with the same time, submits run before reports of agents,
        unlike in the base class.
        """
        super().schedule(when, _RANKS.get(rank, rank), callback)

    def _schedule_end(self, key: Key, seconds: float, ending: Callback) -> None:
        super()._schedule_end(key, seconds, ending)
        if seconds >= self.engine.state.jobs[key[0]].limit:
            # A job that reaches its time limit must end before the submits of the same second. So schedule an
            # additional callback, which ends the job. The regular callback then does nothing, except that a
            # scheduling cycle follows.
            super().schedule(self.now + seconds, _AT_LIMIT, ending)

    def step(self) -> bool:
        """Run the next event, and then a scheduling cycle. After the end of a job at its time limit, run no
        cycle. Return False if no event is left.
        """
        if not self._heap:
            return False
        self.now, rank, _, callback = heapq.heappop(self._heap)
        callback(self.now)
        if rank != _AT_LIMIT:
            self.run_pass()
        return True
