"""One job of a job log: its request, its submit time and its run time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wire.job.arrays import array_indices
from wire.job.spec import JobSpec


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a job log. `number` is the job's number in the log, `runtime_s` the seconds that it runs if it
    is not stopped.

    The dependencies in `spec` name jobs by their numbers in the log.
    """

    number: int
    submit_s: float
    spec: JobSpec
    runtime_s: float
    user: str = "nobody"
    code: int = 0
    checkpoint_every_s: float | None = None
    """Seconds between two checkpoints that the job writes while it runs; None if the job writes no
    checkpoints."""
    start_overhead_s: float = 0.0
    """Seconds at the beginning of each attempt in which the job does no work, because it loads its program
    and its checkpoint. An attempt takes these seconds plus `runtime_s`.
    """

    @property
    def count(self) -> int:
        """Return the number of jobs that the submit makes: 1, or the number of elements of an array."""
        return len(array_indices(self.spec.array)) if self.spec.array else 1


def saving(work: TraceJob) -> TraceJob:
    """Return the same job, able to save its state before it gives way to another job."""
    return work if work.spec.saves else replace(work, spec=replace(work.spec, checkpoint_signal="USR1"))


def without_time_limit(work: TraceJob) -> TraceJob:
    """Return the same job without its time limit, so that the scheduler does not know how long it runs."""
    return replace(work, spec=replace(work.spec, time_limit_s=None))
