"""Limits the disk space of logs in the spool: per user and in total, of ended and of running attempts.

Algorithm for ended attempts (`SettledLogs`)
1. Each settled attempt is counted with its user and the bytes that its directory takes on disk.
2. `take_surplus` returns the oldest attempts of a user who has more than `log_user_mib`, then the oldest of
   all while all together have more than `log_node_mib`, and all that are older than `log_days`.
Cost: one scan of the directory when an attempt is settled, then constant for each attempt.

Algorithm for running attempts (`equal_share`)
1. Sort the sizes of a user's logs. From the smallest on, each log is granted its size, or an equal share of
   what is left of `log_running_mib` if that is less.
2. Logs larger than that share lose their middle, as with `log_mib`.

Example: `log_running_mib` is 300, ada's three jobs have written 10, 200 and 400 MiB. The first keeps its
10 MiB; 290 MiB are left for two, so the others keep 145 MiB each.
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
"""Seconds between two checks for logs that are too old."""
_LEAST = 1 << 18
"""Bytes that each log keeps in any case, half of them from its end."""
_MIB = 1 << 20
_A_DAY = 86_400.0


@dataclass(frozen=True)
class _Logs:
    user: str
    size: int
    ended_at: float


class SettledLogs:
    """The sizes of the logs of settled attempts, oldest first."""

    def __init__(self, policy: JobPolicy) -> None:
        self._of_user = policy.log_user_mib * _MIB
        self._of_all = policy.log_node_mib * _MIB
        self._age_s = policy.log_days * _A_DAY
        self._logs: OrderedDict[AttemptKey, _Logs] = OrderedDict()
        self._users: dict[str, OrderedDict[AttemptKey, int]] = {}
        self._sums: dict[str, int] = {}
        self._sum = 0

    def add(self, key: AttemptKey, user: str, size: int, ended_at: float) -> None:
        """Count a settled attempt; called in the order of their ends."""
        self.remove(key)
        self._logs[key] = _Logs(user, size, ended_at)
        self._users.setdefault(user, OrderedDict())[key] = size
        self._sums[user] = self._sums.get(user, 0) + size
        self._sum += size

    def remove(self, key: AttemptKey) -> None:
        """Forget an attempt whose logs are deleted."""
        logs = self._logs.pop(key, None)
        if logs is None:
            return
        del self._users[logs.user][key]
        self._sums[logs.user] -= logs.size
        self._sum -= logs.size
        if not self._users[logs.user]:
            del self._users[logs.user], self._sums[logs.user]

    def take_surplus(self, now: float, user: str = "") -> Iterator[AttemptKey]:
        """Remove attempts over the limits and yield them, so that the caller deletes their logs.

        With `user` only the limit of that user is checked, besides those of all.
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
    """Bytes that each log may keep so that together they take at most `most`; None if they do already."""
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
    """The bytes on disk of an attempt's directory; 0 if it cannot be read."""
    try:
        with os.scandir(directory) as entries:
            return sum(entry.stat(follow_symlinks=False).st_blocks for entry in entries) * 512
    except OSError:
        return 0


def trim_running_logs(running: Iterable[tuple[str, str]], most: int) -> None:
    """Cut the logs of running attempts, given as (user, directory), to `most` bytes per user."""
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
