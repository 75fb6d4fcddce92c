"""The actions that `AttemptStates` returns, such as launching a supervisor. The agent carries the actions out
in order.
"""

from __future__ import annotations

from typing import Union

from agent.attempts.spool import AttemptKey
from wire.agent.orders import Start, Stop
from wire.agent.reports import AttemptStatus, Report
from wire.dataclass import dataclass


@dataclass(frozen=True)
class RecordOrder:
    """Write the start order of an attempt to the spool. If the write fails, call
    `AttemptStates.record_failed`, which reports the end of the attempt.
    """

    order: Start


@dataclass(frozen=True)
class RecordEnd:
    """Record the end of an attempt that never ran on this node. If a start order for this attempt arrives
    later, it has no effect.
    """

    status: AttemptStatus


@dataclass(frozen=True)
class LaunchSupervisor:
    """Send the attempt's launch spec (its settings for the supervisor) to the fork server after `after_s`
    seconds. If an earlier supervisor of the attempt was lost, the new supervisor only kills the processes
    that are left and records the end of the attempt.
    """

    key: AttemptKey
    after_s: float = 0.0


@dataclass(frozen=True)
class WatchSupervisor:
    """Watch the supervisor with this pid, and call `AttemptStates.supervisor_gone` when the supervisor has
    ended.
    """

    key: AttemptKey
    pid: int


@dataclass(frozen=True)
class RequestStop:
    """Write the stop order to the spool. If a supervisor of the attempt runs, wake the supervisor."""

    stop: Stop


@dataclass(frozen=True)
class ReleaseBarrier:
    """Let a member of a gang start: write the file `go` to the spool, and wake the supervisor."""

    key: AttemptKey


@dataclass(frozen=True)
class FailLaunch:
    """Record the end of an attempt that could not be launched, unless a supervisor has already begun to run
    the attempt.
    """

    key: AttemptKey
    why: str


@dataclass(frozen=True)
class MoveToSettled:
    """Move the attempt's directory to settled/ in the spool, where the directory is kept only for the
    logs.
    """

    key: AttemptKey


@dataclass(frozen=True)
class DeleteLogs:
    """Delete the logs and the record of an attempt whose end the controller has stored."""

    key: AttemptKey


@dataclass(frozen=True)
class SendReport:
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
