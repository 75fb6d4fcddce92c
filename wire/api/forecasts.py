"""Forecasts: when a job starts, which change would start it now, and the effect of changes."""

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
    """A change that starts a waiting job, as a sentence and as changes or a command; tested on a copy.

    Either `changes` of fields of its JobSpec, or the words of a command after `corral`: to release the
    job, to resume nodes or GPUs, or to preempt the `victims`, after whose end it starts.
    """

    sentence: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    victims: tuple[Ousted, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """Why a job waits, and when it starts at the latest if all jobs keep their time limits.

    `starts_at` is None if that is unknown, and `unknown` says why. The job is likely to start at `likely_at`
    if jobs run as predicted, and then to run for `predicted_s`. It would start now with each of the
    `easings`, the smallest change first. With `makes_room`, the `victims` are preempted for it before it
    starts.
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
    """The start if this forecast is as wrong as earlier ones; 8 of 10 jobs started by then."""
    complete: bool = True
    """False if the time did not suffice for the whole answer; see `covers_until`."""
    covers_until: Optional[float] = None
    """The job does not start before this time; later starts are unknown. None: nothing was cut off."""
    as_of: int = 0
    """The journal entry at which the forecast was made; 0: no forecast was needed."""
    unknown: str = ""
    """Why `starts_at` is unknown."""
    assumes: tuple[str, ...] = ()
    """Assumptions of `starts_at` besides time limits, such as preemptions before it."""
    last: str = ""
    """The last reason for which the job waits, if it differs from the present one."""
    no_preemption: str = ""
    """Why no running job is preempted for this job now."""


@dataclass(frozen=True)
class JobEdit:
    """A change of a job: fields of its JobSpec, as in JobChange."""

    job: int
    changes: Mapping[str, Any]


@dataclass(frozen=True)
class QuotaEdit:
    """A change of a quota; None removes the limits that were set at run time."""

    scope: str
    name: str
    quota: Optional[Quota] = None


@dataclass(frozen=True)
class MoreNodes:
    """A number of new idle nodes with the GPUs, labels and taints of an existing node."""

    like: str
    count: int = 1


@dataclass(frozen=True)
class ConfigFile:
    """A scheduler.toml as text, and its name for error messages."""

    text: str
    name: str = "scheduler.toml"


@dataclass(frozen=True)
class MarkEdit:
    """Labels and taints that a node gets, or loses if None."""

    node: str
    labels: Mapping[str, Optional[str]] = field(default_factory=dict)
    taints: Mapping[str, Optional[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class WhatIf:
    """Changes to try on a copy: a configuration first, then nodes, marks, shares, quotas, cancels,
    preemptions, holds, releases, drains, resumes, reservations, edits and submits.
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
    """A waiting job whose start would change; None: after the end of the forecast."""

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
    """The effect of changes. `refused` has the changes that would not be accepted, with the reason.

    `passed_over` has the tables of a configuration that differ from those in effect and are not considered.
    `why` is the reason for which the first submitted job would wait; each of the `easings` would start it at
    once.

    `shifts` has the new jobs first, then the most delayed jobs, then those that gain most, at most 200 of
    each; `later` and `sooner` count all of them. Shifts below a minute, or below 5 % of the wait, are only
    counted as `trifles`. `later_h` and `sooner_h` are the sums of hours over all jobs whose start is known in
    both cases.
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
    """Waiting jobs whose start is unknown: after `covers_until` with and without the change."""
    later_h: float = 0.0
    sooner_h: float = 0.0
    complete: bool = True
    """False if the time did not suffice for the whole answer; see `covers_until`."""
    covers_until: Optional[float] = None
    """Starts after this time are unknown; None: nothing was cut off."""
    as_of: int = 0
    """The journal entry at which the forecast was made."""
