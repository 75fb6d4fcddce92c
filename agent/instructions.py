"""What `attempts` wants done, in the imperative; `node` does it, in the order given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from agent.spool import Key
from wire.frames import AttemptStatus, Report, Start, Stop


@dataclass(frozen=True)
class Keep:
    """Write the order down; if that fails, say so with `not_kept`."""

    order: Start


@dataclass(frozen=True)
class KeepEnded:
    """Write down that this attempt never ran here and never will."""

    status: AttemptStatus


@dataclass(frozen=True)
class HandOver:
    """Hand the attempt to the nursery, which also knows what to do with one whose supervisor was lost."""

    key: Key
    after_s: float = 0.0


@dataclass(frozen=True)
class Watch:
    """Tell with `lost_sight` when this supervisor is gone."""

    key: Key
    pid: int


@dataclass(frozen=True)
class Halt:
    """Leave the order to stop in the spool and wake the supervisor, if there is one."""

    stop: Stop


@dataclass(frozen=True)
class Release:
    """Leave word in the spool that the gang may start, and wake the supervisor."""

    key: Key


@dataclass(frozen=True)
class GiveUp:
    """End an attempt that could not be handed over, unless a supervisor has it after all."""

    key: Key
    why: str


@dataclass(frozen=True)
class PutAway:
    """The controller has the outcome: keep only the logs."""

    key: Key


@dataclass(frozen=True)
class Forget:
    """Delete the logs too."""

    key: Key


@dataclass(frozen=True)
class Tell:
    """Send a report to the controller."""

    report: Report


Instruction = Union[Keep, KeepEnded, HandOver, Watch, Halt, Release, GiveUp, PutAway, Forget, Tell]
