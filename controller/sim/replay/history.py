"""What really happened, taken apart: what came from outside in the order it came, and when cycles ran.

Cycles are inputs like others: one runs wherever the record shows that one did something. A cycle that did
nothing leaves no trace; where the record is quiet, one is put behind the last input (`_with_quiet_cycles`).
What places by the state alone - every backfill but conservative and aggressive, whose promises remember
earlier cycles - therefore places the same again under the same configuration: the same jobs, in the same
places, at the same times. With those two, a promise may have been made in a cycle that nobody knows of.
"""

from __future__ import annotations

import enum
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from controller.core import inputs
from controller.core.events import (
    Event,
    JobEvent,
    JobPlaced,
    JobQueued,
    NodeJoined,
    NodeWentAway,
    PreemptionPlanned,
    StopRequested,
)
from controller.sim.replay.courses import Course, Recorder
from controller.sim.replay.ways import WAYS, Inner, input_of
from controller.sim.results import Lives
from wire.frames import NodeFacts

BURST_S = 0.05
"""Inputs closer together than this may have shared a batch, and so a cycle."""
SOON_S = 1.0
"""A recorded cycle within this time is the one that answered an input."""


class Mark(enum.Enum):
    """What happened inside the controller, or followed from what did."""

    CYCLE = "cycle"
    RESTART = "restart"
    STOP = "stop"
    """The engine asked for the end of an attempt; under another configuration it may not."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happens again: an input of some kind that showed in an event, or a mark."""

    at: float
    what: type[Any] | Mark
    event: Event | None = None


@dataclass
class History:
    """A journal taken apart."""

    steps: list[Step] = field(default_factory=list)
    courses: dict[int, tuple[Course, ...]] = field(default_factory=dict)
    placed: dict[tuple[int, int], JobPlaced] = field(default_factory=dict)
    """By job and attempt."""
    stops: set[tuple[int, float]] = field(default_factory=set)
    """Which job's attempt somebody or something wanted to end, and when."""
    lives: Lives = field(default_factory=Lives)
    aways: dict[str, list[float]] = field(default_factory=dict)
    """When each node was heard of no longer."""
    names: dict[int, str] = field(default_factory=dict)
    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    """Every node that ever joined, as it was last."""
    until: float = 0.0
    """The last entry's time."""
    cycles: list[float] = field(default_factory=list)
    """When the record shows one, in order."""

    def cycle_comes(self, at: float) -> bool:
        """Does the record show a cycle soon after this moment?"""
        place = bisect_left(self.cycles, at)
        return place < len(self.cycles) and self.cycles[place] - at < SOON_S


class _Reader:
    """Goes through a journal, moment by moment."""

    def __init__(self) -> None:
        self.history = History()
        self.steps: list[Step] = []
        self.jobs: dict[int, Recorder] = {}
        self._moment: set[tuple[type[Any], int]] = set()
        self._at = 0.0

    def waits(self, job: int) -> bool:
        """Is the job in the queue, nothing of it placed?"""
        return self.jobs[job].placed_at is None

    def at_once(self, kind: type[Any], job: int, at: float) -> bool:
        """Did an event of this kind concern the job at this very moment?"""
        return at == self._at and (kind, job) in self._moment

    def read(self, at: float, moment: Sequence[Event]) -> None:
        """All entries of one moment: mostly one input, and all that followed from it."""
        self._at = at
        self._moment.clear()
        shown = [self._read(event) for event in moment]
        if not any(shown):
            shown[0] = Mark.CYCLE  # nothing came from outside: it was time
        before: type[Any] | Mark | None = None
        for event, what in zip(moment, shown, strict=True):
            # One cycle for all it placed, one restart for all the nodes it cost.
            if what is not None and not (isinstance(what, Mark) and what is before):
                self.steps.append(Step(at, what, event))
            before = what or before
            if isinstance(event, StopRequested) and not isinstance(what, type):
                self.steps.append(Step(at, Mark.STOP, event))

    def _read(self, event: Event) -> type[Any] | Mark | None:
        """Take note of an entry; what it shows by itself."""
        shown = _mark_of(event) or input_of(event, self)
        history = self.history
        history.lives.witness(event)
        history.until = event.at
        if isinstance(event, JobEvent):
            self._moment.add((type(event), event.job))
            self.jobs.setdefault(event.job, Recorder()).note(event)
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
    """Take a journal apart."""
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
        assert isinstance(way, Inner)
        if way.shows(event):
            return mark
    return None


def _with_quiet_cycles(steps: Sequence[Step]) -> Iterator[Step]:
    """Add the cycles that did nothing.

    There is one after every batch of inputs, within the same moment; so there was one after an input that no
    recorded cycle follows soon. Where inputs came in one go it goes behind the last of them: what is
    submitted and held in one batch must not start in between. Under another configuration jobs may so start
    up to SOON_S later than they would have.
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
            yield Step(step.at, Mark.CYCLE)
            burst = None


def _next_cycles(steps: Sequence[Step]) -> list[float]:
    """For every step, when the next recorded cycle begins."""
    following, found = math.inf, []
    for step in reversed(steps):
        found.append(following)
        if step.what is Mark.CYCLE:
            following = step.at
    return found[::-1]
