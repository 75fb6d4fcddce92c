"""The order of events within a second in predictsim, the simulator of a paper at SC'15.

If it handles events in this order, our simulation reproduces the tables of that paper exactly. Within one
second, jobs arrive before other jobs end, and a scheduling pass follows every event. There is one exception:
if a job ends exactly at its time limit, its nodes are free for the jobs that arrive in that second, because
the scheduler planned with this end.
"""

from __future__ import annotations

import heapq

from controller.sim.simulation import REPORT, REQUEST, Callback, Simulation
from controller.sim.virtual_agents import Key

_RANKS = {REQUEST: 1, REPORT: 2}
_AT_LIMIT = 0


class Sc15Simulation(Simulation):
    """A simulation that handles the events of a second in the order of the simulator predictsim, and runs a
    scheduling pass after each event.
    """

    def schedule(self, when: float, rank: int, callback: Callback) -> None:
        """Schedule a callback. Of callbacks with the same time, submits run before reports of agents."""
        super().schedule(when, _RANKS.get(rank, rank), callback)

    def _schedule_end(self, key: Key, seconds: float, ending: Callback) -> None:
        super()._schedule_end(key, seconds, ending)
        if seconds >= self.engine.state.jobs[key[0]].limit:
            # A job at its time limit ends before jobs with a submit in the same second are queued. So
            # schedule an additional callback for the end. The regular callback later finds that the job has
            # ended, but a scheduling pass still follows it.
            super().schedule(self.now + seconds, _AT_LIMIT, ending)

    def step(self) -> bool:
        """Run the next event, and then a scheduling pass. Returns False if no event is left."""
        if not self._heap:
            return False
        self.now, rank, _, callback = heapq.heappop(self._heap)
        callback(self.now)
        if rank != _AT_LIMIT:
            self.run_pass()
        return True
