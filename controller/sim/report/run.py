"""What a report is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from controller.sim.cluster import Cluster
from controller.sim.results import Life
from wire.words import WHOLE_GPU

DAY_S = 86_400.0


@dataclass(frozen=True)
class Run:
    """One run of a simulation.

    `label` tells it from the other runs of the report: the policy, the log, the scheduler.toml.
    `lives` are all jobs, also those that never started or never ended. `figures` are the numbers of the
    run by the names `sim run` has for them; any name is shown, known ones with their unit. `source` says
    where the jobs came from, and `left_out` how many of its jobs were not run, by why. Where there is no GPU,
    or no job asked for one, processors are what counts.
    """

    label: str
    cluster: Cluster
    lives: Sequence[Life]
    figures: Mapping[str, float]
    source: str = ""
    left_out: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def by_gpu(self) -> bool:
        """Whether GPUs are what counts."""
        return self.cluster.gpus > 0 and (not self.lives or any(life.gpus for life in self.lives))

    @property
    def unit(self) -> str:
        """What the run is measured in."""
        return "GPU" if self.by_gpu else "processor"

    @cached_property
    def capacity(self) -> float:
        """How many of those there are."""
        return self.cluster.gpus if self.by_gpu else self.cluster.cpu_milli / self.cluster.core_milli

    def size(self, life: Life) -> float:
        """How many of those a job asked for."""
        return life.gpus if self.by_gpu else life.cpu_milli / self.cluster.core_milli

    def held(self, life: Life) -> float:
        """How many of those it was given."""
        if self.by_gpu:
            return sum(hold.milli for part in life.allocations for hold in part.gpus) / WHOLE_GPU
        return self.cores(life)

    def cores(self, life: Life) -> float:
        """How many processors it was given, also where GPUs are what counts."""
        return sum(part.cpu_milli for part in life.allocations) / self.cluster.core_milli

    def number(self, life: Life) -> int:
        """A job's number in the log, or else the one the engine gave it."""
        return life.number or life.job

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
            moment
            for life in self.lives
            for moment in (life.submit_s, life.start_s, life.end_s)
            if moment is not None
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
    """From the first submit of any run to the last end; where there are days to see, from a midnight on."""
    begin = min((run.begin_s for run in runs if run.lives), default=0.0)
    end = max((run.end_s for run in runs if run.lives), default=0.0)
    if end - begin > 2 * DAY_S:
        begin -= begin % DAY_S
    return Span(begin, max(end, begin + 1.0))
