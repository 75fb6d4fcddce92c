"""Begin time, deadline, dependencies and restarts of a job."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, Iterator, Optional

from wire.dataclass import dataclass

if TYPE_CHECKING:
    from wire.job.spec import JobSpec

LATEST = 4_102_444_800.0
"""1 January 2100 in seconds since 1970. Later times are rejected, because such times are probably
mistakes.
"""
LONGEST_S = 10 * 365 * 86_400.0
MAX_RESTARTS = 1_000
HEALTHY_RUN_S = 600.0
HEALTHY_RUN_DELAYS = 10
"""An attempt is healthy if it ran for at least HEALTHY_RUN_S seconds, and for at least HEALTHY_RUN_DELAYS
times the delay before its start. After a healthy attempt, the restart delay is `delay_s` again.
"""
MAX_CODES = 64
MAX_AFTER = 1_000
RELAXABLE = ("affinity", "gpu_models", "nodes", "selector")
"""The fields of a JobSpec whose conditions the option --relax may drop."""
_LABEL = re.compile(r"[1-9]\d{0,17}(_\d{1,9})?")


class RestartWhen(str, enum.Enum):
    """Which ends of an attempt cause a restart of the job: none, a failed GPU, any failure, or every end."""

    NEVER = "never"
    ON_HARDWARE = "on-hardware"
    """Restart the job only after an attempt that ended because a GPU failed, and not after a failure of its
    program.
    """
    ON_FAILURE = "on-failure"
    ALWAYS = "always"


class OnNodeLost(str, enum.Enum):
    """What Corral does with a running job whose node no longer reports."""

    WAIT = "wait"
    """The job stays on the node until the node reports its state."""
    REQUEUE = "requeue-after-lease"
    """The supervisor ends the job when the lease expires, and then the job is queued again."""
    MANUAL = "manual"
    """The job stays on the node until an operator declares the node lost. The job is then queued again."""


@dataclass(frozen=True)
class Restart:
    """How often a job is restarted, and how many seconds the job waits before each restart.

    The first wait is `delay_s` seconds. Each further wait is twice as long, up to `delay_most_s`. After an
    attempt that ran long enough to count as healthy (`healthy_run_s`), the wait is `delay_s` again; the
    number of restarts is not reset. If `codes` is set, a program that fails causes a restart only with one of
    these exit codes (128 + n for signal n). After the loss of a node, `on_node_lost` of JobSpec and `limit`
    decide, and not `when` and `codes`.
    """

    when: RestartWhen = RestartWhen.ON_HARDWARE
    limit: Optional[int] = 3
    delay_s: float = 10.0
    delay_most_s: float = 600.0
    codes: tuple[int, ...] = ()

    def delay(self, before: int) -> float:
        """Return how many seconds to wait before the next restart of a job that has been restarted `before`
        times since its last healthy attempt.
        """
        return min(self.delay_s * 2.0 ** min(before, 60), self.delay_most_s)

    def healthy_run_s(self, before: int) -> float:
        """Return how many seconds an attempt must run to count as healthy, if the job has been restarted
        `before` times since its last healthy attempt.
        """
        waited_s = self.delay(before - 1) if before else 0.0
        return max(HEALTHY_RUN_S, HEALTHY_RUN_DELAYS * waited_s)


DEFAULT_RESTART = Restart()


class Until(str, enum.Enum):
    """What must be true before a dependent job may start. DATA: a path exists. Any other value: a job, or
    each job of an array, has reached this state.
    """

    STARTED = "started"
    OK = "ok"
    NOT_OK = "not-ok"
    ENDED = "ended"
    CHECKPOINT = "checkpoint"
    DATA = "data"


@dataclass(frozen=True)
class Dependency:
    """One dependency of a job: on another job, or on the existence of a path. `job` is a display id such as 7
    or 7_3. The id of an array means all its elements.
    """

    until: Until
    job: str = ""
    path: str = ""

    def __str__(self) -> str:
        return f"{self.until.value} {self.path or self.job}"


def condition_problems(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Validate start conditions, dependencies and restarts. Yield each mistake as (field name, sentence for
    users).
    """
    for where, moment in (("begin_at", spec.begin_at), ("deadline_at", spec.deadline_at)):
        if moment is not None and not 0 < moment <= LATEST:
            yield where, "must be a moment in seconds since 1970, before the year 2100"
    begin, deadline = spec.begin_at, spec.deadline_at
    if deadline is not None and begin is not None and not begin + (spec.time_limit_s or 0.0) < deadline:
        yield "deadline_at", "cannot be met by a job that begins at begin_at and may run for time_limit_s"
    if spec.start_within_s is not None and not 0 < spec.start_within_s <= LONGEST_S:
        yield "start_within_s", "must be positive and at most ten years"
    yield from _restart_problems(spec.restart)
    yield from _after_problems(spec)
    wrong = [name for name in spec.relax if name not in RELAXABLE]
    if wrong or len(set(spec.relax)) < len(spec.relax):
        yield "relax", f"may name each of {', '.join(RELAXABLE)} once"
    if not 0 < spec.relax_after_s <= LONGEST_S:
        yield "relax_after_s", "must be positive and at most ten years"


def _restart_problems(restart: Restart) -> Iterator[tuple[str, str]]:
    if restart.limit is not None and not 1 <= restart.limit <= MAX_RESTARTS:
        yield "restart.limit", f"must lie between 1 and {MAX_RESTARTS}, or not be set"
    for where, seconds in (("delay_s", restart.delay_s), ("delay_most_s", restart.delay_most_s)):
        if not 0 <= seconds <= 7 * 86_400:
            yield f"restart.{where}", "must lie between 0 seconds and a week"
    if len(restart.codes) > MAX_CODES or not all(1 <= code <= 255 for code in restart.codes):
        yield "restart.codes", f"must be at most {MAX_CODES} exit codes between 1 and 255"


def _after_problems(spec: JobSpec) -> Iterator[tuple[str, str]]:
    after = spec.after
    if len(after) > MAX_AFTER:
        yield "after", f"must be at most {MAX_AFTER} dependencies; depend on whole arrays instead"
    if len(set(after)) < len(after):
        yield "after", "has the same dependency twice"
    for index, each in enumerate(after):
        if each.until is Until.DATA:
            if each.job or not _is_plain_path(each.path):
                yield f"after[{index}]", "must name an absolute path without '..', and no job"
        elif each.path or not _LABEL.fullmatch(each.job):
            yield f"after[{index}]", f"must name a job, such as 7 or 7_3, and no path: {each.job!r}"
    if spec.after_count is not None and not 1 <= spec.after_count <= len(after):
        yield "after_count", f"must lie between 1 and the number of dependencies, {len(after)}"
    if spec.after_within_s is not None and not (after and 0 < spec.after_within_s <= LONGEST_S):
        yield (
            "after_within_s",
            "must be positive and at most ten years, and the job must have dependencies",
        )


def _is_plain_path(path: str) -> bool:
    """Return whether the path is absolute and has no empty part, `.` or `..`."""
    parts = path.split("/")
    return len(parts) > 1 and not parts[0] and not {"", ".", ".."} & set(parts[1:]) and len(path) <= 4_096
