"""Reconstructs inputs and scheduling passes from a journal.

A pass is a step like any input: it runs wherever the journal shows that one did something. A pass without
events leaves no trace, so one is added after the last input of a quiet period (`_with_quiet_cycles`).

Invariant: backfill kinds that decide by the present state alone give the same placements under the same
configuration. Conservative and aggressive backfill keep reservations from earlier passes; there, a
reservation may come from a pass that the journal does not show.
"""

from __future__ import annotations

import enum
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from controller.core.model import inputs
from controller.core.model.events import (
    Event,
    JobEvent,
    JobPlaced,
    JobQueued,
    NodeJoined,
    NodeWentAway,
    PreemptionPlanned,
    StopRequested,
)
from controller.sim.job_results import SimulatedJobs
from controller.sim.replay.input_traces import WAYS, InternalInput, input_of
from controller.sim.replay.job_durations import RecordedRun, RunRecorder
from wire.agent.frames import NodeFacts

BURST_S = 0.05
"""Inputs closer together than this (seconds) may have shared a batch and a pass."""
SOON_S = 1.0
"""A recorded pass within this time (seconds) after an input counts as the pass of that input."""


class Mark(enum.Enum):
    """Steps that are not inputs from outside."""

    CYCLE = "cycle"
    RESTART = "restart"
    STOP = "stop"
    """The engine ordered the end of an attempt; under another configuration it may not."""


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """A step of the replay: an input of a kind with the event that shows it, or a mark."""

    at: float
    what: type[Any] | Mark
    event: Event | None = None


@dataclass
class History:
    """The steps of a journal and facts about it."""

    steps: list[HistoryStep] = field(default_factory=list)
    courses: dict[int, tuple[RecordedRun, ...]] = field(default_factory=dict)
    placed: dict[tuple[int, int], JobPlaced] = field(default_factory=dict)
    """By job and attempt."""
    stops: set[tuple[int, float]] = field(default_factory=set)
    """(job, attempt) and time of every ordered end."""
    records: SimulatedJobs = field(default_factory=SimulatedJobs)
    aways: dict[str, list[float]] = field(default_factory=dict)
    """When each node became silent."""
    names: dict[int, str] = field(default_factory=dict)
    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    """Every node that ever joined, with its last facts."""
    until: float = 0.0
    """Time of the last entry."""
    cycles: list[float] = field(default_factory=list)
    """Times of recorded passes, in order."""

    def cycle_comes(self, at: float) -> bool:
        """Whether the journal shows a pass soon after this moment."""
        place = bisect_left(self.cycles, at)
        return place < len(self.cycles) and self.cycles[place] - at < SOON_S


class _Reader:
    """Reads a journal, one moment at a time."""

    def __init__(self) -> None:
        self.history = History()
        self.steps: list[HistoryStep] = []
        self.jobs: dict[int, RunRecorder] = {}
        self._moment: set[tuple[type[Any], int]] = set()
        self._at = 0.0

    def waits(self, job: int) -> bool:
        """Whether the job is queued and not placed."""
        return self.jobs[job].placed_at is None

    def at_once(self, kind: type[Any], job: int, at: float) -> bool:
        """Whether an event of this kind about the job has the present moment."""
        return at == self._at and (kind, job) in self._moment

    def read(self, at: float, moment: Sequence[Event]) -> None:
        """Read all entries of one moment: mostly one input and its consequences."""
        self._at = at
        self._moment.clear()
        shown = [self._read(event) for event in moment]
        if not any(shown):
            shown[0] = Mark.CYCLE  # no input: a timer was due
        before: type[Any] | Mark | None = None
        for event, what in zip(moment, shown, strict=True):
            # One pass for all its placements, one restart for all lost nodes.
            if what is not None and not (isinstance(what, Mark) and what is before):
                self.steps.append(HistoryStep(at, what, event))
            before = what or before
            if isinstance(event, StopRequested) and not isinstance(what, type):
                self.steps.append(HistoryStep(at, Mark.STOP, event))

    def _read(self, event: Event) -> type[Any] | Mark | None:
        """Record an entry; returns the step that it shows, if any."""
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
    """The history of a journal."""
    reader = _Reader()
    for at, moment in groupby(journal, key=lambda event: event.at):
        reader.read(at, list(moment))
    history = reader.history
    history.steps = [*_with_quiet_cycles(reader.steps)]
    history.cycles = [step.at for step in reader.steps if step.what is Mark.CYCLE]
    history.courses = {job: recorder.known(history.until) for job, recorder in reader.jobs.items()}
    return history


def _mark_of(event: Event) -> Mark | None:
    for kind, mark in ((inputs.Tick, Mark.CYCLE), (inputs.ControllerStarted, Mark.RESTART)):
        way = WAYS[kind]
        assert isinstance(way, InternalInput)
        if way.shows(event):
            return mark
    return None


def _with_quiet_cycles(steps: Sequence[HistoryStep]) -> Iterator[HistoryStep]:
    """Add the passes that did nothing.

    A pass follows every batch of inputs. So if no recorded pass follows an input soon, one without events
    did. It is added after the last input of a burst, because a job that was submitted and held in one batch
    must not start in between. Under another configuration jobs may therefore start up to SOON_S later.
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
    """For every step, the time of the next recorded pass."""
    following, found = math.inf, []
    for step in reversed(steps):
        found.append(following)
        if step.what is Mark.CYCLE:
            following = step.at
    return found[::-1]
