"""Options for liveness checks, which detect running jobs that no longer work."""

from __future__ import annotations

from cli.spec.submit_options import value_texts
from cli.spec.submit_options.job_option import COUNT, TIME, JobOption
from wire import amounts
from wire.job.health import HealthAction, HealthCheck

HEALTH = HealthCheck()

ROWS: tuple[JobOption, ...] = (
    JobOption(
        "liveness_command",
        "Check the job with this command, which runs like a command of 'corral exec' on its first node. "
        "The check "
        "passes with exit code 0.",
        "health.command",
        metavar="COMMAND",
        read=amounts.words,
        show=value_texts.command,
    ),
    JobOption(
        "liveness_http",
        "Check the job with a request to this http:// URL from its first node. The check passes with a "
        "status "
        "below 400.",
        "health.url",
        metavar="URL",
    ),
    JobOption(
        "liveness_file",
        "Check that this file on the job's first node has changed recently (see --liveness-file-age). A "
        "relative "
        "path begins in --workdir.",
        "health.file",
        metavar="FILE",
    ),
    JobOption(
        "liveness_file_age",
        "Time without a change after which the check of --liveness-file fails. Default: 10m.",
        "health.file_age_s",
        **{**TIME, "show": value_texts.other_than(HEALTH.file_age_s, value_texts.time_span)},
    ),
    JobOption(
        "liveness_every",
        "Time between two liveness checks. Default: 10s.",
        "health.every_s",
        **{**TIME, "show": value_texts.other_than(HEALTH.every_s, value_texts.time_span)},
    ),
    JobOption(
        "liveness_timeout",
        "Longest time for a liveness check. A check that takes longer has failed. Default: 5s.",
        "health.timeout_s",
        **{**TIME, "show": value_texts.other_than(HEALTH.timeout_s, value_texts.time_span)},
    ),
    JobOption(
        "liveness_failures",
        "Number of failed liveness checks in a row after which the job is unhealthy. Default: 3.",
        "health.failures",
        **{**COUNT, "show": value_texts.other_than(HEALTH.failures, value_texts.any_value)},
    ),
    JobOption(
        "liveness_grace",
        "Time after the start in which failed liveness checks do not count. It ends earlier when a check "
        "has passed. Default: 60s.",
        "health.start_s",
        **{**TIME, "show": value_texts.other_than(HEALTH.start_s, lambda seconds: [f"{seconds:g}s"])},
    ),
    JobOption(
        "liveness_action",
        "What happens to an unhealthy job: restart (stop the job and queue it again, up to the number of "
        "--restart), fail (stop the job), policy (--restart decides) or notify (record an event; the job "
        "continues). Default: restart.",
        "health.action",
        metavar="ACTION",
        read=amounts.member(HealthAction),
    ),
)
