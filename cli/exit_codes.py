"""Defines the exit codes, and the exception that ends a command with an error message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wire.names import JobState

# Import these modules only for type checks, because `corral --help` would otherwise start 20 ms later.
if TYPE_CHECKING:
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


class CommandError(Exception):
    """Ends a command with an error. `message` names the error, `hint` the remedy, and `code` is the exit
    code.
    """

    def __init__(self, message: str, hint: str = "", code: int = USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


def of_problem(problem: Problem) -> int:
    return _BY_PROBLEM.get(problem.code, FAILED)


def of_job(job: JobView) -> int:
    """Return the exit code for an ended job: 0 if the job completed; otherwise the exit code of its program,
    or 128 + N if signal N ended the job, as in a shell. Without both, return 1.
    """
    if job.state is JobState.COMPLETED:
        return 0
    if job.exit_code:
        return job.exit_code
    return 128 + job.signal if job.signal else FAILED
