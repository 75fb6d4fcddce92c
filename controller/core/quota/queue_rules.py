"""Queue rules: the engine's form of the tables [queues.NAME] of scheduler.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.core.model.request import NO_JOB_DEFAULTS, JobDefaults
from controller.core.quota.hours.week_hours import WeekHours

EXEMPT_QUOTA, EXEMPT_FAIR_SHARE = "quota", "fair_share"
"""The values of `[queues.NAME] exempt`."""


@dataclass(frozen=True, slots=True)
class QueueRule:
    """The table [queues.NAME] of one queue. None for a limit means no limit."""

    priority: int = 0
    max_running: int | None = None
    default_time_limit_s: float | None = None
    max_time_limit_s: float | None = None
    users: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    select: Mapping[str, str] = field(default_factory=dict)
    defaults: JobDefaults = NO_JOB_DEFAULTS
    default_project: str | None = None
    """The project of jobs without --project in this queue."""
    min_gpus_per_job: float | None = None
    max_gpus_per_job: float | None = None
    preemptible: bool = True
    """False: running jobs of the queue are never victims of preemption, reclaim or moves."""
    may_preempt: frozenset[str] | None = None
    """The queues whose jobs may be preempted for waiting jobs of this queue. None: only the preemption
    strategies decide.
    """
    min_runtime_s: float | None = None
    """A job of the queue is not preempted until it has run for this many seconds; None: `min_runtime_s` of
    [preemption] applies.
    """
    max_preemptions: int | None = None
    """A job of the queue is preempted at most this many times; None: `max_per_job` of [preemption]
    applies.
    """
    cooldown_s: float | None = None
    """A job of the queue that was preempted is not preempted again for this many seconds; None: `cooldown_s`
    of [preemption] applies.
    """
    max_running_per_user: int | None = None
    max_gpus_per_user: float | None = None
    max_jobs_per_user: int | None = None
    """The most waiting and running jobs that one user may have in the queue."""
    exempt: frozenset[str] = frozenset()
    """EXEMPT_QUOTA: the quotas of users and projects do not apply to jobs of the queue, and the jobs do not
    count for these quotas. EXEMPT_FAIR_SHARE: the usage of jobs of the queue is not charged to tenants.
    """
    hours: WeekHours | None = None
    """The hours of the week in which jobs of the queue may start; None: at all times."""

    keep_free_gpus: int = 0
    """The number of free GPUs of the cluster that are kept for jobs of the queue. Narrow jobs in queues with
    a lower priority wait instead of using these GPUs (see KeptGpus).
    """
    keep_free_hours: WeekHours | None = None
    """The hours of the week in which `keep_free_gpus` applies; None: at all times."""
    wait_target_s: float | None = None
    """The wait in seconds that jobs of the queue should not exceed. Reports compare the waits with it; it
    changes no decision.
    """
    qos: str | None = None
    """The QOS that Slurm's commands show for jobs of the queue; None: the QOS `normal`."""

    @property
    def sets_no_guard(self) -> bool:
        """True if the queue has no key that replaces a key of [preemption]."""
        return self.min_runtime_s is None and self.max_preemptions is None and self.cooldown_s is None

    @property
    def limits_users(self) -> bool:
        """True if the queue has a limit for each of its users."""
        most = self.max_running_per_user, self.max_gpus_per_user, self.max_jobs_per_user
        return any(each is not None for each in most)

    @property
    def limits_starts(self) -> bool:
        """True if a rule of the queue can keep jobs from starting: jobs of this queue, or of other queues."""
        own = self.max_running is not None or self.limits_users or self.hours is not None
        return own or bool(self.keep_free_gpus)


NO_QUEUE_RULE = QueueRule()
"""The rule of a queue without a table in scheduler.toml. It limits nothing."""
