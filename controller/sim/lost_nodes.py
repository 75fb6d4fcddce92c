"""Simulates nodes whose agents lose the connection to the controller, and connect again."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from controller.core.lifecycle.node_loss import silence_limits
from controller.core.model.inputs import agent_inputs
from controller.sim.virtual_agents import hello_of
from wire.agent.reports import NodeFacts

if TYPE_CHECKING:
    from controller.sim.simulation import Simulation

SILENCE = 0
"""The rank (order among callbacks with the same time) of the callbacks that tell the engine that a node has
had no connection for too long. It equals REPORT, the rank of agents' reports.
"""


class LostNodes:
    """The nodes without a connection, and the inputs that the engine gets because of them.

    1. `lose`: the engine gets LinkWentDown. Processes on the node continue, or end without a report if the
       node has crashed.
    2. After the time without a connection that scheduler.toml sets, the engine gets NodeSilent. The node is
       then down, and later its jobs with a lease are lost.
    3. `connect`: the engine gets the hello of the agent, with the status of each attempt that the agent has.
       After a crash the agent has no attempts, and the host has another boot id.

    Example: gpu01 crashes at 10:00. At 10:01 it is down. A job with --on-node-lost requeue-after-lease is
    queued again at 10:06: after its lease of 5 minutes, its grace time of 30 s before SIGKILL, and a margin
    of 30 s. At 11:00 gpu01 connects.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.lost_at: dict[str, float] = {}
        """The time at which the connection was lost, by the name of each node without a connection."""
        self._boots: Counter[str] = Counter()

    def lose(self, name: str, why: str, *, crash: bool) -> None:
        """End the connection to a node. With `crash`, also end all processes on it."""
        simulation = self._simulation
        if crash:
            self._boots[name] += 1
            for status in simulation.agents.crash(name, simulation.now):
                simulation.subtract_saved_work(status)
        if name in self.lost_at:
            return
        self.lost_at[name] = now = simulation.now
        simulation.tell(agent_inputs.LinkWentDown(name, why))
        engine = simulation.engine
        node = engine.state.nodes.by_name[name]
        for silent_s in silence_limits(engine.state, node, engine.pipeline.losses):
            simulation.schedule(now + silent_s, SILENCE, partial(self._tell_silence, name, now))

    def _tell_silence(self, name: str, lost_at: float, now: float) -> None:
        # Tell the engine only if the node has had no connection since `lost_at`. If it was connected in
        # between, this callback is obsolete.
        if self.lost_at.get(name) == lost_at and name in self._simulation.engine.state.nodes.by_name:
            self._simulation.tell(agent_inputs.NodeSilent(name, now - lost_at))

    def connect(self, name: str, facts: NodeFacts) -> None:
        """Connect the agent of a lost node or of a new node, and report all attempts that the agent has."""
        simulation = self._simulation
        self.lost_at.pop(name, None)
        attempts = simulation.agents.on_node(name)
        for status in attempts:
            simulation.subtract_saved_work(status)
        simulation.tell(agent_inputs.AgentSaidHello(name, hello_of(name, facts, self._boots[name], attempts)))
