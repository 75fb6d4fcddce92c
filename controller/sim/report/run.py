"""The data of a report: its runs, and the covered time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from controller.sim.cluster import CapacityChange, Cluster
from controller.sim.job_results import SimulatedJob
from controller.sim.metrics import capacity_time
from controller.sim.story.story import StoryOutcome
from wire.names import WHOLE_GPU

DAY_S = 86_400.0


@dataclass(frozen=True)
class ReportRun:
    """One simulation run of a report.

    - `label` is the name of the run in the report: a policy, a log or a scheduler.toml.
    - `records` contains all jobs, also jobs without a start or an end.
    - `figures` contains the figures that `corral sim run` prints, such as the mean wait, by name.
    - `source` names the log of the jobs.
    - `left_out` says, by reason, how many jobs of the log were not simulated.

    The report counts resources in units. A unit is a GPU, or a processor if the cluster has no GPUs or no job
    requested one.
    """

    label: str
    cluster: Cluster
    records: Sequence[SimulatedJob]
    figures: Mapping[str, float]
    source: str = ""
    left_out: Mapping[str, int] = field(default_factory=dict)
    story: Sequence[StoryOutcome] = ()
    """The outcome of each line of the story (the commands of a simulated operator); empty if there is no
    story.
    """
    capacity_changes: Sequence[CapacityChange] = ()
    """The times at which nodes were added or removed, and the changed capacity. The field `cluster` has all
    nodes that existed at any time."""

    @cached_property
    def by_gpu(self) -> bool:
        """Return whether the report counts resources in GPUs and not in processors."""
        return self.cluster.gpus > 0 and (not self.records or any(record.gpus for record in self.records))

    @property
    def unit(self) -> str:
        """Return the name of the unit in which the report counts resources: GPU or processor."""
        return "GPU" if self.by_gpu else "processor"

    @cached_property
    def capacity(self) -> float:
        """Return the number of units (GPUs or processors) in the cluster, with all nodes that existed at any
        time.
        """
        return self.cluster.gpus if self.by_gpu else self.cluster.cpu_milli / self.cluster.core_milli

    def size(self, record: SimulatedJob) -> float:
        """Return the number of units (GPUs or processors) that a job requested."""
        return record.gpus if self.by_gpu else record.cpu_milli / self.cluster.core_milli

    def held(self, record: SimulatedJob) -> float:
        """Return the number of units (GPUs or processors) that the last attempt of a job held."""
        if self.by_gpu:
            return sum(hold.milli for part in record.allocations for hold in part.gpus) / WHOLE_GPU
        return self.cores(record)

    def cores(self, record: SimulatedJob) -> float:
        """Return the number of processors that a job held, even if the report counts resources in GPUs."""
        return sum(part.cpu_milli for part in record.allocations) / self.cluster.core_milli

    def number(self, record: SimulatedJob) -> int:
        """Return the number of a job in the log, or the id of the job if the log has no numbers."""
        return record.number or record.job

    @cached_property
    def started(self) -> list[SimulatedJob]:
        """Return the results of the jobs that started at least once."""
        return [record for record in self.records if record.start_s is not None]

    @cached_property
    def begin_s(self) -> float:
        """Return the time of the first submit."""
        return min((record.submit_s for record in self.records), default=0.0)

    @cached_property
    def end_s(self) -> float:
        """Return the time of the last submit, start or end of a job."""
        moments = (
            moment
            for record in self.records
            for moment in (record.submit_s, record.start_s, record.end_s)
            if moment is not None
        )
        return max(moments, default=0.0)

    @cached_property
    def used_s(self) -> float:
        """Return the GPU-seconds or processor-seconds that the last attempts of all jobs held."""
        return sum(self.held(record) * self.ran_s(record) for record in self.started)

    @property
    def utilisation(self) -> float:
        """Return the mean fraction of the cluster's GPUs or processors that jobs held, from `begin_s` to
        `end_s`.
        """
        changes = [
            (each.at_s, each.gpus if self.by_gpu else each.cpu_milli / self.cluster.core_milli)
            for each in self.capacity_changes
        ]
        # Begin with the capacity without the nodes that were added during the run, because `capacity`
        # includes these nodes.
        added = sum(amount for _, amount in changes if amount > 0)
        possible = capacity_time(self.capacity - added, changes, self.begin_s, self.end_s)
        return self.used_s / possible if possible else 0.0

    def ran_s(self, record: SimulatedJob) -> float:
        """Return the seconds from the last start of a job to its end, or to the end of the run."""
        if record.start_s is None:
            return 0.0
        return (self.end_s if record.end_s is None else record.end_s) - record.start_s


@dataclass(frozen=True)
class TimeSpan:
    """The time that the charts of all runs in a report cover."""

    begin_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.begin_s


def span_of(runs: Sequence[ReportRun]) -> TimeSpan:
    """Return the time from the first submit to the last submit, start or end in any of the runs. If this is
    more than two days, begin at the midnight (UTC) before the first submit.
    """
    begin = min((run.begin_s for run in runs if run.records), default=0.0)
    end = max((run.end_s for run in runs if run.records), default=0.0)
    if end - begin > 2 * DAY_S:
        begin -= begin % DAY_S
    return TimeSpan(begin, max(end, begin + 1.0))
