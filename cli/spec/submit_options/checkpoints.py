"""Options for checkpoints: the command or signal that saves a job's state, the directory, and the
interval.
"""

from __future__ import annotations

from cli.spec.submit_options import value_texts
from cli.spec.submit_options.job_option import COUNT, DIR, SIGNAL, SIZE, TIME, JobOption
from wire import amounts

ROWS: tuple[JobOption, ...] = (
    JobOption(
        "checkpoint_command",
        "Run this command to save the job's state before the job is stopped.",
        metavar="COMMAND",
        read=amounts.words,
        show=value_texts.command,
    ),
    JobOption(
        "checkpoint_signal",
        "Send this signal (e.g. USR1) before the job is stopped. The job saves its state when it gets "
        "the signal.",
        **SIGNAL,
    ),
    JobOption(
        "checkpoint_dir",
        "Directory for checkpoints. A job writes its checkpoints to DIR/<job id>. Default: "
        "corral-checkpoints in --workdir.",
        title="checkpoints in",
        **DIR,
    ),
    JobOption(
        "checkpoint_time",
        "Longest time that the job may take to save its state before the job is stopped. Default: 60s.",
        "checkpoint_s",
        **TIME,
    ),
    JobOption(
        "checkpoint_keep",
        "Keep only the newest N checkpoints of the job. Default: keep all.",
        title="checkpoints kept",
        **COUNT,
    ),
    JobOption(
        "checkpoint_every",
        "Time between two checkpoints of the running job, with --checkpoint-command or --checkpoint-signal."
        " Default: only before the job is stopped.",
        "checkpoint_every_s",
        title="saves every",
        **TIME,
    ),
    JobOption(
        "checkpoint_size",
        "Largest total size of the job's checkpoints (e.g. 200G). Older checkpoints are deleted; the "
        "newest one is always kept. Default: no limit.",
        "checkpoint_mib",
        title="checkpoint size",
        **SIZE,
    ),
)
