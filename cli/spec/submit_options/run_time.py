"""Options for the time that a job may run, for its preemption, and for its restarts."""

from __future__ import annotations

from cli.spec.submit_options import value_texts
from cli.spec.submit_options.job_option import NEGATED, SIGNAL, TIME, JobOption
from wire import amounts
from wire.job.start_conditions import OnNodeLost

ROWS: tuple[JobOption, ...] = (
    JobOption(
        "time",
        "Time limit of the job (e.g. 2h30m, 90s, 01:30:00 or 1-12:00:00). Default: the time limit of the "
        "queue, otherwise no limit.",
        "time_limit_s",
        **TIME,
    ),
    JobOption(
        "time_min",
        "Shortest acceptable time limit. The scheduler may shorten the job's time limit to this time, so "
        "that the job can start before another job needs the resources.",
        "time_min_s",
        title="least time limit",
        **TIME,
    ),
    JobOption(
        "grace", "Time between SIGTERM and SIGKILL when the job is stopped. Default: 10s.", "grace_s", **TIME
    ),
    JobOption(
        "warn_signal",
        "Send this signal (e.g. USR1) to the job before its time limit. --warn-time sets the time "
        "between the signal and the limit.",
        **SIGNAL,
    ),
    JobOption(
        "warn_time",
        "Time between the signal of --warn-signal and the time limit. Default: 60s.",
        "warn_s",
        **TIME,
    ),
    JobOption("not_preemptible", "Never preempt this job for another job.", "preemptible", **NEGATED),
    JobOption(
        "min_runtime",
        "Do not preempt the job for this time after each of its starts. Default: 0s.",
        "min_runtime_s",
        **TIME,
    ),
    JobOption(
        "restart",
        "Condition for running the job again: never, on-hardware (after a GPU failure), on-failure or "
        "always. N is the largest number of restarts. Default: on-hardware:3.",
        "restart.policy",
        metavar="POLICY[:N]",
        show=value_texts.restart_policy,
    ),
    JobOption(
        "restart_delay",
        "Time to wait before a restart (see --restart). The wait is FIRST before the first restart, and "
        "doubles with each further restart up to MAX. After an attempt that ran for at least 10 minutes, "
        "and for at least 10 times the wait before it, the wait is FIRST again. Default: 10s:10m.",
        "restart.delay",
        metavar="FIRST[:MAX]",
        show=value_texts.restart_delay,
    ),
    JobOption(
        "restart_codes",
        "Restart the job only after these exit codes (e.g. 75,130-137). Default: any exit code.",
        "restart.codes",
        metavar="CODES",
        show=lambda codes: [",".join(map(str, codes))] if codes else [],
    ),
    JobOption(
        "on_node_lost",
        "What happens to the job if its node stops reporting: wait (until the node reports again), "
        "requeue-after-lease (when the job's lease is over, the node ends the job, and the job is queued "
        "again), or manual (the job is queued again when an operator declares the node lost). Default: the "
        "setting of the controller.",
        metavar="POLICY",
        read=amounts.member(OnNodeLost),
    ),
)
