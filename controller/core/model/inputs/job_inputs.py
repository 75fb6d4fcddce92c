"""Commands of users on jobs and workloads, such as Submit and Cancel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from controller.core.model.dataclass import dataclass
from controller.core.model.inputs.input import Input, JobCommand, Requester
from wire.job.spec import JobSpec
from wire.names import JobState
from wire.workload.spec import WorkloadSpec


@dataclass(frozen=True, slots=True)
class Submit(Input):
    """Queue a job or an array. A second submit with the same idempotency key (`key`) queues nothing and
    returns the jobs of the first submit.
    """

    spec: JobSpec
    user: str
    key: str = ""
    known: Mapping[str, JobState] = field(default_factory=dict)
    """The final states, by display id, of jobs that the submit names in dependencies. Only ended jobs that
    are no longer in memory are listed. The sender of the input has read the states from the store.
    """
    asker: Requester | None = None
    """The user that sends the submit; None in a simulation, which allows everything."""


@dataclass(frozen=True, slots=True)
class SubmitWorkload(Input):
    """Queue all jobs of a workload, or none. See Submit for `key` (idempotency key), `known` and `asker`."""

    asked: WorkloadSpec
    user: str
    key: str = ""
    known: Mapping[str, JobState] = field(default_factory=dict)
    asker: Requester | None = None


@dataclass(frozen=True, slots=True)
class CancelWorkload(Input):
    """Cancel all jobs of a workload that have not ended."""

    workload: int
    by: str
    asker: Requester | None = None


@dataclass(frozen=True, slots=True)
class RetryWorkload(Input):
    """Queue new jobs that replace jobs of a workload: failed jobs, and jobs that were cancelled because
    another job had failed. With `cancelled`, also replace jobs that users have cancelled.
    """

    workload: int
    by: str
    cancelled: bool = False
    asker: Requester | None = None


@dataclass(frozen=True, slots=True)
class Cancel(JobCommand):
    """Cancel a job that has not ended. `asker` is the user that sends the command; None in a simulation,
    which allows everything.
    """

    asker: Requester | None = None


@dataclass(frozen=True, slots=True)
class Edit(JobCommand):
    """Change fields of a job's spec. `changes` contains the new JSON values by field name; None resets a
    field to its default.
    """

    changes: Mapping[str, Any]
    known: Mapping[str, JobState] = field(default_factory=dict)
    asker: Requester | None = None
    """`asker` is the user that sends the edit; None in a simulation, which allows everything. `known`
    contains the final states, by display id, of ended jobs on which the edited job depends.
    """
    delays_nobody: bool = False
    """True: the edit extends the time limit of a running job, and a forecast shows that this delays no
    planned start of another job.
    """


@dataclass(frozen=True, slots=True)
class Hold(JobCommand):
    """Hold a queued job, so that the job does not start until a release."""

    asker: Requester | None = None
    """The user that sends the command; None in a simulation, which allows everything."""


@dataclass(frozen=True, slots=True)
class Release(JobCommand):
    """Release a held job. `asker` is the user that releases the job; None in a simulation, which allows
    everything.
    """

    asker: Requester | None = None


@dataclass(frozen=True, slots=True)
class Requeue(JobCommand):
    """End the present attempt of a job, and queue the job again."""


@dataclass(frozen=True, slots=True)
class Preempt(JobCommand):
    """Preempt a running job. The job is queued again with its old age, so the job keeps its position in the
    queue. With `hold`, the job is also held, and does not start before its release.
    """

    hold: bool = False


@dataclass(frozen=True, slots=True)
class KeepIdle(JobCommand):
    """For the next `for_s` seconds, do not flag or end a running job although its GPUs are idle. `why` is the
    reason that the user gave.
    """

    for_s: float
    why: str
    asker: Requester | None = None
    """The user that sends the command; None in a simulation, in which everything is allowed."""
