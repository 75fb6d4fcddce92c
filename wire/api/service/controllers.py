"""API bodies about the controllers of one cluster: the leader and its standbys."""

from __future__ import annotations

from typing import Optional

from wire.dataclass import dataclass


@dataclass(frozen=True)
class ControllerView:
    """One controller. `role` is `leader`, `standby`, or `silent` if the controller has not reported for some
    time and may have ended.

    `seq` is the number of the newest journal entry that the controller has written (leader) or read
    (standby). `seen_s` is the number of seconds since its last report. `this` is True for the controller that
    answers.
    """

    role: str
    host: str
    pid: int
    url: str
    version: str
    seq: int
    since: Optional[float]
    seen_s: float
    this: bool = False


@dataclass(frozen=True)
class ControllersView:
    """All controllers of the cluster. `epoch` grows by 1 whenever a controller becomes the leader; it is 0 if
    the cluster can have only one controller. `as_of` is the time (seconds since 1970) of the state that the
    answering controller shows.
    """

    leader: str
    epoch: int
    as_of: float
    controllers: tuple[ControllerView, ...]
