"""The engine driven through virtual time: effects become later inputs on a heap of (time, rank, sequence)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from controller.core import inputs
from controller.core.effects import SendToNodes, StartAttempt
from controller.core.engine import Engine
from controller.core.events import Event
from controller.core.inputs import Accepted, Decision, Input, Refusal, Tick
from controller.core.jobs import NEVER
from controller.core.rebalancing import AUTO
from controller.sim.agents import Course, Key, Told, VirtualAgents, hello
from controller.sim.workload import Work
from wire.frames import AttemptStatus, NodeFacts, Settle, Start, Stop

NEWS, REQUEST, REBALANCE = 0, 1, 2
"""At the same moment what nodes tell comes before what users ask, and one cycle follows all."""

TICK = Tick()

Happening = Callable[[float], None]


class Simulation:
    """A clock, virtual nodes and one engine. Everything that happens, happens through Engine.handle."""

    def __init__(self, engine: Engine, witness: Callable[[Event], None] | None = None) -> None:
        self.engine = engine
        self.now = 0.0
        self.agents = VirtualAgents(lambda key: self.courses[key[0]], self._since)
        self.courses: dict[int, Course] = {}
        self.refused: list[tuple[Work, Refusal]] = []
        self.numbers: dict[int, Work] = {}
        """The work each job came from."""
        self._witness = witness
        self._heap: list[tuple[float, int, int, Happening]] = []
        self._sequence = 0
        self._saved: set[Key] = set()
        self._begun: dict[Key, float] = {}
        self._rules = engine.pipeline.rebalance

    def at(self, when: float, rank: int, happening: Happening) -> None:
        """Let something happen then."""
        self._sequence += 1
        heapq.heappush(self._heap, (when, rank, self._sequence, happening))

    def add_node(self, name: str, facts: NodeFacts) -> None:
        """A node that is there from the beginning."""
        self.tell(inputs.AgentSaidHello(name, hello(name, facts)))

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

    def _since(self, key: Key, now: float) -> float:
        """Who joins an elastic job later is done when the others are."""
        work = self.numbers.get(key[0])
        if work is None or not work.spec.gang.elastic:
            return now
        return self._begun.setdefault(key, now)

    def tell(self, given: Input) -> Decision:
        """Hand the engine an input now, and let the agents carry out what it orders."""
        decision = self.engine.handle(given, self.now)
        if self._witness is not None:
            for event in decision.events:
                self._witness(event)
        for effect in decision.effects:
            if isinstance(effect, StartAttempt):  # the orders themselves would be written for nobody
                self._start(effect.launch.key, effect.launch.nodes, effect.launch.time_limit_s)
            elif isinstance(effect, SendToNodes):
                self._obey(effect.nodes, effect.frame)
            else:
                self._obey((effect.node,), effect.frame)
        return decision

    def _obey(self, nodes: Sequence[str], order: object) -> None:
        """All other orders say nothing to virtual agents: members begin together, and GPUs never fall ill."""
        if isinstance(order, Start):
            self._start((order.job, order.attempt), nodes, order.time_limit_s)
        elif isinstance(order, Stop):
            self._hear((order.job, order.attempt), self.agents.stop(nodes, order, self.now))
        elif isinstance(order, Settle):
            self.agents.settle((order.job, order.attempt), nodes)

    def _start(self, key: Key, nodes: Sequence[str], limit_s: float | None) -> None:
        begun, seconds = self.agents.start(key, nodes, limit_s, self.now)
        self._let_end(key, seconds, lambda now: self._hear(key, self.agents.end(key, nodes, now)))
        self._hear(key, begun)

    def _let_end(self, _key: Key, seconds: float, ending: Happening) -> None:
        """The processes of an attempt return then, unless they are ended before."""
        self.at(self.now + seconds, NEWS, ending)

    def _hear(self, key: Key, told: Told) -> None:
        """What the members of an attempt have to say at this moment."""
        if not told:
            return
        node, status = next(iter(told.items()))
        self._keep_saved(status)
        self.tell(
            inputs.AgentReported(node, status) if len(told) == 1 else inputs.MembersReported(*key, told)
        )

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
        self.tell(TICK)
        while self.engine.cycle.room_is_made():  # virtual jobs go at once, and who waited for that starts
            self.tell(TICK)
        self.engine.state.forget_old()

    def run(self, progress: Callable[[float], Any] | None = None) -> None:
        """Until nothing is left to happen."""
        while self.step():
            if progress is not None:
                progress(self.now)
