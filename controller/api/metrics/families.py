"""The table of all metrics of GET /metrics: the name, kind, labels and meaning of each.

docs/metrics.md is written from this table. Metrics of plugins are not in this table.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.core.pipeline.hooks import Sample


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: a name, and one sample for each combination of values of its labels."""

    name: str
    about: str
    labels: tuple[str, ...] = ()
    kind: str = "gauge"
    """"gauge", "counter" or "histogram"."""
    bound: str = "1"
    """The largest number of samples of the metric, as a text such as "nodes x 6" for docs/metrics.md."""

    def __call__(self, value: float, *labels: str) -> Sample:
        """Return a sample of this metric. `labels` are the values of its labels, in the order of the field
        `labels`.
        """
        return Sample(self.name, value, dict(zip(self.labels, labels, strict=True)), self.about, self.kind)


FAMILIES: list[Family] = []
"""All metrics, in the order of docs/metrics.md."""


def _family(name: str, about: str, labels: str = "", *, kind: str = "gauge", bound: str = "1") -> Family:
    found = Family(f"corral_{name}", about, tuple(labels.split()), kind, bound)
    FAMILIES.append(found)
    return found


def _counter(name: str, about: str, labels: str = "", bound: str = "1") -> Family:
    return _family(name, about, labels, kind="counter", bound=bound)


JOBS = _family("jobs", "Jobs that have not ended, by state.", "state", bound="states of jobs")
QUEUED_JOBS = _family(
    "queued_jobs", "Queued jobs, by the reason why they wait.", "reason", bound="reasons of jobs"
)
WAIT_ALARMS = _family(
    "wait_alarms", "Waiting jobs that have waited much longer than usual ([scheduler] wait_alarm)."
)
JOBS_ENDED = _counter(
    "jobs_ended_total",
    "Jobs that have ended since the controller started, by queue and outcome: completed, failed, cancelled, "
    "timed_out (time limit) or out_of_memory.",
    "queue outcome",
    bound="queues x 5",
)
JOB_STARTS = _counter(
    "job_starts_total",
    "Attempts of jobs that got their resources since the controller started, by queue.",
    "queue",
    bound="queues",
)
WAIT_SECONDS = _family(
    "job_wait_seconds",
    "Seconds between the time from which a job was allowed to start and its first start, by queue.",
    "queue",
    kind="histogram",
    bound="queues x 14",
)
PREEMPTIONS = _counter(
    "preemptions_total",
    "Attempts that were preempted since the controller started, by queue.",
    "queue",
    "queues",
)
PREEMPTED_HOURS = _counter(
    "preempted_gpu_hours_total",
    "GPU-hours of unsaved work that preemptions have lost since the controller started, by queue.",
    "queue",
    "queues",
)
FAILED_ATTEMPTS = _counter(
    "failed_attempts_total",
    "Failed attempts on a node since the controller started, by failure class.",
    "class",
    "failure classes",
)
NODES = _family("nodes", "Nodes, by state.", "state", bound="states of nodes")
GPUS = _family(
    "gpus",
    "GPUs, by state: free, shared, used, away (node not connected), or why they are out of service.",
    "state",
    bound="states of GPUs",
)
FREE_GPUS_IN_BLOCK = _family("free_gpus_largest_block", "The most GPUs that are free on one node.")
FRAGMENTATION = _family(
    "free_gpus_fragmentation",
    "Part of the free GPUs, from 0 to 1, that a job of the size of a whole node cannot use, because they are "
    "on nodes with other jobs.",
)
ENGINE_UP = _family(
    "engine_up",
    "1 if the execution engine answers, 0 while its circuit breaker is open.",
    "engine",
    bound="execution engines",
)
ENGINE_JOBS = _family(
    "engine_jobs",
    "Attempts on the execution engine that have not ended, by what is known: wanted, asked, seen or unseen.",
    "engine state",
    bound="execution engines x 4",
)
ENGINE_BREAKER = _counter(
    "engine_breaker_opened_total",
    "How often the circuit breaker of the execution engine has opened since the controller started.",
    "engine",
    "execution engines",
)
ENGINE_ORPHANS = _counter(
    "engine_orphans_ended_total",
    "Foreign jobs that Corral has ended since the controller started, because no job wanted them.",
    "engine",
    "execution engines",
)
POOL_MACHINES = _family(
    "pool_machines",
    "Machines of the pool, by state: wanted, booting, joined, leaving or ending.",
    "engine state",
    bound="execution engines x 5",
)
POOL_ORDERS = _counter(
    "pool_orders_total",
    "Machines that were ordered from the pool since the controller started.",
    "engine",
    "execution engines",
)
POOL_FAILURES = _counter(
    "pool_order_failures_total",
    "Machines that the pool could not provide, or that did not connect, since the controller started.",
    "engine",
    "execution engines",
)
POOL_SPENT = _family(
    "pool_spent_today",
    "Money for the machines of the pool since 0:00 UTC.",
    "engine",
    bound="execution engines",
)
QUOTA_USED = _family(
    "quota_used_ratio",
    "Used part of each quota that limits GPUs: 1 means that the limit is reached.",
    "scope name",
    bound="quotas in scheduler.toml and those that operators have set",
)

