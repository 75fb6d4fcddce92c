"""Limits the disk space of logs in the spool, per user and in total, for ended and for running attempts.

Algorithm for ended attempts (`SettledLogs`)
1. Store the user of each settled attempt and the size of its directory on disk.
2. `take_surplus` returns the oldest attempts of each user whose logs exceed `log_user_mib`, then the oldest
   attempts of all users while all logs exceed `log_node_mib`, then attempts older than `log_days`.
Cost: one scan of the directory when an attempt is settled; constant for each deleted attempt.

Algorithm for running attempts (`equal_share`)
1. Sort the logs of a user by size, the smallest first. Divide the space that is left of `log_running_mib`
   equally among the remaining logs. A log that is smaller than its part keeps its size.
2. Delete the middle of logs that are larger than that part, as for `log_mib`.

Example: `log_running_mib` is 300, and the logs of ada's three jobs have 10, 200 and 400 MiB. The first log
keeps its 10 MiB. 290 MiB are left for two logs, so each of them keeps 145 MiB.
"""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from dataclasses import dataclass
from typing import Iterable, Iterator

from agent.attempts.spool import AttemptKey
from agent.supervisor.log_limits import STREAMS, punch_middle
from wire.agent.job_policy import JobPolicy

RUNNING_INTERVAL_S = 2.0
"""Seconds between two checks of the logs of running jobs."""
AGE_INTERVAL_S = 3_600.0
"""Seconds between two checks for logs that are older than `log_days`."""
_LEAST = 1 << 18
"""The smallest size in bytes to which a log is cut. Half of it is the end of the log."""
_MIB = 1 << 20
_A_DAY = 86_400.0


@dataclass(frozen=True)
class _Logs:
    user: str
    size: int
    ended_at: float


class SettledLogs:
    """The sizes of the logs of settled attempts, in the order of their ends."""

    def __init__(self, policy: JobPolicy) -> None:
        self._of_user = policy.log_user_mib * _MIB
        self._of_all = policy.log_node_mib * _MIB
        self._age_s = policy.log_days * _A_DAY
        self._logs: OrderedDict[AttemptKey, _Logs] = OrderedDict()
        self._users: dict[str, OrderedDict[AttemptKey, int]] = {}
        self._sums: dict[str, int] = {}
        self._sum = 0

    def add(self, key: AttemptKey, user: str, size: int, ended_at: float) -> None:
        """Add a settled attempt. Attempts must be added in the order of their ends."""
        self.remove(key)
        self._logs[key] = _Logs(user, size, ended_at)
        self._users.setdefault(user, OrderedDict())[key] = size
        self._sums[user] = self._sums.get(user, 0) + size
        self._sum += size

    def remove(self, key: AttemptKey) -> None:
        """Remove an attempt whose logs are deleted."""
        logs = self._logs.pop(key, None)
        if logs is None:
            return
        del self._users[logs.user][key]
        self._sums[logs.user] -= logs.size
        self._sum -= logs.size
        if not self._users[logs.user]:
            del self._users[logs.user], self._sums[logs.user]

    def take_surplus(self, now: float, user: str = "") -> Iterator[AttemptKey]:
        """Remove attempts that exceed the limits and yield them. The caller must delete their logs.

        With `user`, the limit per user is checked only for that user.
        """
        for each in [user] if user else list(self._users):
            while self._of_user and self._sums.get(each, 0) > self._of_user:
                yield self._drop(next(iter(self._users[each])))
        while self._of_all and self._sum > self._of_all:
            yield self._drop(next(iter(self._logs)))
        while self._age_s and self._logs:
            key, oldest = next(iter(self._logs.items()))
            if oldest.ended_at > now - self._age_s:
                break
            yield self._drop(key)

    def _drop(self, key: AttemptKey) -> AttemptKey:
        self.remove(key)
        return key


def equal_share(sizes: Iterable[int], most: int) -> int | None:
    """The size in bytes to which larger logs must be cut so that all logs together have at most `most` bytes.
    None if they do not exceed it.
    """
    ordered = sorted(sizes)
    if sum(ordered) <= most:
        return None
    left = most
    for index, size in enumerate(ordered):
        share = left // (len(ordered) - index)
        if size > share:
            return max(share, _LEAST)
        left -= size
    return None


def directory_bytes(directory: str) -> int:
    """The size on disk of an attempt's directory, in bytes; 0 if it cannot be read."""
    try:
        with os.scandir(directory) as entries:
            return sum(entry.stat(follow_symlinks=False).st_blocks for entry in entries) * 512
    except OSError:
        return 0


def trim_running_logs(running: Iterable[tuple[str, str]], most: int) -> None:
    """Cut the logs of running attempts to `most` bytes per user. `running` has (user, directory) pairs."""
    logs: dict[str, dict[str, int]] = {}
    for user, directory in running:
        for name in STREAMS:
            path = f"{directory}/{name}"
            try:
                found = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                logs.setdefault(user, {})[path] = found.st_blocks * 512
    for sizes in logs.values():
        share = equal_share(sizes.values(), most)
        for path, size in sizes.items():
            if share is not None and size > share:
                punch_middle(path, share)
