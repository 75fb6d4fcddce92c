"""The data of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from controller.sim.cluster import Cluster
from controller.sim.job_results import SimulatedJob
from wire.names import WHOLE_GPU

DAY_S = 86_400.0


@dataclass(frozen=True)
class ReportRun:
    """One run of a simulation.

    `label` distinguishes the runs of a report: policy, log or scheduler.toml. `records` contains all jobs,
    also jobs that never started or ended. `figures` are the figures of `sim run` by name. `source` names the
    log of the jobs, `left_out` the number of jobs that were not run, by reason. The unit is GPUs, or
    processors if the cluster has no GPUs or no job requested one.
    """

    label: str
    cluster: Cluster
    records: Sequence[SimulatedJob]
    figures: Mapping[str, float]
    source: str = ""
    left_out: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def by_gpu(self) -> bool:
        """Whether the unit is GPUs."""
        return self.cluster.gpus > 0 and (not self.records or any(record.gpus for record in self.records))

    @property
    def unit(self) -> str:
        """The unit in which the run counts resources: GPU or processor."""
        return "GPU" if self.by_gpu else "processor"

    @cached_property
    def capacity(self) -> float:
        """Number of units in the cluster."""
        return self.cluster.gpus if self.by_gpu else self.cluster.cpu_milli / self.cluster.core_milli

    def size(self, record: SimulatedJob) -> float:
        """Number of units that a job requested."""
        return record.gpus if self.by_gpu else record.cpu_milli / self.cluster.core_milli

    def held(self, record: SimulatedJob) -> float:
        """Number of units that a job held."""
        if self.by_gpu:
            return sum(hold.milli for part in record.allocations for hold in part.gpus) / WHOLE_GPU
        return self.cores(record)

    def cores(self, record: SimulatedJob) -> float:
        """Number of processors that a job held, also if the unit of the run is GPUs."""
        return sum(part.cpu_milli for part in record.allocations) / self.cluster.core_milli

    def number(self, record: SimulatedJob) -> int:
        """The number of a job in the log. If the log has no numbers, the id of the job."""
        return record.number or record.job

    @cached_property
    def started(self) -> list[SimulatedJob]:
        """Jobs that were placed."""
        return [record for record in self.records if record.start_s is not None]

    @cached_property
    def begin_s(self) -> float:
        """Time of the first submit."""
        return min((record.submit_s for record in self.records), default=0.0)

    @cached_property
    def end_s(self) -> float:
        """Time of the last event of a job."""
        moments = (
            moment
            for record in self.records
            for moment in (record.submit_s, record.start_s, record.end_s)
            if moment is not None
        )
        return max(moments, default=0.0)

    @cached_property
    def used_s(self) -> float:
        """Unit-seconds that the last attempts of all jobs held."""
        return sum(self.held(record) * self.ran_s(record) for record in self.started)

    @property
    def utilisation(self) -> float:
        """Fraction of the capacity held from the first submit to the last end."""
        possible = self.capacity * (self.end_s - self.begin_s)
        return self.used_s / possible if possible else 0.0

    def ran_s(self, record: SimulatedJob) -> float:
        """Seconds from the last start to the end, or to the end of the run."""
        if record.start_s is None:
            return 0.0
        return (self.end_s if record.end_s is None else record.end_s) - record.start_s


@dataclass(frozen=True)
class TimeSpan:
    """The time span that the charts of all runs in a report cover."""

    begin_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Length of the time span in seconds."""
        return self.end_s - self.begin_s


def span_of(runs: Sequence[ReportRun]) -> TimeSpan:
    """The time span from the first submit of any run to the last end. If it covers days, it starts at
    midnight."""
    begin = min((run.begin_s for run in runs if run.records), default=0.0)
    end = max((run.end_s for run in runs if run.records), default=0.0)
    if end - begin > 2 * DAY_S:
        begin -= begin % DAY_S
    return TimeSpan(begin, max(end, begin + 1.0))
