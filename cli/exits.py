"""Exit codes, and the one exception a command raises to end with a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wire.words import JobState

if TYPE_CHECKING:  # the front door imports this module: 20 ms for classes that --help never makes
    from wire.api.jobs import JobView
    from wire.api.problem import Problem

FAILED = 1
USAGE = 2
NOT_FOUND = 3
NOT_ALLOWED = 4
NEVER_FITS = 5
TIMEOUT = 6
UNREACHABLE = 7
OVER_QUOTA = 8
INTERRUPTED = 130
BROKEN_PIPE = 141

_BY_PROBLEM = {
    "invalid": USAGE,
    "too_large": USAGE,
    "not_found": NOT_FOUND,
    "not_allowed": NOT_ALLOWED,
    "never_fits": NEVER_FITS,
    "over_quota": OVER_QUOTA,
}


class Mistake(Exception):
    """What is wrong in a sentence, what to do about it in another, and the exit code."""

    def __init__(self, message: str, hint: str = "", code: int = USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


def of_problem(problem: Problem) -> int:
    """The exit code of a refusal by the controller."""
    return _BY_PROBLEM.get(problem.code, FAILED)


def of_job(job: JobView) -> int:
    """The exit code of an ended job, as a shell would give it."""
    if job.state is JobState.COMPLETED:
        return 0
    if job.exit_code:
        return job.exit_code
    return 128 + job.signal if job.signal else FAILED
