"""A controller that can crash. Like the daemon, it decides, commits, and then sends answers and orders."""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter

from controller.core.cluster.node import Node
from controller.core.engine import Engine
from controller.core.invariants import find_violations
from controller.core.lifecycle.attempt_reports import merge_member_reports
from controller.core.lifecycle.due_jobs import DueJobs
from controller.core.model.decision.decision import Decision, Reply
from controller.core.model.decision.effects import Effect
from controller.core.model.events.event import Event
from controller.core.model.events.kinds import body_of, event_of, kind_of
from controller.core.model.inputs.controller_inputs import ControllerStarted, Tick
from controller.core.model.inputs.input import Input
from controller.core.model.rows import JobRow, NodeRow, NoteRow
from controller.core.pipeline.pipeline import Pipeline
from controller.core.preemption.scavengers import scavengers_yield
from controller.core.state.apply import apply
from controller.core.state.job_and_node_rows import changed_rows, restore_state
from controller.core.state.note_rows import changed_notes, clear_note_changes
from controller.core.state.state import State
from tests.simulation.oracle import GuaranteeBroken

Answer = Callable[[Reply], None]
JOURNAL_GUARANTEE = "9 the journal says what happened"
NODE_FIELDS = [
    attrgetter(each.name) for each in fields(Node) if each.name not in ("row", "slots", "last_placement")
]
"""Fields of a node that are compared: not its row and slots in the table, nor a counter of each
controller."""


class CrashPoint(enum.Enum):
    """When the controller crashes, relative to its next commit."""

    BEFORE_COMMIT = "before its commit"
    AFTER_COMMIT = "after its commit, before answers and orders"
    AFTER_ALL = "after answers and orders"


