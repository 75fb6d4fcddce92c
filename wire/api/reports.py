"""Reports: usage, and the accuracy of estimates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class UsageView:
    """GPU usage of a user, project, queue or job: utilisation in percent, None if not measured."""

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
    """Usage in a window, the largest first; `total` is the number of lines without a limit."""

    usage: tuple[UsageView, ...]
    since: float
    until: float
    total: int = 0


@dataclass(frozen=True)
class RunEstimate:
    """Errors of predicted run times, for the jobs of one user; times are means in seconds.

    `bias_s` is above 0 if jobs run longer than predicted, `error_s` is the absolute error; `outlived` is the
    share of jobs that ran longer. `limit_error_s` is the error of time limits, for jobs that had one.
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
    """Errors of estimated starts; times are means in seconds. `kind`: promise (to the first waiting job),
    latest (by limits) or likely (by predictions), both estimated when a user asked.

    `bias_s` is above 0 if jobs start later than estimated, `error_s` is the absolute error; `late` is the
    share of jobs that started later.
    """

    kind: str
    count: int
    ahead_s: float
    bias_s: float
    error_s: float
    late: float


@dataclass(frozen=True)
class Foreseen:
    """An estimated start of a job, made while it waited."""

    kind: str
    made_at: float
    start: float


@dataclass(frozen=True)
class EstimateReport:
    """Accuracy of estimates, by user, most jobs first. `plans`: limit or predicted."""

    plans: str
    runs: tuple[RunEstimate, ...]
    all_runs: Optional[RunEstimate] = None
    starts: tuple[StartEstimates, ...] = ()


@dataclass(frozen=True)
class StintView:
    """GPU use by a user without a job; `until` is None while it lasts, `units` is its cost."""

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
    """The driver's number of the GPU."""


@dataclass(frozen=True)
class StintList:
    """GPU use without a job in a window, the newest first; each GPU counts as a whole."""

    stints: tuple[StintView, ...]
    since: float
    until: float
