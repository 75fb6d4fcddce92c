"""API bodies of forecasts: the start of a waiting job, the changes that would start it now, and the effect of
changes on the starts of all jobs.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Mapping, Optional

from wire.api.jobs import JobView
from wire.api.nodes import LeavingJob
from wire.api.policy.shares import ShareWeight
from wire.api.reasons import Ousted, Why
from wire.cluster.quota import Quota
from wire.cluster.reservation import ReservationSpec
from wire.dataclass import dataclass
from wire.job.spec import JobSpec


@dataclass(frozen=True)
class Easing:
    """A change that would start a waiting job at once. The controller has tried the change on a copy of its
    state.

    `sentence` describes the change for users. If the change is to the job's JobSpec, `changes` has the new
    values of its fields. Otherwise `command` has the arguments of a `corral` command that makes the change.
    The command releases the job, resumes nodes or GPUs, or preempts the `victims`. After a preemption the job
    starts when the victims have ended.
    """

    sentence: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    victims: tuple[Ousted, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """The reason why a job waits, and the forecast of its start.

    `starts_at` is the latest start: the start if every job uses its whole time limit. If it is None,
    `unknown` has the reason. If every job runs as long as predicted, this job starts at `likely_at` and runs
    for `predicted_s` seconds. Each change in `easings` would start the job now. First come changes of one
    field of the job, then resumes of nodes or GPUs, then preemptions, then changes of several fields. If
    `makes_room` is True, the forecast preempts the running jobs in `victims` for this job.
    """

    job: JobView
    why: Why
    starts_at: Optional[float] = None
    nodes: tuple[str, ...] = ()
    victims: tuple[Ousted, ...] = ()
    makes_room: bool = False
    easings: tuple[Easing, ...] = ()
    likely_at: Optional[float] = None
    predicted_s: Optional[float] = None
    between: Optional[tuple[float, float]] = None
    """The time span (begin, end), in seconds since 1970, in which the job is likely to start. The span is as
    wide as the errors of earlier forecasts require, so that 8 of 10 jobs start within their spans.
    """
    complete: bool = True
    """False if this answer is preliminary, or if the time allowed for the forecast ended before the forecast
    was complete; see `covers_until`.
    """
    covers_until: Optional[float] = None
    """For an incomplete forecast, the time up to which the forecast was computed: the job does not start
    before this time. None if the forecast is complete.
    """
    as_of: int = 0
    """The number of the newest journal entry when the forecast was made; 0 if no forecast was needed."""
    unknown: str = ""
    """The reason why `starts_at` is unknown; empty if it is known."""
    assumes: tuple[str, ...] = ()
    """The assumptions of the forecast `starts_at` besides time limits, one sentence for each. For example,
    the forecast assumes preemptions of other jobs.
    """
    last: str = ""
    """The last reason for which the job waits before its forecast start. It is computed only if the job waits
    now for a quota, a share, the hours of its queue or GPUs that a queue keeps free. Empty if unknown.
    """
    no_preemption: str = ""
    """The reason why no running job can be preempted for this job now; empty if a job can be preempted, or if
    the reason was not examined.
    """


@dataclass(frozen=True)
class JobEdit:
    """New values for fields of a job's JobSpec, by field name, as in JobChange."""

    job: int
    changes: Mapping[str, Any]


@dataclass(frozen=True)
class QuotaEdit:
    """New limits of a user, project or queue. If `quota` is None, the limits of the configuration apply
    again.
    """

    scope: str
    name: str
    quota: Optional[Quota] = None


@dataclass(frozen=True)
class MoreNodes:
    """`count` new idle nodes with the same GPUs, labels and taints as the existing node `like`."""

    like: str
    count: int = 1


@dataclass(frozen=True)
class ConfigFile:
    """The text of a scheduler.toml, and the file name for error messages."""

    text: str
    name: str = "scheduler.toml"


