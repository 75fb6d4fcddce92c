"""API bodies of the reports on usage and on the accuracy of estimates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class UsageView:
    """GPU usage of a user, project, queue or job. `utilisation` is in percent; None if not measured."""

    name: str
    jobs: int
    gpu_hours: float
    utilisation: Optional[float]
    p95: Optional[int]
    peak_mib: int
    energy_wh: float
    cpu_hours: float


@dataclass(frozen=True)
class UsageList:
    """Usage in the time from `since` to `until`, the largest usage first. `total` is the number of all lines,
    even if `usage` has only the first of them.
    """

    usage: tuple[UsageView, ...]
    since: float
    until: float
    total: int = 0


@dataclass(frozen=True)
class RunEstimate:
    """Errors of the predicted run times of one user's jobs. All times are means in seconds.

    `bias_s` is above 0 if jobs run longer than predicted. `error_s` is the absolute error. `outlived` is the
    fraction of jobs that ran longer than predicted. `limit_error_s` is the absolute error of the time limit
    as a prediction, for jobs that had one.
    """

    user: str
    jobs: int
    run_s: float
    bias_s: float
    error_s: float
    outlived: float
    limit_error_s: Optional[float] = None


@dataclass(frozen=True)
class StartEstimates:
    """Errors of estimated start times. All times are means in seconds. `kind` is promise (the reservation of
    the first waiting job), latest (a forecast from time limits) or likely (a forecast from predicted run
    times).

    `bias_s` is above 0 if jobs start later than estimated. `error_s` is the absolute error. `late` is the
    fraction of jobs that started later than estimated.
    """

    kind: str
    count: int
    ahead_s: float
    bias_s: float
    error_s: float
    late: float


@dataclass(frozen=True)
class Foreseen:
    """A start time of a job that was estimated while the job waited."""

    kind: str
    made_at: float
    start: float


@dataclass(frozen=True)
class EstimateReport:
    """Accuracy of estimates. `runs` has one entry for each user, the user with most jobs first. `plans` is
    limit or predicted: the run times that scheduling uses.
    """

    plans: str
    runs: tuple[RunEstimate, ...]
    all_runs: Optional[RunEstimate] = None
    starts: tuple[StartEstimates, ...] = ()


@dataclass(frozen=True)
class StintView:
    """GPU use by a process that does not belong to a job. `until` is None while it lasts; `units` is its cost
    in billing units.
    """

    user: str
    node: str
    gpu: int
    uuid: str
    pid: int
    command: str
    since: float
    until: Optional[float]
    gpu_hours: float
    units: float = 0.0
    number: str = ""
    """The number that the driver gives the GPU."""


@dataclass(frozen=True)
class StintList:
    """GPU use without a job in the time from `since` to `until`, the newest first. A used GPU counts as one
    whole GPU.
    """

    stints: tuple[StintView, ...]
    since: float
    until: float
