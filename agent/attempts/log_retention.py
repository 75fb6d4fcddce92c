"""Deletes logs of ended attempts when the logs exceed a limit: the size per user, the size per node, or the
age.

The logs of running attempts have their own limits (agent/attempts/log_rotation.py).

Algorithm
1. Store the user of each settled attempt and the size of its directory on disk. An attempt is settled when
   the controller has recorded its end.
2. `take_surplus` first returns the oldest attempts of each user whose logs exceed `log_user_mib`. It then
   returns the oldest attempts of all users until all logs have at most `log_node_mib`, and then attempts
   older than `log_days`. Cost: one scan of the directory when an attempt is settled; constant for each
   deleted attempt.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Iterator

from agent.attempts.spool import AttemptKey
from wire.agent.job_policy import JobPolicy
from wire.dataclass import dataclass

AGE_INTERVAL_S = 3_600.0
"""Seconds between two checks for logs that are older than `log_days`."""
_MIB = 1 << 20
_A_DAY = 86_400.0


@dataclass(frozen=True)
class _Logs:
    user: str
    size: int
    ended_at: float


class SettledLogs:
    """The sizes of the logs of settled attempts, the oldest attempt first."""

    def __init__(self, policy: JobPolicy) -> None:
        self._of_user = policy.log_user_mib * _MIB
        self._of_all = policy.log_node_mib * _MIB
        self._age_s = policy.log_days * _A_DAY
        self._logs: OrderedDict[AttemptKey, _Logs] = OrderedDict()
        self._users: dict[str, OrderedDict[AttemptKey, int]] = {}
        self._sums: dict[str, int] = {}
        self._sum = 0

    def add(self, key: AttemptKey, user: str, size: int, ended_at: float) -> None:
        """Add a settled attempt of `user`, whose directory has `size` bytes on disk. `ended_at` is the unix
        time at which the attempt ended or was settled. The caller must add the attempts in the order of
        `ended_at`.
        """
        self.remove(key)
        self._logs[key] = _Logs(user, size, ended_at)
        self._users.setdefault(user, OrderedDict())[key] = size
        self._sums[user] = self._sums.get(user, 0) + size
        self._sum += size

    def remove(self, key: AttemptKey) -> None:
        logs = self._logs.pop(key, None)
        if logs is None:
            return
        del self._users[logs.user][key]
        self._sums[logs.user] -= logs.size
        self._sum -= logs.size
        if not self._users[logs.user]:
            del self._users[logs.user], self._sums[logs.user]

    def take_surplus(self, now: float, user: str = "") -> Iterator[AttemptKey]:
        """Remove the oldest attempts until no limit is exceeded, and yield the removed attempts as (job,
        attempt number). The caller must delete their logs.

        The limit per user is checked only for `user`, or for all users if `user` is empty.
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


def directory_bytes(directory: str) -> int:
    """Return the size on disk of an attempt's directory, in bytes; 0 if the directory cannot be read."""
    try:
        with os.scandir(directory) as entries:
            return sum(entry.stat(follow_symlinks=False).st_blocks for entry in entries) * 512
    except OSError:
        return 0