class SimulatedStore:
    """The durable store: the journal and the rows; and the state replayed from the journal, for
    comparison."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.journal: list[Event] = []
        self.jobs: dict[int, JobRow] = {}
        self.nodes: dict[str, NodeRow] = {}
        self.notes: dict[tuple[str, str], NoteRow] = {}
        self.folded = State(pipeline.order, 1_000_000, pipeline.sharing)
        self.folded.set_profiles(pipeline.profiles)
        self.folded.set_quota_config(pipeline.rules)
        self.folded.put_scavengers_last(scavengers_yield(pipeline, pipeline.profiles))
        self.folded.order_projects(pipeline.order_of_projects)

    def commit(self, state: State, events: tuple[Event, ...]) -> None:
        """Store events and rows; check that changed jobs and nodes equal those replayed from the journal."""
        for event in events:
            read = event_of(kind_of(event), body_of(event))
            self.journal.append(read)
            apply(self.folded, read)
        jobs, nodes = changed_rows(state, events)
        self._compare((job.id for job in jobs), (node.name for node in nodes), state)
        for job in jobs:
            self.jobs[job.id] = job if job.spec is not None else replace(job, spec=self.jobs[job.id].spec)
        self.nodes.update((node.name, node) for node in nodes)
        notes = changed_notes(state, events)
        clear_note_changes(state)
        for note in notes:
            if note.body is None:
                self.notes.pop((note.kind, note.name), None)
            else:
                self.notes[note.kind, note.name] = note

    def load(self, state: State, keep: int) -> tuple[str, ...]:
        """Fill an empty state as the daemon does at its start; returns the nodes that were connected."""
        ended = [row for row in self.jobs.values() if row.ended_at is not None]
        ended.sort(key=lambda row: (row.ended_at or 0.0, row.id), reverse=True)
        live = [row for _, row in sorted(self.jobs.items()) if row.ended_at is None]
        there = restore_state(state, [*live, *ended[:keep]], self.nodes.values(), self.notes.values())
        highest = max((max(row.id, row.array or 0) for row in self.jobs.values()), default=0)
        state.next_job = max(state.next_job, highest + 1)
        return there

    def compare(self, state: State) -> None:
        """Compare the whole state, and the order of the queue, with the journal."""
        wrong = find_violations(state)
        if wrong:
            raise GuaranteeBroken("check() finds the state healthy", "; ".join(wrong))
        self._compare(state.jobs, state.nodes.by_name, state)
        if state.shares.accounts != self.folded.shares.accounts:
            raise GuaranteeBroken(
                JOURNAL_GUARANTEE, "what tenants have used is not what the journal adds up to"
            )
        if state.offqueue.open != self.folded.offqueue.open:
            raise GuaranteeBroken(JOURNAL_GUARANTEE, "processes past the queue differ from the journal")
        if [*heapq.merge(*state.queue)] != [*heapq.merge(*self.folded.queue)]:
            raise GuaranteeBroken(JOURNAL_GUARANTEE, "the queue is not in the order the journal gives it")

    def _compare(self, jobs: Iterable[int], nodes: Iterable[str], state: State) -> None:
        for job in jobs:
            if state.jobs[job] != self.folded.jobs[job]:
                raise GuaranteeBroken(JOURNAL_GUARANTEE, f"job {job} differs from the journal")
        for node in nodes:
            here, there = state.nodes.get(node), self.folded.nodes.get(node)
            if here is None or there is None:
                same = here is there
            else:
                same = all(of(here) == of(there) for of in NODE_FIELDS)
            if not same:
                raise GuaranteeBroken(JOURNAL_GUARANTEE, f"node {node} differs from the journal")


@dataclass
class LandingBatch:
    """The result of one batch before its commit."""

    events: list[Event] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    answers: list[tuple[Answer, Reply]] = field(default_factory=list)

    def take(self, decision: Decision) -> Decision:
        """Add a decision."""
        self.events += decision.events
        self.effects += decision.effects
        return decision


class SimulatedController:
    """Collects inputs until land(); then commits, answers and sends orders, or crashes at the worst
    moment."""

    def __init__(
        self,
        pipeline: Pipeline,
        engine: Callable[[Pipeline, State], Engine],
        keep_ended: int,
        order: Callable[[Effect], None],
        note: Callable[[Event], None],
    ) -> None:
        self.alive = True
        self.doom: CrashPoint | None = None
        """When to crash, at the next commit."""
        self.store = SimulatedStore(pipeline)
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
        """Run a pass although no input came, because a timer is due."""
        self._cycle_wanted = self.alive

    def put(self, given: Input, answer: Answer | None = None) -> None:
        """Add an input; it is decided at the next land() and answered after its commit."""
        if self.alive:
            self._inbox.append((given, answer))

    def land(self, now: float) -> CrashPoint | None:
        """One batch: decisions, a pass, a commit, then answers and orders; or a crash, which is returned."""
        if not self.alive:
            return None
        batch = self._decide(now)
        if batch.events:
            if self.doom is CrashPoint.BEFORE_COMMIT:
                return self._die()
            self._commit(batch)
            if self.doom is CrashPoint.AFTER_COMMIT:
                return self._die()
        self._tell(batch)
        return self._die() if batch.events and self.doom is CrashPoint.AFTER_ALL else None

    def _decide(self, now: float) -> LandingBatch:
        taken, self._inbox = self._inbox, []
        batch = LandingBatch()
        for given, answer in merge_member_reports(taken):
            decision = batch.take(self.engine.handle(given, now))
            if answer is not None:
                batch.answers.append((answer, decision.reply))
        if self._cycle_wanted or batch.events:
            self._cycle_wanted = False
            batch.take(self.engine.handle(Tick(), now))
        return batch

    def _commit(self, batch: LandingBatch) -> None:
        self.store.commit(self.engine.state, tuple(batch.events))
        self.engine.state.forget_old()
        for event in batch.events:
            self._note(event)

    def _tell(self, batch: LandingBatch) -> None:
        for answer, reply in batch.answers:
            answer(reply)
        for effect in batch.effects:
            self._order(effect)

    def _die(self) -> CrashPoint | None:
        death, self.doom, self.alive = self.doom, None, False
        return death

    def compare(self) -> None:
        """Compare due times, dependencies and throttles in memory with those of a fresh state."""
        state, kept = self.engine.state, self.engine.due_jobs
        self.store.compare(state)
        fresh = DueJobs(state, self._pipeline.waiting, lambda _event: None, lambda *_job: None)
        same = fresh.due_times == kept.due_times and fresh.gated == kept.gated
        same = same and fresh.dependencies.edges == kept.dependencies.edges
        throttles = kept.throttles.by_group
        same = same and fresh.throttles.by_group.keys() == throttles.keys()
        if not same or any(
            (slots.holding, slots.waiting) != (throttles[array].holding, throttles[array].waiting)
            or slots.next_job() is not None
            for array, slots in fresh.throttles.by_group.items()
        ):
            raise GuaranteeBroken(JOURNAL_GUARANTEE, "due times differ from those of the state")

    def recover(self) -> None:
        """Start again from the store."""
        self.alive = True
        self._begin()
