"""Reconstructs the inputs (commands, reports, timers) and scheduling cycles of a controller from its journal.

The inputs and the cycles are the steps of a replay. A journal entry that proves that an input arrived or that
a cycle ran becomes a step. A cycle that changed nothing has no journal entry, so `_with_quiet_cycles` adds a
step for such a cycle after the last of several inputs in quick succession.

Invariant: under the recorded configuration, the replay repeats the recorded placements exactly. Exceptions
are conservative and aggressive backfill, which keep reservations from earlier cycles. Such a reservation may
come from a cycle that is not in the journal.
"""

from __future__ import annotations

import enum
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from controller.core.model.events.attempts import JobPlaced, StopRequested
from controller.core.model.events.event import Event, JobEvent
from controller.core.model.events.nodes import NodeJoined, NodeWentAway
from controller.core.model.events.nominations import PreemptionPlanned
from controller.core.model.events.queued import JobQueued
from controller.core.model.inputs import controller_inputs
from controller.sim.job_results import SimulatedJobs
from controller.sim.replay.input_traces import WAYS, InternalInput, input_of
from controller.sim.replay.job_durations import RecordedRun, RunRecorder
from wire.agent.reports import NodeFacts

BURST_S = 0.05
"""Inputs that are at most this many seconds apart may have been handled in one batch, before one scheduling
cycle.
"""
SOON_S = 1.0
"""If the journal shows a scheduling cycle less than this many seconds after an input, this cycle counts as
the cycle that followed the input.
"""


class Mark(enum.Enum):
    """The kinds of replay steps that are not inputs: a scheduling cycle, a restart of the controller, and an
    order to stop an attempt.
    """

    CYCLE = "cycle"
    RESTART = "restart"
    STOP = "stop"
    """The engine ordered the end of an attempt. Under another configuration, the engine possibly does not
    give this order.
    """


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """A step of a replay. `what` is a Mark (such as a scheduling cycle), or the class of the input that
    caused the journal entry `event`. `event` is None for a cycle that changed nothing.
    """

    at: float
    what: type[Any] | Mark
    event: Event | None = None


@dataclass
class History:
    """The steps that a replay repeats, and further data from the journal for the replay."""

    steps: list[HistoryStep] = field(default_factory=list)
    runs: dict[int, tuple[RecordedRun, ...]] = field(default_factory=dict)
    placed: dict[tuple[int, int], JobPlaced] = field(default_factory=dict)
    """The recorded placement of each attempt, by job and attempt number."""
    stops: set[tuple[int, float]] = field(default_factory=set)
    """Job id and time of every stop order."""
    records: SimulatedJobs = field(default_factory=SimulatedJobs)
    aways: dict[str, list[float]] = field(default_factory=dict)
    """For each node, the times at which it lost its connection."""
    names: dict[int, str] = field(default_factory=dict)
    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    """The last reported hardware of every node that ever connected."""
    until: float = 0.0
    """Time of the last journal entry."""
    cycles: list[float] = field(default_factory=list)
    """Times of recorded scheduling cycles, earliest first."""

    def cycle_comes(self, at: float) -> bool:
        """Return whether the journal shows a scheduling cycle at the time `at` or less than SOON_S seconds
        later.
        """
        place = bisect_left(self.cycles, at)
        return place < len(self.cycles) and self.cycles[place] - at < SOON_S


