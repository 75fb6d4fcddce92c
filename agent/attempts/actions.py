"""The actions that `AttemptStates` returns. The agent carries them out in the order given."""

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
    """Write a record that says: this attempt never ran here and must not start."""

    status: AttemptStatus


@dataclass(frozen=True)
class LaunchSupervisor:
    """Send the launch to the fork server. If an earlier supervisor was lost, the new one records the end."""

    key: AttemptKey
    after_s: float = 0.0


@dataclass(frozen=True)
class WatchSupervisor:
    """Call `supervisor_gone` when this process has ended."""

    key: AttemptKey
    pid: int


@dataclass(frozen=True)
class RequestStop:
    """Write the stop order to the spool and wake the supervisor, if there is one."""

    stop: Stop


@dataclass(frozen=True)
class ReleaseBarrier:
    """Write to the spool that the gang may start, and wake the supervisor."""

    key: AttemptKey


@dataclass(frozen=True)
class FailLaunch:
    """Record the end of an attempt that could not be launched, unless a supervisor has claimed it."""

    key: AttemptKey
    why: str


@dataclass(frozen=True)
class MoveToSettled:
    """Move the record to settled/, where only the logs are of use."""

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
