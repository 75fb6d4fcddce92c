"""Estimated starts of jobs. Each estimate is stored with its job and compared with the real start of the job.
The differences (errors) determine the ranges of later estimates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

PROMISE, LATEST, LIKELY = "promise", "latest", "likely"
"""The kinds of estimates. PROMISE: the reserved start of the first waiting job. LATEST: the start if all
running jobs use their whole time limit. LIKELY: the most likely start.
"""
MAX_ESTIMATES = 8
"""At most this many estimates are recorded for one job."""
MIN_GAP_S = 60.0
"""The shortest time, in seconds, between two recorded estimates of one method for a job."""
MAX_ERRORS = 100
"""Only this many errors of each method are kept, the latest ones. From them `span` computes the range in
which a job starts.
"""
MIN_ERRORS = 10
"""The least number of errors from which `span` computes the range in which a job starts."""
TAIL_FRACTION = 0.1
"""The range of a start leaves out this fraction of the errors at its lower end, and the same fraction at its
upper end.
"""


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """An estimate, made at the time `made_at`, that a job starts at the time `start`. `kind` names the method
    of the estimate.
    """

    kind: str
    made_at: float
    start: float


@dataclass(slots=True)
class StartScore:
    """Statistics about the errors (real start - estimate) of all estimates with one method (`kind`). Fields
    that end in `_s` are sums of seconds.
    """

    count: int = 0
    ahead_s: float = 0.0
    bias_s: float = 0.0
    """The sum of (start - estimate) in seconds. If the sum is positive, jobs start later than estimated on
    average.
    """
    error_s: float = 0.0
    late: int = 0
    errors: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_ERRORS))
    """The latest errors. Each error is divided by the length of its forecast (the time from the estimate to
    the estimated start).
    """

    def add(self, estimate: StartEstimate, started_at: float) -> None:
        """Add the error of an estimate whose job has started at the time `started_at`."""
        ahead, error = max(1.0, estimate.start - estimate.made_at), started_at - estimate.start
        self.count += 1
        self.ahead_s += estimate.start - estimate.made_at
        self.bias_s += error
        self.error_s += abs(error)
        self.late += error > 0
        self.errors.append(round(error / ahead, 4))

    def span(self, start: float, now: float) -> tuple[float, float] | None:
        """Return (earliest start, latest start) of a job with the estimated start `start`. The job starts in
        this range with a probability of 80 %. The range comes from the errors of earlier estimates.

        Return None if fewer than MIN_ERRORS errors are known.
        """
        if len(self.errors) < MIN_ERRORS:
            return None
        ordered, ahead = sorted(self.errors), max(1.0, start - now)
        cut = int(TAIL_FRACTION * len(ordered))
        low, high = ordered[cut], ordered[-1 - cut]
        return max(now, start + low * ahead), max(now, start + high * ahead)

    def dump(self) -> list[object]:
        """Return the fields as a list of JSON values for the database."""
        return [self.count, self.ahead_s, self.bias_s, self.error_s, self.late, *self.errors]


def load_score(kept: Sequence[float]) -> StartScore:
    """Return the StartScore that `StartScore.dump` wrote as this list."""
    count, ahead, bias, error, late, *errors = kept
    return StartScore(int(count), ahead, bias, error, int(late), deque(errors, MAX_ERRORS))


def should_record(known: Iterable[StartEstimate], kind: str, now: float) -> bool:
    """Return whether to record another estimate of a job's start that was made with the method `kind`.
    `known` are the recorded estimates of the job. Return False if MAX_ESTIMATES estimates are recorded, or if
    an estimate with this method is younger than MIN_GAP_S seconds.
    """
    known = list(known)
    again = (each for each in known if each.kind == kind)
    return len(known) < MAX_ESTIMATES and all(now - each.made_at >= MIN_GAP_S for each in again)
