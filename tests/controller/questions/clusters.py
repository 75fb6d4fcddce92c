"""Random sequences of inputs with their times, for engines of any configuration."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from controller.config import Config
from controller.core.engine import Engine
from controller.core.model.decision.decision import Decision
from controller.core.model.inputs import agent_inputs, controller_inputs, job_inputs, node_inputs
from controller.core.model.inputs.input import Input
from controller.core.state.state import State
from controller.registry import build_pipeline
from tests.engine_harness import facts
from wire.agent.orders import Start, Stop
from wire.agent.reports import AttemptStatus, Hello
from wire.job.spec import JobSpec
from wire.names import JobState

POLICIES: dict[str, dict[str, Any]] = {
    "easy": {},
    "sjbf": {"scheduler": {"backfill": "easy-sjbf"}},
    "conservative": {"scheduler": {"backfill": "conservative"}},
    "aggressive": {"scheduler": {"backfill": "aggressive"}},
    "predicted": {"backfill": {"estimate": "predicted"}},
    "fair": {"scheduler": {"order": "fair"}},
    "multifactor with preemption": {
        "scheduler": {"order": "multifactor"},
        "preemption": {"strategies": [{"name": "priority", "gap": 10}], "min_runtime_s": 0.0},
    },
    "profiles": {
        "profiles": {
            "training": {"nodes": ["a", "b"], "backfill": "conservative", "users": ["ada"]},
            "default": {},
        }
    },
}
NODES = ("a", "b", "c")


class Cluster:
    """An engine, and simulated agents that start ordered jobs and end them at random."""

    def __init__(self, policy: str, seed: int) -> None:
        self.config = Config(**POLICIES[policy])
        pipeline = build_pipeline(self.config)
        self.engine = Engine(pipeline, State(pipeline.order, sharing=pipeline.sharing))
        self.now = 1_000_000.0
        self.random = random.Random(seed)
        self._soon: list[Input] = []

    def landing(self) -> tuple[list[tuple[Input, float]], list[Any]]:
        """Handle a few inputs and run a cycle, as the daemon does; the inputs, and the events."""
        handled: list[tuple[Input, float]] = []
        events: list[Any] = []
        for given in [*self._inputs(), controller_inputs.Tick()]:
            self.now += self.random.choice([0.0, 0.25, 7.0, 60.0])
            handled.append((given, self.now))
            events += self._reported(self.engine.handle(given, self.now)).events
        return handled, events

    def _reported(self, decision: Decision) -> Decision:
        for order in decision.orders:
            if isinstance(order.frame, Start):
                status = AttemptStatus(order.frame.job, order.frame.attempt, pid=9, started_at=self.now)
                self._soon.append(agent_inputs.AgentReported(order.node, status))
            elif isinstance(order.frame, Stop):
                self._soon.append(self._over(order.node, order.frame.job, order.frame.attempt))
        return decision

    def _over(self, node: str, job: int, attempt: int) -> Input:
        status = AttemptStatus(job, attempt, 9, self.now - 1, self.now, code=self.random.choice([0, 0, 1]))
        return agent_inputs.AgentReported(node, status)

    def _inputs(self) -> Iterator[Input]:
        if not self.engine.state.nodes.by_name:
            for name in NODES:
                yield agent_inputs.AgentSaidHello(name, Hello(name, "0", "boot", "i", facts(name)))
        soon, self._soon = self._soon, []
        yield from soon
        for _ in range(self.random.randrange(4)):
            yield self._change()

    def _change(self) -> Input:
        dice, live = self.random, [*self.engine.state.live()]
        kind = dice.choice(["submit"] * 5 + ["end"] * 2 + ["cancel", "hold", "release", "edit", "drain"])
        if kind == "submit" or not live:
            spec = JobSpec(
                command=("true",),
                gpus=dice.choice([0.5, 1, 2, 4, 8, 16]),
                time_limit_s=dice.choice([300.0, 3600.0, 7200.0, 86_400.0]),
                priority=dice.choice([20, 50, 80]),
            )
            return job_inputs.Submit(spec, dice.choice(["ada", "bo", "cy"]))
        job = dice.choice(live)
        if kind == "end":
            running = [each for each in live if each.state is JobState.RUNNING]
            if running:
                job = dice.choice(running)
                node = dice.choice([*job.members])
                return self._over(node, job.id, job.attempt)
        if kind == "hold":
            return job_inputs.Hold(job.id, "root")
        if kind == "release":
            return job_inputs.Release(job.id, "root")
        if kind == "edit":
            return job_inputs.Edit(job.id, "root", {"priority": dice.choice([10, 60, 90])})
        if kind == "drain":
            node = dice.choice(NODES)
            if self.engine.state.nodes.by_name[node].drained:
                return node_inputs.Resume(node, "root")
            return node_inputs.Drain(node, "root", "test")
        return job_inputs.Cancel(job.id, "root")
