"""Options for checkpoints: how a job saves its state, where, and how often."""

from __future__ import annotations

from cli.spec.options import option_texts
from cli.spec.options.job_option import COUNT, DIR, SIGNAL, SIZE, TIME, JobOption
from wire import amounts

ROWS: tuple[JobOption, ...] = (
    JobOption(
        "checkpoint_command",
        "Run this command to save the job's state before the job is stopped.",
        metavar="COMMAND",
        read=amounts.words,
        show=option_texts.command,
    ),
    JobOption(
        "checkpoint_signal",
        "Send this signal (e.g. USR1) before the job is stopped. The job saves its state when it gets "
        "the signal.",
        **SIGNAL,
    ),
    JobOption(
        "checkpoint_dir",
        "Directory for checkpoints; a job uses its subdirectory DIR/<job id>. Default: "
        "corral-checkpoints in --workdir.",
        title="checkpoints in",
        **DIR,
    ),
    JobOption(
        "checkpoint_time",
        "Longest time that saving the job's state may take. Default: 60s.",
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
        "Let the running job save a checkpoint at this interval, with --checkpoint-command or "
        "--checkpoint-signal. Default: only before the job is stopped.",
        "checkpoint_every_s",
        title="saves every",
        **TIME,
    ),
    JobOption(
        "checkpoint_size",
        "Keep only the newest checkpoints of the job that are together at most this large (e.g. 200G), "
        "and always "
        "the newest one. Default: no limit.",
        "checkpoint_mib",
        title="checkpoint size",
        **SIZE,
    ),
)
