"""The health check of a job, which the agent runs on the job's first node."""

from __future__ import annotations

import enum
import urllib.parse
from typing import TYPE_CHECKING, Iterator

from wire.dataclass import dataclass

if TYPE_CHECKING:
    from wire.job.spec import JobSpec

MAX_URL = 2_000
MAX_FILE = 1_000


class HealthAction(str, enum.Enum):
    """What Corral does with a job that has become unhealthy."""

    POLICY = "policy"
    """The job is stopped, and its restart policy decides whether it runs again."""
    RESTART = "restart"
    """The job is stopped and queued again, even if its restart policy is `never`. The number of restarts is
    limited as in its restart policy.
    """
    FAIL = "fail"
    """The job is stopped and ends as FAILED."""
    NOTIFY = "notify"
    """The job continues. The event HealthChanged is recorded, and notices are sent."""


@dataclass(frozen=True)
class HealthCheck:
    """A command, a URL or a file that the agent checks every `every_s` seconds while the job runs.

    The check of a command passes with exit code 0, the check of a URL with an HTTP status below 400. The
    check of a file passes if the file has changed within the last `file_age_s` seconds. A check that takes
    longer than `timeout_s` seconds fails. After `failures` failed checks in a row the job is unhealthy, and
    `action` says what happens. In the first `start_s` seconds of the attempt, checks that fail before the
    first passed check do not count.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    every_s: float = 10.0
    timeout_s: float = 5.0
    failures: int = 3
    start_s: float = 60.0
    file: str = ""
    """The path of the file on the node, relative to the working directory of the job."""
    file_age_s: float = 600.0
    action: HealthAction = HealthAction.POLICY


def health_problems(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Validate the health check settings of a JobSpec. Yield each mistake as (field name, sentence for
    users).
    """
    health = spec.health
    if health is None:
        return
    kinds = bool(health.command) + bool(health.url) + bool(health.file)
    if kinds != 1 or health.command[:1] == ("",):
        yield "health", "must have either a command, a url or a file"
    if len(health.file) > MAX_FILE:
        yield "health.file", f"must be at most {MAX_FILE} characters"
    if health.url and not _is_http(health.url):
        yield "health.url", "must be an http:// URL with a host, such as http://127.0.0.1:8000/health"
    for where, seconds in (
        ("every_s", health.every_s),
        ("timeout_s", health.timeout_s),
        ("file_age_s", health.file_age_s),
    ):
        if not 0.1 <= seconds <= 86_400:
            yield f"health.{where}", "must lie between 0.1 seconds and a day"
    if not 0 <= health.start_s <= 86_400:
        yield "health.start_s", "must lie between 0 seconds and a day"
    if not 1 <= health.failures <= 1_000:
        yield "health.failures", "must lie between 1 and 1000"


def _is_http(url: str) -> bool:
    if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        return False
    try:
        parts = urllib.parse.urlsplit(url)
        return parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
