"""Services in a trial: replicas that fail and become unhealthy, and orders of operators about services."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.core.model.inputs import agent_inputs, policy_inputs
from controller.core.model.services import Service
from controller.sim.generate.random_numbers import RandomStream
from controller.sim.virtual_agents import PlannedRun
from wire.agent.orders import Start

if TYPE_CHECKING:
    from tests.simulation.trial import FaultTrial

BY = "ann"
ORDERS_PER_HOUR = 3.0
REPEATS_S = 3_600.0
"""After this time no order is repeated any more, because every controller has answered."""
LONG_RUN_S = 30 * 86_400.0
"""The run time of a replica that does not fail. The trial ends its services long before."""


class RandomServices:
    """The replicas of one trial, and the orders of operators about their services."""

    def __init__(self, trial: FaultTrial, services: tuple[Service, ...], seed: int) -> None:
        self._trial = trial
        self._services = services
        self._rng = RandomStream(seed, "services")

    def course(self, order: Start) -> PlannedRun:
        """The run of a replica that begins now. While faults happen, half of the replicas fail."""
        rng, trial = self._rng, self._trial
        if order.health is not None:
            report = agent_inputs.HealthReported(
                order.job, order.attempt, healthy=rng.chance(0.9), why="drawn"
            )
            trial.clock.after(rng.between(0.0, 60.0), lambda: trial.tell(report))
        if trial.clock.now < trial.plan.seconds and rng.chance(0.5):
            return PlannedRun(rng.between(1.0, 7_200.0), 1)
        return PlannedRun(LONG_RUN_S)

    def arrange(self) -> None:
        """Plan the orders of operators, and the end of all services after the last fault."""
        clock, rng, trial = self._trial.clock, self._rng, self._trial
        for service in self._services:
            for _ in range(round(ORDERS_PER_HOUR * trial.plan.hours)):
                number = int(rng.uniform() * (service.replicas + 2))
                order = (
                    policy_inputs.RestartService(service.name, BY)
                    if rng.chance(0.5)
                    else policy_inputs.ScaleService(service.name, number, BY)
                )
                clock.at(rng.between(0.0, trial.plan.seconds), lambda order=order: trial.insist(order))  # type: ignore[misc]
            end = policy_inputs.ScaleService(service.name, 0, BY)
            clock.at(trial.plan.seconds + REPEATS_S, lambda end=end: trial.insist(end))  # type: ignore[misc]
