"""Replays the recorded inputs of a cluster under a configuration."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from controller.core.engine import Engine
from controller.core.lifecycle.node_loss import is_overdue, silence_limits
from controller.core.model.decision.decision import Refusal, Reply
from controller.core.model.events.attempts import JobPlaced, StopRequested
from controller.core.model.events.event import Event
from controller.core.model.events.nodes import NodeWentAway
from controller.core.model.events.queued import JobQueued
from controller.core.model.inputs import agent_inputs, controller_inputs
from controller.core.model.inputs.controller_inputs import Tick
from controller.core.model.inputs.input import Input
from controller.core.model.job import NEVER
from controller.core.pipeline.pipeline import Pipeline
from controller.core.state.state import State
from controller.sim.job_results import SimulatedJobs
from controller.sim.replay.agents import STEP_S, RecordedAgents
from controller.sim.replay.history import History, HistoryStep, Mark
from controller.sim.replay.input_traces import recreate_input
from controller.sim.replay.replay_clock import Clock
from controller.sim.restart import restarted
from wire.agent.orders import CheckGpu, Note, ResetGpu

OFTEN = 500


class Replay:
    """A scheduling engine that gets every recorded input at its recorded time.

    `observe` is called with every event of the replay. `policies` is a function that builds a pipeline (all
    scheduling settings) from a configuration text in the journal. With `policies`, the replay repeats the
    changes of the configuration in the journal. If `policies` is None, the replay always uses `pipeline`.
    """

    def __init__(
        self,
        history: History,
        pipeline: Pipeline,
        keep_ended: int = 10_000,
        observe: Callable[[Event], None] | None = None,
        policies: Callable[[str], Pipeline] | None = None,
    ) -> None:
        self.records = SimulatedJobs()
        self.placements = 0
        self.as_recorded = 0
        """Number of placements on the recorded nodes at the recorded time."""
        self.refused: dict[int, Refusal] = {}
        self._history = history
        self._pipeline = pipeline
        self._clock = Clock()
        self._agents = RecordedAgents(history, self._clock, self._report, policies)
        self._observe = observe
        self._cycle_comes = False
        self._due = NEVER
        self.engine = Engine(pipeline, State(pipeline.order, keep_ended, pipeline.sharing))
        self.engine.give_no_limit_warnings()
        self._agents.state = self.engine.state

    def run(self, progress: Callable[[int], None] | None = None) -> None:
        """Replay all steps. From time to time, `progress` is called with the number of steps done."""
        clock = self._clock
        for number, step in enumerate(self._history.steps):
            while clock.next_at <= step.at:
                clock.step()
            clock.now = step.at
            self._do(step)
            if progress is not None and not number % OFTEN:
                progress(number)
        while clock.next_at <= self._history.until:
            clock.step()

    def _do(self, step: HistoryStep) -> None:
        what, event = step.what, step.event
        if what is Mark.CYCLE:
            self._tell(Tick())
        elif what is Mark.RESTART:
            self._restart()
        elif isinstance(event, StopRequested) and what is Mark.STOP:
            self._expect_stop(event)
        elif event is not None and isinstance(what, type):
            self._give(what, event)

    def _give(self, kind: type[Any], event: Event) -> None:
        if isinstance(event, JobQueued):
            # Give the job its id from the journal, because the next free id is too low if the replay has
            # refused an earlier job.
            self.engine.state.next_job = event.job
        given = recreate_input(kind, event, self._agents)
        reply = None if given is None else self._tell(given)
        if isinstance(event, JobQueued) and isinstance(reply, Refusal):
            self.refused[event.job] = reply

    def _tell(self, given: Input) -> Reply:
        decision = self.engine.handle(given, self._clock.now)
        if isinstance(given, controller_inputs.ApplyConfig):
            self._pipeline, self._agents.state = self.engine.pipeline, self.engine.state
        for event in decision.events:
            self._note(event)
        for order in decision.orders:
            # GPU checks and resets are not simulated, because the journal contains their results.
            if not isinstance(order.frame, CheckGpu | ResetGpu | Note):
                self._agents.carry_out(order.node, order.frame)
        self.engine.state.forget_old()
        self._wake_when_due()
        return decision.reply

    def _note(self, event: Event) -> None:
        self.records.observe(event)
        if self._observe is not None:
            self._observe(event)
        if isinstance(event, JobPlaced):
            self._agents.place(event)
            self.placements += 1
            self.as_recorded += event == self._history.placed.get((event.job, event.attempt))
        elif isinstance(event, NodeWentAway):
            self._count_silence(event)
        elif isinstance(event, StopRequested) and (event.job, event.at) not in self._history.stops:
            self._agents.predict(self.engine.state.jobs[event.job])

    def _expect_stop(self, event: StopRequested) -> None:
        job = self.engine.state.jobs.get(event.job)
        if job is not None and job.stopping is None:
            self._agents.predict(job)

    def _count_silence(self, event: NodeWentAway) -> None:
        """Schedule the inputs NodeSilent for a node that has lost its connection. The engine then marks the
        node as down, and later its jobs as lost. If the node connects again first, the inputs are not sent.
        """
        state, losses = self.engine.state, self._pipeline.losses
        for silent_s in silence_limits(state, state.nodes.by_name[event.node], losses):
            self._clock.after(silent_s + 2 * STEP_S, partial(self._check_silence, event))

    def _check_silence(self, event: NodeWentAway) -> None:
        node, silent_s = self.engine.state.nodes.get(event.node), self._clock.now - event.at
        if node is None or node.since != event.at:
            return
        if is_overdue(self.engine.state, node, self._pipeline.losses, silent_s):
            self._report(agent_inputs.NodeSilent(event.node, silent_s))

    def _restart(self) -> None:
        """Repeat a restart of the controller: continue with a new engine that is loaded from the rows of the
        old engine. As in a real restart, backfill reservations and plans are lost.
        """
        self.engine, connected = restarted(self.engine.state, self._pipeline)
        self._agents.state = self.engine.state
        self._tell(controller_inputs.ControllerStarted(connected))

    def _report(self, given: Input) -> None:
        """Pass a report of an agent to the engine. After all reports with the same time, one scheduling cycle
        follows.
        """
        self._tell(given)
        if not self._cycle_comes:
            self._cycle_comes = True
            self._clock.at(self._clock.now, self._cycle, rank=1)

    def _wake_when_due(self) -> None:
        """Schedule a scheduling cycle for the time of the engine's next timer, unless the journal shows a
        cycle at that time.
        """
        due = self.engine.next_at
        if due != self._due:
            self._due = due
            if due < NEVER and not self._history.cycle_comes(due):
                self._clock.at(due, self._look, rank=1)

    def _look(self) -> None:
        if self.engine.next_at <= self._clock.now:
            self._tell(Tick())

    def _cycle(self) -> None:
        self._cycle_comes = False
        self._tell(Tick())