GPU_HEALTHY = _family(
    "gpu_healthy",
    "1 if the last known health of the GPU is ok, else 0. The state of its node does not count.",
    "node gpu uuid",
    bound="GPUs",
)
GPU_UTILISATION = _family("gpu_utilisation_percent", "Utilisation of the GPU.", "node gpu uuid", bound="GPUs")
GPU_MEMORY = _family("gpu_memory_used_bytes", "GPU memory in use.", "node gpu uuid", bound="GPUs")
GPU_TEMPERATURE = _family("gpu_temperature_celsius", "Temperature of the GPU.", "node gpu uuid", bound="GPUs")
GPU_POWER = _family("gpu_power_watts", "Power draw of the GPU.", "node gpu uuid", bound="GPUs")
GPU_ECC = _counter(
    "gpu_ecc_uncorrected_total",
    "Uncorrected ECC errors since the driver was loaded.",
    "node gpu uuid",
    "GPUs",
)

PROJECT_HOURS = _family(
    "project_gpu_hours",
    "GPU-hours of each project in the last day: got, entitled by max-min fairness, demanded.",
    "project kind",
    bound="projects x 3",
)
PROJECT_POINTS = _family(
    "project_fairness_points",
    "GPU-hours got minus entitled in the last day, in percent of the capacity.",
    "project",
    bound="projects",
)
PROJECT_WAIT = _family(
    "project_longest_wait_seconds",
    "Seconds that the job of the project that has waited longest has waited.",
    "project",
    bound="projects",
)
IDLE_HOURS = _family("idle_gpu_hours", "Idle GPU-hours of the last day, by cause.", "cause", bound="causes")
LOST_HOURS = _family(
    "lost_gpu_hours", "GPU-hours of unsaved work in the last day, by cause.", "cause", bound="causes"
)
BUDGET_PERCENT = _family(
    "budget_used_percent",
    "Used part of the project's budget for the present month, in percent.",
    "project",
    bound="projects with a budget",
)
BUDGET_HOURS = _family(
    "budget_gpu_hours",
    "GPU-hours that the project has used in the present month.",
    "project",
    bound="projects with a budget",
)
BUDGET_MONEY = _family(
    "budget_money",
    "Money that the project has used in the present month.",
    "project",
    bound="projects with a budget",
)
REPLICAS_WANTED = _family("service_replicas_wanted", "Replicas that must run.", "service", bound="services")
REPLICAS_READY = _family("service_replicas_ready", "Replicas that are ready.", "service", bound="services")
NOTIFY_WAITING = _family("notify_waiting", "Messages that wait for their delivery.", "sink", bound="sinks")
NOTIFY_DEAD = _family("notify_dead", "Messages that were given up (dead letters).", "sink", bound="sinks")
NOTIFY_DELIVERED = _counter("notify_delivered_total", "Messages that the sink has accepted.", "sink", "sinks")
NOTIFY_FAILED = _counter("notify_failed_total", "Tries to send a message that have failed.", "sink", "sinks")
NOTIFY_DROPPED = _counter("notify_dropped_total", "Notices that were dropped, because the outbox was full.")


def _estimate(what: str, about: str, label: str, bound: str) -> tuple[Family, Family, Family, Family]:
    return (
        _counter(f"{what}_estimates_total", f"{about}: number.", label, bound),
        _family(
            f"{what}_estimate_bias_seconds",
            f"{about}: sum of actual minus estimated time.",
            label,
            bound=bound,
        ),
        _counter(
            f"{what}_estimate_error_seconds_total", f"{about}: sum of the absolute errors.", label, bound
        ),
        _counter(
            f"{what}_estimates_late_total",
            f"{about}: number that came later than estimated.",
            label,
            bound,
        ),
    )


RUN_ESTIMATES = _estimate("run", "Run times of ended jobs that had been predicted", "user", "users")
START_ESTIMATES = _estimate("start", "Starts of jobs that had been estimated", "kind", "3")

CYCLE_SECONDS = _family(
    "cycle_seconds", "Seconds that a scheduling cycle over the queue took.", kind="histogram", bound="17"
)
LAST_PASS = _family(
    "last_pass_time_seconds",
    "Time of the latest scheduling cycle, in seconds since 1970; 0 before the first.",
)
COMMIT_SECONDS = _family(
    "commit_seconds", "Seconds that a commit to the store took.", kind="histogram", bound="17"
)
CYCLE_OVERDUE = _family(
    "cycle_overdue_seconds",
    "Seconds since which a scheduling cycle is due although none has run; 0 if none is due.",
)
LAST_COMMIT = _family(
    "last_commit_time_seconds",
    "Time of the latest commit to the store, in seconds since 1970; 0 before the first.",
)
COMMIT_AGE = _family(
    "commit_age_seconds", "Seconds since the begin of a commit that is not on disk yet; 0 if there is none."
)
LOOP_LAG = _family(
    "event_loop_lag_seconds", "The longest time in the last minute for which the event loop was blocked."
)
START_TIME = _family("start_time_seconds", "Time at which the controller started, in seconds since 1970.")
JOURNAL_SEQ = _family("journal_seq", "Sequence number of the last journal entry.")
JOURNAL_ENTRIES = _counter("journal_entries_total", "Journal entries written since the controller started.")
REQUESTS = _counter(
    "requests_total",
    "Requests to the API, by method, path and status.",
    "method path status",
    "routes x statuses",
)
PLUGIN_FAILURES = _counter(
    "plugin_failures_total", "Scheduling cycles in which a plugin failed.", "kind plugin", "plugins"
)