class _Reader:
    """Reads a journal and collects the steps of a replay. Entries with the same time are read together."""

    def __init__(self) -> None:
        self.history = History()
        self.steps: list[HistoryStep] = []
        self.jobs: dict[int, RunRecorder] = {}
        self._moment: set[tuple[type[Any], int]] = set()
        self._at = 0.0

    def waits(self, job: int) -> bool:
        return self.jobs[job].placed_at is None

    def at_once(self, kind: type[Any], job: int, at: float) -> bool:
        return at == self._at and (kind, job) in self._moment

    def read(self, at: float, moment: Sequence[Event]) -> None:
        """Read all journal entries with the same time: usually the entries of one input and its
        consequences.
        """
        self._at = at
        self._moment.clear()
        shown = [self._read(event) for event in moment]
        if not any(shown):
            # No input caused any of these entries, so they come from a scheduling cycle that a timer started.
            shown[0] = Mark.CYCLE
        before: type[Any] | Mark | None = None
        for event, what in zip(moment, shown, strict=True):
            # Add only one step even if a scheduling cycle made several placements, or if a restart lost
            # several nodes.
            if what is not None and not (isinstance(what, Mark) and what is before):
                self.steps.append(HistoryStep(at, what, event))
            before = what or before
            if isinstance(event, StopRequested) and not isinstance(what, type):
                self.steps.append(HistoryStep(at, Mark.STOP, event))

    def _read(self, event: Event) -> type[Any] | Mark | None:
        """Read one journal entry. Return the kind of the step that this entry begins; None if the entry is a
        further consequence of an earlier step.
        """
        shown = _mark_of(event) or input_of(event, self)
        history = self.history
        history.records.observe(event)
        history.until = event.at
        if isinstance(event, JobEvent):
            self._moment.add((type(event), event.job))
            self.jobs.setdefault(event.job, RunRecorder()).note(event)
        if isinstance(event, JobQueued):
            history.names[event.job] = event.spec.name or event.spec.command[0].rsplit("/", 1)[-1]
        elif isinstance(event, JobPlaced):
            history.placed[event.job, event.attempt] = event
        elif isinstance(event, StopRequested):
            history.stops.add((event.job, event.at))
        elif isinstance(event, PreemptionPlanned):
            self._moment.update((PreemptionPlanned, victim.job) for victim in event.victims)
        elif isinstance(event, NodeWentAway):
            history.aways.setdefault(event.node, []).append(event.at)
        elif isinstance(event, NodeJoined):
            history.nodes[event.node] = event.facts
        return shown


def history_of(journal: Sequence[Event]) -> History:
    """Reconstruct the inputs and scheduling cycles of a cluster from its journal."""
    reader = _Reader()
    for at, moment in groupby(journal, key=lambda event: event.at):
        reader.read(at, list(moment))
    history = reader.history
    history.steps = [*_with_quiet_cycles(reader.steps)]
    history.cycles = [step.at for step in reader.steps if step.what is Mark.CYCLE]
    history.runs = {job: recorder.known(history.until) for job, recorder in reader.jobs.items()}
    return history


def _mark_of(event: Event) -> Mark | None:
    for kind, mark in (
        (controller_inputs.Tick, Mark.CYCLE),
        (controller_inputs.ControllerStarted, Mark.RESTART),
    ):
        way = WAYS[kind]
        assert isinstance(way, InternalInput)
        if way.shows(event):
            return mark
    return None


def _with_quiet_cycles(steps: Sequence[HistoryStep]) -> Iterator[HistoryStep]:
    """Yield the steps, and an additional step for each scheduling cycle that changed nothing.

    The controller runs a cycle after every batch of inputs. If the journal has no cycle less than SOON_S
    seconds after an input, the cycle changed nothing, and a step is added for it. For a burst of inputs (at
    most BURST_S seconds between two inputs, about SOON_S seconds in all), only one step is added, after the
    last input. With a step after each input, a job that was submitted and held in the same batch could start
    in between. Because a burst gets only one step, a job may start up to SOON_S seconds too late under
    another configuration.
    """
    burst: float | None = None
    for step, follower, cycle in zip(steps, [*steps[1:], None], _next_cycles(steps), strict=True):
        yield step
        if step.what is Mark.CYCLE:
            burst = None
            continue
        burst = step.at if burst is None else burst
        over = follower is None or follower.at - step.at > BURST_S or step.at - burst > SOON_S
        if over and cycle - step.at >= SOON_S:
            yield HistoryStep(step.at, Mark.CYCLE)
            burst = None


def _next_cycles(steps: Sequence[HistoryStep]) -> list[float]:
    """Return for every step the time of the next recorded scheduling cycle; infinity if no cycle follows."""
    following, found = math.inf, []
    for step in reversed(steps):
        found.append(following)
        if step.what is Mark.CYCLE:
            following = step.at
    return found[::-1]
