"""When a job starts, what would let it start now, and what would be if."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional

from wire.api.jobs import JobView
from wire.api.reasons import Ousted, Why
from wire.api.tenants import ShareWeight
from wire.quota import Quota
from wire.reservation import ReservationSpec
from wire.spec import JobSpec


@dataclass(frozen=True)
class Easing:
    """Fields of a waiting job's JobSpec: changed so, they let it start in the next cycle. In words, too."""

    sentence: str
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanation:
    """Why a job is where it is, and when it starts at the latest if all keep to their limits.

    `starts_at` is None when that cannot be told: a job without a time limit stands before it. It is likely
    to start at `likely_at` if jobs run as predicted, and then to run for `predicted_s`.
    It would start now with any of the `easings`, the smallest change first, or if `victims` were ended;
    `makes_room`: they will be, in its turn.
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
    """When it starts if what is said here is as wrong as it used to be: 8 of 10 started within that."""


@dataclass(frozen=True)
class JobEdit:
    """A job that would ask for something else: fields of its JobSpec, as in JobChange."""

    job: int
    changes: Mapping[str, Any]


@dataclass(frozen=True)
class QuotaEdit:
    """A quota that would be laid over what holds; None: what was set while running is taken back."""

    scope: str
    name: str
    quota: Optional[Quota] = None


@dataclass(frozen=True)
class MoreNodes:
    """So many idle nodes with the GPUs, labels and taints of one that is there."""

    like: str
    count: int = 1


@dataclass(frozen=True)
class ConfigFile:
    """A scheduler.toml as text, and what to call it in complaints."""

    text: str
    name: str = "scheduler.toml"


@dataclass(frozen=True)
class WhatIf:
    """Changes to try on a copy: a configuration first, then nodes, shares, quotas, cancels, preemptions,
    holds, releases, drains, resumes, reservations, edits and submits.
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
    hold: tuple[int, ...] = ()
    release: tuple[int, ...] = ()
    nodes: tuple[MoreNodes, ...] = ()
    config: Optional[ConfigFile] = None


@dataclass(frozen=True)
class Shift:
    """A waiting job whose start would change; None: not within what can be foretold."""

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
    """What would change. `refused` names the changes that would not be accepted, with the reason.

    `passed_over` names tables of a configuration that differ from what runs and have no part in this.
    `why` is what the first of the submitted jobs would wait for; the `easings` would start it at once.
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
