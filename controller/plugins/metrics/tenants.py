"""The `tenants` metrics plugin: GPUs held, running jobs and waiting jobs of each user, project or queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from controller.core.pipeline.hooks import Sample
from controller.core.state.state import State
from wire.names import WHOLE_GPU, JobState


@dataclass(frozen=True, slots=True)
class TenantMetrics:
    """Counts the GPUs and jobs of each user, of each project or of each queue, as the option `by` says."""

    name: ClassVar[str] = "tenants"

    by: Literal["user", "project", "queue"] = "project"

    def collect(self, state: State, now: float) -> Iterator[Sample]:
        """Yield the number of GPUs that jobs hold, of running jobs and of waiting jobs, for each user,
        project or queue with running or waiting jobs.
        """
        milli: Counter[str] = Counter()
        running: Counter[str] = Counter()
        waiting: Counter[str] = Counter()
        for job in state.live():
            tenant = job.user if self.by == "user" else getattr(job.spec, self.by)
            milli[tenant] += job.gpu_milli if job.unended else 0
            (waiting if job.state is JobState.QUEUED else running)[tenant] += 1
        for tenant in sorted({*running, *waiting}):
            labels: dict[str, str] = {self.by: tenant}
            yield Sample("tenant_gpus", milli[tenant] / WHOLE_GPU, labels, "GPUs that jobs hold.")
            yield Sample("tenant_running_jobs", running[tenant], labels, "Jobs that hold resources.")
            yield Sample("tenant_queued_jobs", waiting[tenant], labels, "Jobs that wait to start.")
