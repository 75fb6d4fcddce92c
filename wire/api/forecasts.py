"""API bodies of forecasts: the start of a job, changes that would start it now, and effects of changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

from wire.api.jobs import JobView
from wire.api.reasons import Ousted, Why
from wire.api.tenants import ShareWeight
from wire.cluster.quota import Quota
from wire.cluster.reservation import ReservationSpec
from wire.job.spec import JobSpec


@dataclass(frozen=True)
class Easing:
    """A change that would start a waiting job at once. The controller has tested it on a copy of its state.

    `sentence` describes the change. It is made either by `changes` of the job's JobSpec, or by the words in
    `command` after `corral`: to release the job, to resume nodes or GPUs, or to preempt the `victims`. In the
    last case the job starts when the victims have ended.
    """

    sentence: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    victims: tuple[Ousted, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """Why a job waits, and its latest start if all jobs keep their time limits.

    `starts_at` is the latest start; if it is unknown it is None, and `unknown` has the reason. If jobs run as
    long as predicted, the job starts at `likely_at` and runs for `predicted_s` seconds. Each of the `easings`
    would start it now; the smallest change is first. With `makes_room`, the `victims` are preempted for the
    job before it starts.
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
    """The earliest and the latest likely start, from the errors of earlier forecasts: 8 of 10 jobs started
    between these times."""
    complete: bool = True
    """False if the time limit ended the forecast early; see `covers_until`."""
    covers_until: Optional[float] = None
    """The time at which the forecast ended early: the job does not start before it. None: it is complete."""
    as_of: int = 0
    """The newest journal entry when the forecast was made; 0: no forecast was needed."""
    unknown: str = ""
    """Why `starts_at` is unknown."""
    assumes: tuple[str, ...] = ()
    """Assumptions of `starts_at` besides time limits, such as preemptions before it."""
    last: str = ""
    """The last condition that keeps the job from starting, if it differs from the current one."""
    no_preemption: str = ""
    """Why no running job is preempted for this job now."""


@dataclass(frozen=True)
class JobEdit:
    """A change of a job: fields of its JobSpec, as in JobChange."""

    job: int
    changes: Mapping[str, Any]


@dataclass(frozen=True)
class QuotaEdit:
    """A change of a quota. A `quota` of None removes the limits that were set at run time."""

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
    """Labels and taints to set on a node. None removes the label or taint."""

    node: str
    labels: Mapping[str, Optional[str]] = field(default_factory=dict)
    taints: Mapping[str, Optional[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class WhatIf:
    """Changes to try on a copy of the controller's state. The order is: configuration, nodes, marks, shares,
    quotas, cancels, preemptions, holds, releases, drains, resumes, reservations, edits and submits.
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
    """True if the preempted jobs are also held."""
    hold: tuple[int, ...] = ()
    release: tuple[int, ...] = ()
    nodes: tuple[MoreNodes, ...] = ()
    config: Optional[ConfigFile] = None
    marks: tuple[MarkEdit, ...] = ()


@dataclass(frozen=True)
class Shift:
    """A waiting job whose start would change from `was` to `becomes`. None: after the end of the forecast."""

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
    """The effect of changes. `refused` has the changes that the controller would refuse, with the reason.

    `passed_over` has the tables of the configuration that differ from the current one but are ignored here.
    `why` is the reason for which the first submitted job would wait; each of the `easings` would start that
    job at once.

    `shifts` has the new jobs, then the jobs with the largest delays, then those that start earlier by most;
    at most 200 of each. `later` and `sooner` count all delayed and all earlier jobs. Shifts below a minute,
    or below 5 % of the wait, are not listed; `trifles` is their number. `later_h` and `sooner_h` are the sums
    in hours, over all jobs whose start is known with and without the changes.
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
    """Number of waiting jobs whose start is unknown: after `covers_until`, with and without the changes."""
    later_h: float = 0.0
    sooner_h: float = 0.0
    complete: bool = True
    """False if the time limit ended the forecast early; see `covers_until`."""
    covers_until: Optional[float] = None
    """The time at which the forecast ended early; later starts are unknown. None: it is complete."""
    as_of: int = 0
    """The newest journal entry when the forecast was made."""
