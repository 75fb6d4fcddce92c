"""What was used, and how good forecasts were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class UsageView:
    """What somebody's jobs made of GPUs: utilisation in percent, None where nobody measured it."""

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
    """Use in a window, the greatest first."""

    usage: tuple[UsageView, ...]
    since: float
    until: float


@dataclass(frozen=True)
class RunEstimate:
    """How predictions of run times did, for the jobs of one user; times are means in seconds.

    `bias_s` is above 0 if jobs run longer than predicted, `error_s` is without its sign; `outlived` is the
    part that ran longer. `limit_error_s` is how far time limits were off, of jobs that had one.
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
    """How estimates of starts did; times are means in seconds. `kind`: promise (to the first that waits),
    latest (by limits) or likely (by predictions), both told when somebody asked.

    `bias_s` is above 0 if jobs start later than foretold, `error_s` is without its sign; `late` is the part
    that started later.
    """

    kind: str
    count: int
    ahead_s: float
    bias_s: float
    error_s: float
    late: float


@dataclass(frozen=True)
class Foreseen:
    """When a job was to start, as was said while it waited."""

    kind: str
    made_at: float
    start: float


@dataclass(frozen=True)
class EstimateReport:
    """How good estimates were: of run times by user, most jobs first. `plans`: limit or predicted."""

    plans: str
    runs: tuple[RunEstimate, ...]
    all_runs: Optional[RunEstimate] = None
    starts: tuple[StartEstimates, ...] = ()


@dataclass(frozen=True)
class StintView:
    """A user on a GPU past the queue; `until` is None while he is there, `units` is what it cost him."""

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


@dataclass(frozen=True)
class StintList:
    """Who worked past the queue in a window, the newest first; the GPU counts whole."""

    stints: tuple[StintView, ...]
    since: float
    until: float
