"""Compares three rules by which a machine pool orders machines: order none; order as many as the GPUs of all
waiting jobs need (counter); order as many as would let jobs start, by a what-if forecast.

There are 900 nodes with 8 GPUs each, and at most 100 machines in two zones whose prices change each hour.
Half of the jobs are those of a project with a quota, so some jobs wait although GPUs are free.
"""

from __future__ import annotations

import heapq
import math
import os
import random
import time
from dataclasses import dataclass, field

from benchmarks.table import heading, row
from controller.config import Config
from controller.core.cluster.hypothetical_nodes import HypotheticalNodes
from controller.core.engine import Engine
from controller.core.model.decision.effects import SendToNode
from controller.core.model.inputs import agent_inputs, job_inputs, node_inputs, policy_inputs
from controller.core.model.inputs.controller_inputs import Tick
from controller.core.state.state import State
from controller.questions.engine_copy.deadline import Deadline
from controller.questions.engine_copy.engine_copy import EngineCopy
from controller.questions.pool_demand import pool_demand
from controller.registry import build_pipeline
from wire.agent.orders import Start
from wire.agent.reports import AttemptStatus, GpuFacts, Hello, NodeFacts
from wire.cluster.quota import Limits, Quota
from wire.job.spec import JobSpec

OWN, MOST, UNANSWERED = int(os.environ.get("POOL_NODES", "900")), 100, 20
GPUS = 8
HOURS = 4.0
STEP_S, SEARCH_S, BOOT_S, IDLE_S = 30.0, 120.0, 300.0, 600.0
PRICES = {"a": (9.0, 14.0, 22.0, 12.0, 10.0), "b": (13.0, 10.0, 11.0, 18.0, 12.0)}
"""The price per hour of a machine in each zone, hour by hour."""
HOUR_S = 3_600.0
BEGIN = 1e9


@dataclass
class Machine:
    zone: str
    price: float
    ready_at: float
    idle_since: float = 0.0
    joined: bool = False


