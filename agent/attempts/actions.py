"""The actions that `AttemptStates` returns. The agent carries them out in the order of the list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from agent.attempts.spool import AttemptKey
from wire.agent.frames import AttemptStatus, Report, Start, Stop


@dataclass(frozen=True)
class RecordOrder:
    """Write the order to the spool. If that fails, call `record_failed`."""

    order: Start


@dataclass(frozen=True)
class RecordEnd:
    """Write a record of an attempt that has ended without running here, so that it cannot start later."""

    status: AttemptStatus


@dataclass(frozen=True)
class LaunchSupervisor:
    """Send the launch spec to the fork server after `after_s` seconds. If an earlier supervisor was lost, the
    new supervisor records the end of the attempt.
    """

    key: AttemptKey
    after_s: float = 0.0


@dataclass(frozen=True)
class WatchSupervisor:
    """Call `AttemptStates.supervisor_gone` when the supervisor with this pid has ended."""

    key: AttemptKey
    pid: int


@dataclass(frozen=True)
class RequestStop:
    """Write the stop order to the spool and wake the supervisor, if one runs."""

    stop: Stop


@dataclass(frozen=True)
class ReleaseBarrier:
    """Write the file `go` to the spool, which lets the gang member start, and wake the supervisor."""

    key: AttemptKey


@dataclass(frozen=True)
class FailLaunch:
    """Record the end of an attempt that could not be launched, unless a supervisor has claimed it."""

    key: AttemptKey
    why: str


@dataclass(frozen=True)
class MoveToSettled:
    """Move the attempt's directory to settled/. From then on only its logs are needed."""

    key: AttemptKey


@dataclass(frozen=True)
class DeleteLogs:
    """Delete a settled attempt with its logs."""

    key: AttemptKey


@dataclass(frozen=True)
class SendReport:
    """Send a report to the controller."""

    report: Report


AttemptAction = Union[
    RecordOrder,
    RecordEnd,
    LaunchSupervisor,
    WatchSupervisor,
    RequestStop,
    ReleaseBarrier,
    FailLaunch,
    MoveToSettled,
    DeleteLogs,
    SendReport,
]
