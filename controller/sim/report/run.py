"""What a report is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from controller.sim.results import Life
from wire.frames import NodeFacts
from wire.words import WHOLE_GPU

DAY_S = 86_400.0


@dataclass(frozen=True)
class Run:
    """One run of a simulation.

    `label` tells it from the other runs of the report: the policy, the log, the scheduler.toml.
    `nodes` is what there was, by name, in the order it is to be shown. A cluster without a single GPU is
    measured by its CPUs: the interchangeable processors of a pool are the cores of one node.
    `lives` are all jobs, also those that never started. `figures` are the numbers of the run as `sim run`
    names them (`mean_wait_s`, `utilisation`, …); any name is shown, known ones with their unit.
    `source` says where the jobs came from.
    """

    label: str
    nodes: Mapping[str, NodeFacts]
    lives: Sequence[Life]
    figures: Mapping[str, float]
    source: str = ""

    @cached_property
    def gpus(self) -> int:
        """Of all nodes."""
        return sum(len(node.gpus) for node in self.nodes.values())

    @cached_property
    def cores(self) -> float:
        """Of all nodes."""
        return sum(node.cpu_milli for node in self.nodes.values()) / 1_000

    @property
    def unit(self) -> str:
        """What the run is measured in."""
        return "GPU" if self.gpus else "processor"

    @property
    def capacity(self) -> float:
        """How many of those there are."""
        return self.gpus or self.cores

    def size(self, life: Life) -> float:
        """How many of those a job asked for."""
        return life.gpus if self.gpus else life.cpu_milli / 1_000

    def held(self, life: Life) -> float:
        """How many of those it was given."""
        if self.gpus:
            return sum(hold.milli for part in life.allocations for hold in part.gpus) / WHOLE_GPU
        return sum(part.cpu_milli for part in life.allocations) / 1_000

    @cached_property
    def started(self) -> list[Life]:
        """Jobs that got their place."""
        return [life for life in self.lives if life.start_s is not None]

    @cached_property
    def begin_s(self) -> float:
        """The first submit."""
        return min((life.submit_s for life in self.lives), default=0.0)

    @cached_property
    def end_s(self) -> float:
        """The last thing that happened to a job."""
        moments = (
            moment for life in self.lives for moment in (life.submit_s, life.start_s, life.end_s) if moment is not None
        )
        return max(moments, default=0.0)

    @cached_property
    def used_s(self) -> float:
        """Unit-seconds that jobs held, of the last attempt of each."""
        return sum(self.held(life) * self.ran_s(life) for life in self.started)

    @property
    def utilisation(self) -> float:
        """The part of everything that could have been held, from the first submit to the last end."""
        possible = self.capacity * (self.end_s - self.begin_s)
        return self.used_s / possible if possible else 0.0

    def ran_s(self, life: Life) -> float:
        """From the last start to the end, or to the end of the run."""
        if life.start_s is None:
            return 0.0
        return (self.end_s if life.end_s is None else life.end_s) - life.start_s


@dataclass(frozen=True)
class Span:
    """The time a report shows; all its runs share it."""

    begin_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """From one end to the other."""
        return self.end_s - self.begin_s


def span_of(runs: Sequence[Run]) -> Span:
    """From the first submit of any run, or the midnight before it if there are days to see, to the last end."""
    begin = min((run.begin_s for run in runs if run.lives), default=0.0)
    end = max((run.end_s for run in runs if run.lives), default=0.0)
    if end - begin > 2 * DAY_S:
        begin -= begin % DAY_S
    return Span(begin, max(end, begin + 1.0))
