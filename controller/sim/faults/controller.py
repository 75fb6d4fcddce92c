"""A mortal controller: like the daemon it decides, commits, and only then answers and gives orders."""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter

from controller.core.apply import apply
from controller.core.check import check
from controller.core.effects import Effect
from controller.core.engine import Engine
from controller.core.events import Event, body_of, event_of
from controller.core.gangs import together
from controller.core.inputs import ControllerStarted, Decision, Input, Reply, Tick
from controller.core.keeper import Keeper
from controller.core.nodes import Node
from controller.core.notes import noted
from controller.core.plugin import Pipeline
from controller.core.records import restore, touched
from controller.core.rows import JobRow, NodeRow, NoteRow
from controller.core.state import State
from controller.sim.faults.truth import PromiseBroken

Answer = Callable[[Reply], None]
NINE = "9 the journal says what happened"
NODE = [attrgetter(each.name) for each in fields(Node) if each.name not in ("row", "slots", "turn")]
"""What a node is; of the others two are where its columns are, and one is counted anew by each controller."""


class Death(enum.Enum):
    """When the controller dies, as seen from its next commit."""

    BEFORE_COMMIT = "before its commit"
    AFTER_COMMIT = "after its commit, before anybody was told"
    AFTER_ALL = "when all had been told"