@dataclass
class Run:
    """One simulated run with one rule: "no pool", "counter" or "what-if"."""

    rule: str
    machines: dict[str, Machine] = field(default_factory=dict)
    machine_s: float = 0.0
    money: float = 0.0
    orders: int = 0
    asked_s: float = 0.0
    questions: int = 0

    def __post_init__(self) -> None:
        pipeline = build_pipeline(Config())
        self.engine = Engine(pipeline, State(pipeline.order, sharing=pipeline.sharing))
        self.ends: list[tuple[float, str, int, int]] = []
        self.run_s: dict[int, float] = {}
        self.submitted: dict[int, float] = {}
        self.started: dict[int, float] = {}

    def go(self) -> None:
        """Simulate HOURS hours."""
        engine, dice = self.engine, random.Random("pools")
        for number in range(OWN):
            self._join(f"own-{number:04}", BEGIN)
        engine.handle(
            policy_inputs.SetQuota("project", "capped", Quota(Limits(gpus=int(OWN * GPUS * 0.4))), "root"),
            BEGIN,
        )
        rate = OWN * GPUS * 1.1 / (4.1 * 1.56 * HOUR_S)  # Jobs per second, for a load of 110 %.
        now, searched = BEGIN, BEGIN
        while now < BEGIN + HOURS * HOUR_S:
            for _ in range(_count(dice, rate * STEP_S if now > BEGIN else rate * 1.5 * HOUR_S)):
                self._submit(dice, now)
            while self.ends and self.ends[0][0] <= now:
                end, node, job, attempt = heapq.heappop(self.ends)
                status = AttemptStatus(job, attempt, 1, self.started[job], end, code=0)
                engine.handle(agent_inputs.AgentReported(node, status), now)
            self._cycle(now)
            if self.rule != "no pool" and now >= searched:
                searched = now + SEARCH_S
                self._order(now)
            self._keep(now)
            now += STEP_S
        self.end = now

    @property
    def mean_wait_s(self) -> float:
        waits = [self.started.get(job, self.end) - at for job, at in self.submitted.items()]
        return sum(waits) / len(waits)

    def _submit(self, dice: random.Random, now: float) -> None:
        gpus = dice.choice((1, 2, 4, 8, 8))
        limit = dice.choice((1.0, 2.0, 4.0)) * HOUR_S
        project = dice.choice(("capped", "open"))
        spec = JobSpec(("true",), project=project, gpus=gpus, time_limit_s=limit, grace_s=0.0)
        reply = self.engine.handle(job_inputs.Submit(spec, dice.choice("abcdefgh")), now).reply
        job = reply.jobs[0]  # type: ignore[union-attr]
        self.submitted[job], self.run_s[job] = now, limit * dice.uniform(0.35, 1.0)

    def _cycle(self, now: float) -> None:
        for order in self.engine.handle(Tick(), now).orders:
            frame = order.frame
            if isinstance(order, SendToNode) and isinstance(frame, Start):
                self.started[frame.job] = now
                status = AttemptStatus(frame.job, frame.attempt, 1, now)
                self.engine.handle(agent_inputs.AgentReported(order.node, status), now)
                heapq.heappush(self.ends, (now + self.run_s[frame.job], order.node, frame.job, frame.attempt))

    def _order(self, now: float) -> None:
        pending = sum(not each.joined for each in self.machines.values())
        room = min(MOST - len(self.machines), UNANSWERED - pending)
        zone = min(PRICES, key=lambda zone: PRICES[zone][int((now - BEGIN) / HOUR_S)])
        if room <= 0:
            return
        if self.rule == "counter":
            waiting = sum(
                self.engine.state.jobs[job].ask.part.gpus
                for lane in self.engine.state.queue
                for _, job in lane
            )
            wanted = math.ceil(waiting / GPUS) - pending
        else:
            began = time.perf_counter()
            copy = EngineCopy(self.engine, Config(), 0, now, Deadline.after(60.0), 5.0)
            nodes = HypotheticalNodes(_facts("vm"), {}, (), BOOT_S, room)
            one = HypotheticalNodes(_facts("vm"), {}, (), BOOT_S)
            answer = next(pool_demand(copy, (one,) * pending, (nodes,)), None)
            self.asked_s += time.perf_counter() - began
            self.questions += 1
            wanted = 0 if answer is None else answer[0].needed
        for _ in range(max(0, min(room, wanted))):
            self.orders += 1
            price = PRICES[zone][int((now - BEGIN) / HOUR_S)]
            self.machines[f"vm-{self.orders:04}"] = Machine(zone, price, now + BOOT_S)

    def _keep(self, now: float) -> None:
        """Let ordered machines join when they are ready, add their cost, and remove machines that
        are idle.
        """
        for name, machine in list(self.machines.items()):
            self.machine_s += STEP_S
            self.money += PRICES[machine.zone][int((now - BEGIN) / HOUR_S)] * STEP_S / HOUR_S
            if not machine.joined and now >= machine.ready_at:
                machine.joined, machine.idle_since = True, now
                self._join(name, now)
            elif machine.joined and self.engine.state.nodes.by_name[name].held:
                machine.idle_since = now
            elif machine.joined and now - machine.idle_since >= IDLE_S:
                self.engine.handle(node_inputs.RemoveNode(name, "pool"), now)
                del self.machines[name]

    def _join(self, name: str, now: float) -> None:
        self.engine.handle(agent_inputs.AgentSaidHello(name, Hello(name, "0", "b", name, _facts(name))), now)


def _facts(name: str) -> NodeFacts:
    gpus = tuple(GpuFacts(index, f"GPU-{name}-{index}", "H100", 81_920) for index in range(GPUS))
    return NodeFacts(64_000, 512 * 1_024, gpus)


def _count(dice: random.Random, mean: float) -> int:
    return max(0, round(dice.gauss(mean, math.sqrt(mean))))


def run() -> None:
    heading(f"Machine pools: {OWN} nodes and at most {MOST} machines, {HOURS:g} hours with a price trace")
    for rule in ("no pool", "counter", "what-if"):
        made = Run(rule)
        made.go()
        row(f"{rule}: mean wait of {len(made.submitted):,} jobs", f"{made.mean_wait_s / 60:.1f} min")
        if rule != "no pool":
            row(
                f"{rule}: orders, machine-hours, money",
                f"{made.orders}, {made.machine_s / HOUR_S:.0f}, {made.money:.0f}",
            )
        if made.questions:
            row(f"{rule}: time for a question, mean", f"{made.asked_s / made.questions:.2f} s")
