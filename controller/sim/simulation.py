"""The engine driven through virtual time: effects become later inputs on a heap of (time, rank, sequence)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from controller.core import inputs
from controller.core.effects import StartOnNode
from controller.core.engine import Engine
from controller.core.events import Event
from controller.core.inputs import Accepted, Decision, Input, Refusal, Tick
from controller.core.jobs import NEVER
from controller.core.rebalancing import AUTO
from controller.sim.agents import Course, Key, VirtualAgent
from controller.sim.workload import Work
from wire.frames import AttemptStatus, CheckGpu, NodeFacts, Note, ResetGpu

NEWS, REQUEST, REBALANCE = 0, 1, 2
"""At the same moment what nodes tell comes before what users ask, and one cycle follows all."""

Happening = Callable[[float], None]


class Simulation:
    """A clock, virtual nodes and one engine. Everything that happens, happens through Engine.handle."""

    def __init__(self, engine: Engine, witness: Callable[[Event], None] | None = None) -> None:
        self.engine = engine
        self.now = 0.0
        self.agents: dict[str, VirtualAgent] = {}
        self.cut: set[str] = set()
        """Nodes that cannot be reached: orders to them are lost, their news waits for the next hello."""
        self.courses: dict[int, Course] = {}
        self.refused: list[tuple[Work, Refusal]] = []
        self.numbers: dict[int, Work] = {}
        """The work each job came from."""
        self._witness = witness
        self._heap: list[tuple[float, int, int, Happening]] = []
        self._sequence = 0
        self._saved: set[Key] = set()
        self._begun: dict[Key, float] = {}
        self._last = Ending(self, (0, 0), 0.0, 0.0, [])
        self._rules = engine.pipeline.rebalance

    def at(self, when: float, rank: int, happening: Happening) -> None:
        """Let something happen then."""
        self._sequence += 1
        heapq.heappush(self._heap, (when, rank, self._sequence, happening))

    def add_node(self, name: str, facts: NodeFacts) -> None:
        """A node that is there from the beginning."""
        agent = self.agents[name] = VirtualAgent(name, facts, self._course, self._end_later, self._since)
        self.tell(inputs.AgentSaidHello(name, agent.hello()))

    def add_work(self, work: Iterable[Work]) -> None:
        """Jobs that come when their time has come."""
        first: float | None = None
        for each in work:
            first = each.submit_s if first is None else min(first, each.submit_s)
            self.at(each.submit_s, REQUEST, lambda _now, each=each: self._submit(each))  # type: ignore[misc]

        if first is not None and self._rules.mode == "auto":
            self.at(first + self._rules.interval_s, REBALANCE, self._rebalance)

    def _rebalance(self, now: float) -> None:
        """Whatever can be proposed is done, now and as long as anything else is to happen."""
        self.tell(inputs.Rebalance(AUTO))
        if self._heap:
            self.at(now + self._rules.interval_s, REBALANCE, self._rebalance)

    def _submit(self, work: Work) -> None:
        reply = self.tell(inputs.Submit(work.spec, work.user)).reply
        if isinstance(reply, Accepted):
            for job in reply.jobs:
                self.numbers[job] = work
                self.courses[job] = Course(work.runtime_s, work.code)
        else:
            self.refused.append((work, reply))

    def _course(self, job: int, _attempt: int) -> Course:
        return self.courses[job]

    def _since(self, key: Key, now: float) -> float:
        """Who joins an elastic job later is done when the others are."""
        work = self.numbers.get(key[0])
        if work is None or not work.spec.gang.elastic:
            return now
        return self._begun.setdefault(key, now)

    def _end_later(self, seconds: float, node: str, key: Key) -> None:
        last = self._last
        if last.key == key and last.started_at == self.now and last.seconds == seconds:
            last.nodes.append(node)  # the members of a gang end together
            return
        last = self._last = Ending(self, key, self.now, seconds, [node])
        self._let_end(last)

    def _let_end(self, ending: Ending) -> None:
        self.at(self.now + ending.seconds, NEWS, ending)

    def tell(self, given: Input) -> Decision:
        """Hand the engine an input now, and let the agents carry out what it orders."""
        decision = self.engine.handle(given, self.now)
        if self._witness is not None:
            for event in decision.events:
                self._witness(event)
        for effect in decision.effects:
            if self.cut and effect.node in self.cut:
                continue
            agent = self.agents[effect.node]
            if isinstance(effect, StartOnNode):  # the order itself would be written for nobody
                status: AttemptStatus | None = agent.start(
                    effect.launch.key, effect.launch.time_limit_s, self.now
                )
            elif isinstance(effect.frame, CheckGpu | ResetGpu | Note):
                continue  # virtual GPUs never fall ill, and nobody reads what virtual jobs are told
            else:
                status = agent.obey(effect.frame, self.now)
            if status is not None:
                self._keep_saved(status)
                self.tell(inputs.AgentReported(effect.node, status))
        return decision

    def _keep_saved(self, status: AttemptStatus) -> None:
        """What an attempt has done and saved, the next one need not do again."""
        key = status.job, status.attempt
        if status.checkpoint is None or status.started_at is None or key in self._saved:
            return
        self._saved.add(key)  # the members of a gang save the same work
        course = self.courses[status.job]
        done = status.checkpoint.at - status.started_at
        self.courses[status.job] = replace(course, runtime_s=max(0.0, course.runtime_s - done))

    def step(self) -> bool:
        """Everything of the next moment, then one cycle; False when nothing is left to happen."""
        heap = self._heap
        self.now = now = min(heap[0][0] if heap else NEVER, self.engine.next_at)
        if now == NEVER:
            return False
        while heap and heap[0][0] == now:
            heapq.heappop(heap)[3](now)
        self._cycle()
        return True

    def _cycle(self) -> None:
        self.tell(Tick())
        while self.engine.cycle.room_is_made():  # virtual jobs go at once, and who waited for that starts
            self.tell(Tick())
        self.engine.state.forget_old()

    def run(self, progress: Callable[[float], Any] | None = None) -> None:
        """Until nothing is left to happen."""
        while self.step():
            if progress is not None:
                progress(self.now)


class Ending:
    """The processes of one attempt return, on all the nodes where they started together."""

    __slots__ = ("_simulation", "key", "nodes", "seconds", "started_at")

    def __init__(
        self, simulation: Simulation, key: Key, started_at: float, seconds: float, nodes: list[str]
    ) -> None:
        self.key = key
        self.started_at = started_at
        self.seconds = seconds
        self.nodes = nodes
        self._simulation = simulation

    def __call__(self, now: float) -> None:
        simulation = self._simulation
        for node in self.nodes:
            status = simulation.agents[node].end(self.key, now)
            if status is not None and node not in simulation.cut:
                simulation.tell(inputs.AgentReported(node, status))