class Store:
    """What survives: the journal and the rows, and what the journal alone would have come to."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.journal: list[Event] = []
        self.jobs: dict[int, JobRow] = {}
        self.nodes: dict[str, NodeRow] = {}
        self.notes: dict[tuple[str, str], NoteRow] = {}
        self.folded = State(pipeline.order, 1_000_000, pipeline.sharing)
        self.folded.divide(pipeline.profiles)
        self.folded.adopt(pipeline.rules)

    def commit(self, state: State, events: tuple[Event, ...]) -> None:
        """Keep events and rows; what the events touched must be what the journal makes of it."""
        for event in events:
            read = event_of(type(event).__name__, body_of(event))
            self.journal.append(read)
            apply(self.folded, read)
        jobs, nodes = touched(state, events)
        self._compare((job.id for job in jobs), (node.name for node in nodes), state)
        for job in jobs:
            self.jobs[job.id] = job if job.spec is not None else replace(job, spec=self.jobs[job.id].spec)
        self.nodes.update((node.name, node) for node in nodes)
        for note in noted(state, events):
            if note.body is None:
                self.notes.pop((note.kind, note.name), None)
            else:
                self.notes[note.kind, note.name] = note

    def load(self, state: State, keep: int) -> tuple[str, ...]:
        """Fill an empty state, as the daemon does at its start; the nodes that were there."""
        ended = [row for row in self.jobs.values() if row.ended_at is not None]
        ended.sort(key=lambda row: (row.ended_at or 0.0, row.id), reverse=True)
        live = [row for _, row in sorted(self.jobs.items()) if row.ended_at is None]
        there = restore(state, [*live, *ended[:keep]], self.nodes.values(), self.notes.values())
        highest = max((max(row.id, row.array or 0) for row in self.jobs.values()), default=0)
        state.next_job = max(state.next_job, highest + 1)
        return there

    def compare(self, state: State) -> None:
        """All that is in memory, and the order in which it waits, against the journal."""
        wrong = check(state)
        if wrong:
            raise PromiseBroken("check() finds the state healthy", "; ".join(wrong))
        self._compare(state.jobs, state.nodes.by_name, state)
        if state.shares.accounts != self.folded.shares.accounts:
            raise PromiseBroken(NINE, "what tenants have used is not what the journal adds up to")
        if state.offqueue.open != self.folded.offqueue.open:
            raise PromiseBroken(NINE, "who works past the queue is not what the journal says")
        if [*heapq.merge(*state.queue)] != [*heapq.merge(*self.folded.queue)]:
            raise PromiseBroken(NINE, "the queue is not in the order the journal gives it")

    def _compare(self, jobs: Iterable[int], nodes: Iterable[str], state: State) -> None:
        for job in jobs:
            if state.jobs[job] != self.folded.jobs[job]:
                raise PromiseBroken(NINE, f"job {job} is not what the journal says")
        for node in nodes:
            here, there = state.nodes.get(node), self.folded.nodes.get(node)
            if here is None or there is None:
                same = here is there
            else:
                same = all(of(here) == of(there) for of in NODE)
            if not same:
                raise PromiseBroken(NINE, f"node {node} is not what the journal says")


@dataclass
class Batch:
    """What one landing came to, before anybody knows of it."""

    events: list[Event] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    answers: list[tuple[Answer, Reply]] = field(default_factory=list)

    def take(self, decision: Decision) -> Decision:
        """One decision more."""
        self.events += decision.events
        self.effects += decision.effects
        return decision


class Controller:
    """Takes inputs until land(); then commits, answers and orders, or dies at the worst moment."""

    def __init__(
        self,
        pipeline: Pipeline,
        engine: Callable[[Pipeline, State], Engine],
        keep_ended: int,
        order: Callable[[Effect], None],
        note: Callable[[Event], None],
    ) -> None:
        self.alive = True
        self.doom: Death | None = None
        """How it is to die, once it has something to commit."""
        self.store = Store(pipeline)
        self._pipeline = pipeline
        self._make = engine
        self._keep_ended = keep_ended
        self._order = order
        self._note = note
        self._begin()

    def _begin(self) -> None:
        state = State(self._pipeline.order, self._keep_ended, self._pipeline.sharing)
        there = self.store.load(state, self._keep_ended)
        self.engine = self._make(self._pipeline, state)
        self._inbox: list[tuple[Input, Answer | None]] = [(ControllerStarted(there), None)] if there else []
        self._cycle_wanted = True

    def look(self) -> None:
        """Have a cycle although nothing came: time has."""
        self._cycle_wanted = self.alive

    def put(self, given: Input, answer: Answer | None = None) -> None:
        """Hand in an input: decided at the next landing, answered after its commit."""
        if self.alive:
            self._inbox.append((given, answer))

    def land(self, now: float) -> Death | None:
        """One batch: decide everything, a cycle, a commit, and then everybody is told; or a death."""
        if not self.alive:
            return None
        batch = self._decide(now)
        if batch.events:
            if self.doom is Death.BEFORE_COMMIT:
                return self._die()
            self._commit(batch)
            if self.doom is Death.AFTER_COMMIT:
                return self._die()
        self._tell(batch)
        return self._die() if batch.events and self.doom is Death.AFTER_ALL else None

    def _decide(self, now: float) -> Batch:
        taken, self._inbox = self._inbox, []
        batch = Batch()
        for given, answer in together(taken):
            decision = batch.take(self.engine.handle(given, now))
            if answer is not None:
                batch.answers.append((answer, decision.reply))
        if self._cycle_wanted or batch.events:
            self._cycle_wanted = False
            batch.take(self.engine.handle(Tick(), now))
        return batch

    def _commit(self, batch: Batch) -> None:
        self.store.commit(self.engine.state, tuple(batch.events))
        self.engine.state.forget_old()
        for event in batch.events:
            self._note(event)

    def _tell(self, batch: Batch) -> None:
        for answer, reply in batch.answers:
            answer(reply)
        for effect in batch.effects:
            self._order(effect)

    def _die(self) -> Death | None:
        death, self.doom, self.alive = self.doom, None, False
        return death

    def compare(self) -> None:
        """What it has in memory against what the journal and the state come to."""
        state, kept = self.engine.state, self.engine.keeper
        self.store.compare(state)
        anew = Keeper(state, self._pipeline.waiting, lambda _event: None, lambda *_job: None)
        same = anew.moments == kept.moments and anew.kept == kept.kept
        same = (
            same and anew.followers.edges == kept.followers.edges and anew.slots.keys() == kept.slots.keys()
        )
        if not same or any(
            (slots.taken, slots.wanting) != (kept.slots[array].taken, kept.slots[array].wanting)
            or slots.next() is not None
            for array, slots in anew.slots.items()
        ):
            raise PromiseBroken(NINE, "what is due for whom is not what the state says")

    def recover(self) -> None:
        """A new process, which knows what the store has and nothing else."""
        self.alive = True
        self._begin()