@dataclass(frozen=True)
class MarkEdit:
    """Labels and taints to set on a node, by name. The value None removes the label or taint."""

    node: str
    labels: Mapping[str, Optional[str]] = field(default_factory=dict)
    taints: Mapping[str, Optional[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class WhatIf:
    """Changes to try on a copy of the controller's state. The changes are made in this order: configuration,
    added nodes, labels and taints of nodes, shares, quotas, cancels, preemptions, holds, releases, drains,
    resumes, reservations, edits and submits.
    """

    submit: tuple[JobSpec, ...] = ()
    cancel: tuple[int, ...] = ()
    drain: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    shares: tuple[ShareWeight, ...] = ()
    reserve: tuple[ReservationSpec, ...] = ()
    edit: tuple[JobEdit, ...] = ()
    quotas: tuple[QuotaEdit, ...] = ()
    cancel_reservations: tuple[str, ...] = ()
    preempt: tuple[int, ...] = ()
    stay_held: bool = False
    """True if the jobs that are preempted are also held, so that they do not start again before a release."""
    hold: tuple[int, ...] = ()
    release: tuple[int, ...] = ()
    nodes: tuple[MoreNodes, ...] = ()
    config: Optional[ConfigFile] = None
    marks: tuple[MarkEdit, ...] = ()
    drain_by: Optional[float] = None
    """The time by which the nodes in `drain` are to be empty. None means a drain without a time: the nodes
    get no new jobs.
    """


@dataclass(frozen=True)
class Shift:
    """A waiting or new job whose start would change from `was` to `becomes`, in seconds since 1970. A time is
    None if the start of the job is after the end of the forecast, or cannot be predicted.
    """

    job: int
    label: str
    name: str
    user: str
    was: Optional[float]
    becomes: Optional[float]
    nodes: tuple[str, ...] = ()
    new: bool = False


@dataclass(frozen=True)
class WhatIfAnswer:
    """The effect of the changes in a WhatIf. `refused` has the changes that the controller would refuse, each
    with the reason.

    `passed_over` has the names of the configuration tables that would change but have no effect on the
    forecast. If jobs are submitted in the WhatIf, `why` is the reason why the first of these jobs would wait,
    and each change in `easings` would start this job at once.

    `shifts` lists at most 200 new jobs, then at most 200 jobs with the largest delays, then at most 200 jobs
    with the largest gains (earlier starts). `later` and `sooner` count all jobs with a delay and all jobs
    with a gain. A job with a change of less than a minute, or of less than 5 % of its wait, counts only in
    `trifles`. `later_h` is the sum of all delays in hours. `sooner_h` is the sum of the hours by which jobs
    start earlier. Jobs whose start is unknown are left out of these sums.
    """

    now: float
    shifts: tuple[Shift, ...]
    unchanged: int
    refused: tuple[str, ...] = ()
    whole: bool = True
    preempted: tuple[Ousted, ...] = ()
    passed_over: tuple[str, ...] = ()
    why: Optional[Why] = None
    easings: tuple[Easing, ...] = ()
    later: int = 0
    sooner: int = 0
    trifles: int = 0
    unknown: int = 0
    """The number of waiting jobs with an unknown start: with and without the changes, each starts after
    `covers_until`.
    """
    later_h: float = 0.0
    sooner_h: float = 0.0
    complete: bool = True
    """False if the time allowed for the forecast ended before the forecast was complete; see
    `covers_until`.
    """
    covers_until: Optional[float] = None
    """For an incomplete forecast, the time up to which starts were computed. Later starts are unknown. None
    if the forecast is complete.
    """
    as_of: int = 0
    """The number of the newest journal entry when the forecast was made."""
    not_known: int = 0
    """The number of waiting jobs whose start is unknown with and without the changes although the forecast is
    complete. For example, such jobs wait for the end of a job without a time limit. `unchanged` does not
    include these jobs.
    """
    now_unknown: int = 0
    """The number of jobs in `later` with a known start without the changes and an unknown start with the
    changes, in a complete forecast.
    """
    now_known: int = 0
    """The number of jobs in `sooner` with a known start with the changes and an unknown start without the
    changes, in a complete forecast.
    """
    leaving: tuple[LeavingJob, ...] = ()
    """The running jobs that a timed drain would move or end."""
    id: str = ""
    """The id of this answer, which the controller remembers for 15 minutes. A request for a change may have
    this id in the header `Corral-What-If`. The controller then refuses the request if the effect of the
    change would differ from this answer.
    """


CERTAIN, LIKELY, LIMIT = "certain", "likely", "limit"
"""The certainty of a job's start in a plan. CERTAIN: the job runs already. LIKELY: the start is predicted
from the run times of earlier jobs. LIMIT: the start is the latest possible start. All jobs are assumed to use
their whole time limits.
"""
RESERVATION, DRAIN = "reservation", "drain"


@dataclass(frozen=True)
class PlanEntry:
    """One job of a plan: its nodes, its start and its end.

    `ends_at` is the latest end of the job. If the certainty of the start is `likely`, `ends_at` is the likely
    end instead. `ends_at` is None if the job has no time limit.
    """

    job: int
    label: str
    name: str
    user: str
    project: str
    queue: str
    gpus: float
    """The GPUs of the job on all its nodes together."""
    nodes: tuple[str, ...] = ()
    starts_at: float = 0.0
    ends_at: Optional[float] = None
    certainty: str = LIMIT
    """`certain`, `likely` or `limit`."""
    likely_at: Optional[float] = None
    """The likely start of a waiting job; None if this start is not known."""
    likely_end_at: Optional[float] = None
    """The likely end of a running job; None if this end is not known."""


@dataclass(frozen=True)
class PlanBlock:
    """A period in which nodes are reserved or drained. `kind` is `reservation` or `drain`. `ends_at` is None
    for a drain, because a drain lasts until an operator resumes the node.
    """

    kind: str
    name: str
    nodes: tuple[str, ...]
    starts_at: float
    ends_at: Optional[float]
    why: str = ""


@dataclass(frozen=True)
class PlanPoint:
    """The number of GPUs that no job holds from the time `at` until the next point."""

    at: float
    gpus_free: float


@dataclass(frozen=True)
class Plan:
    """The jobs that the scheduler expects to run in the next `horizon_s` seconds, ordered by start.

    `free` counts the GPUs of connected nodes that no job of the plan holds. GPUs of drained and reserved
    nodes are included.
    """

    now: float
    horizon_s: float
    entries: tuple[PlanEntry, ...]
    blocks: tuple[PlanBlock, ...]
    free: tuple[PlanPoint, ...]
    gpus: int
    waiting: int
    """The number of waiting jobs that are not held."""
    without_start: int
    """The number of waiting jobs that have no known start within the next `horizon_s` seconds."""
    left_out: int = 0
    """The number of jobs of the plan that are not in `entries`, because the list would be too long. `free`
    takes their GPUs into account.
    """
    complete: bool = True
    """False if this answer is preliminary, or if the time allowed for the plan ended before the whole horizon
    was planned.
    """
    covers_until: Optional[float] = None
    """For an incomplete plan, the time up to which the plan has the starts of all jobs. None if the plan is
    complete.
    """
    as_of: int = 0
    """The number of the newest journal entry in the plan."""
