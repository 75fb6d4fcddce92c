"""Options for the conditions under which a job starts: array, time, other jobs, relaxed requirements."""

from __future__ import annotations

from cli.spec.submit_options import placement, resources
from cli.spec.submit_options.job_option import COUNT, LIST, TIME, WHEN, JobOption, after_option
from wire.job.start_conditions import RELAXABLE

_FIELDS = {option.flag: option.field for option in (*resources.ROWS, *placement.ROWS)}
"""The JobSpec fields of the options for resources and placement, by flag. --relax accepts the flags whose
fields are in RELAXABLE.
"""


def _relaxable(text: str) -> str:
    flag = "--" + text.strip().removeprefix("--")
    field = _FIELDS.get(flag, flag[2:].replace("-", "_"))
    if field not in RELAXABLE:
        flags = {field: flag for flag, field in reversed(_FIELDS.items())}
        known = ", ".join(flags[each].removeprefix("--") for each in RELAXABLE)
        raise ValueError(f"{text!r} cannot be relaxed; write {known}")
    return field


ROWS: tuple[JobOption, ...] = (
    JobOption(
        "array",
        "Submit a job array with one job for each index (e.g. '0-9', '1,3,7' or '0-20:5'). "
        "%N at the end limits how many of the jobs run at a time (e.g. '0-99%8').",
        metavar="INDICES",
        title="array",
    ),
    JobOption(
        "begin",
        "Earliest start of the job (e.g. 18:30, 2030-05-01, 2030-05-01T08:00 or +2h).",
        "begin_at",
        **WHEN,
    ),
    JobOption(
        "deadline",
        "Time by which the job must have ended, written as for --begin. The job is ended at this "
        "time. A waiting job is ended earlier if it can no longer complete by this time.",
        "deadline_at",
        **WHEN,
    ),
    JobOption(
        "timeout",
        "End the job if it has waited for free resources for this time (e.g. 2h). Time before --begin, time"
        " of waiting for --after, and time in which the job is held do not count.",
        "start_within_s",
        **TIME,
    ),
    after_option(
        "after",
        "JOBS",
        "Start after all these jobs (e.g. 12,13_3) have started. The id of an array means all jobs of "
        "the array.",
    ),
    after_option(
        "after_ok",
        "JOBS",
        "Start after all these jobs (e.g. 12,13_3) have completed. If one of them fails, the new job is "
        "cancelled.",
    ),
    after_option(
        "after_not_ok", "JOBS", "Start after all these jobs (e.g. 12,13_3) have failed or been cancelled."
    ),
    after_option(
        "after_end", "JOBS", "Start after all these jobs (e.g. 12,13_3) have ended, with any result."
    ),
    after_option(
        "after_checkpoint", "JOBS", "Start after all these jobs (e.g. 12,13_3) have saved a checkpoint."
    ),
    after_option("after_data", "PATH", "Start after this file or directory exists. May be repeated."),
    JobOption(
        "after_count",
        "Start as soon as N conditions of the --after options are met. Each job and each path is one "
        "condition. Default: all conditions.",
        **COUNT,
    ),
    JobOption(
        "after_timeout",
        "Cancel the job if it waits longer than this for the conditions of its --after options.",
        "after_within_s",
        **TIME,
    ),
    JobOption(
        "relax",
        "Drop this requirement of the job if the job still waits after --relax-after. OPTION is select, "
        "gpu-model, affinity or nodes. May be repeated.",
        metavar="OPTION",
        read=_relaxable,
        **LIST,
    ),
    JobOption(
        "relax_after",
        "Time for which the job waits in the queue before the requirements of --relax are dropped. "
        "Default: 30m.",
        "relax_after_s",
        **TIME,
    ),
)
