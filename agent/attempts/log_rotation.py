"""Limits the size of the logs of running jobs, as log rotation does in other systems.

The beginning and the end of a log are kept, and the middle is deleted. The job itself writes its log files,
so its output does not depend on another process. The deleted middle becomes a hole in the file: all other
bytes keep their offsets, and readers skip the hole.

- Per log (`log_mib`): the supervisor of the attempt calls `LogTrimmer`.
- Per user (`log_running_mib`): the agent calls `trim_running_logs`.

Algorithm for the limit per user (`equal_share`)
1. Sort the logs of a user by size, the smallest first. For each log in this order, divide the space that is
   left of `log_running_mib` by the number of logs that are left. A log that is smaller than this part keeps
   its size.
2. Delete the middle of all logs that are larger than their part.

Example: `log_running_mib` is 300, and the logs of ada's three jobs have 10, 200 and 400 MiB. The first log
keeps its 10 MiB. 290 MiB are left for the other two logs, so each of these logs keeps 145 MiB.

The fork server must stay small and imports this module, so this module imports only small modules.
"""

from __future__ import annotations

import ctypes
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

STREAMS = ("stdout", "stderr")
HEAD_BYTES = 1 << 20
RUNNING_INTERVAL_S = 2.0
"""Seconds between two checks of the logs of running jobs."""
_LEAST = 1 << 18
"""The smallest size in bytes to which the limit per user cuts a log."""
_BLOCK = 4_096
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""The flags with which a log is opened. O_NONBLOCK is needed, because a job may have replaced its log with a
pipe that has no reader.
"""
_PUNCH = 0x03  # The value of FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE.
_OFTEN_S, _SELDOM_S = 0.5, 10.0
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class LogTrimmer:
    def __init__(self, directory: str, most: int) -> None:
        self._place = directory
        self._most = most
        self._seen = [0, 0]

    def trim(self) -> float | None:
        """Delete the middle of each log that is longer than the limit per log. Return the number of seconds
        until the next check; None if there is no limit.
        """
        if not self._most:
            return None
        pause = _SELDOM_S
        for index, name in enumerate(STREAMS):
            size = punch_middle(f"{self._place}/{name}", self._most)
            if size - self._seen[index] > self._most // 4:
                pause = _OFTEN_S
            self._seen[index] = size
        return pause


def punch_middle(path: str, most: int) -> int:
    """Delete the middle of a log that is longer than `most` bytes, so that about `most` bytes are left on
    disk. Return the length of the file in bytes, including the deleted middle, because a hole does not change
    the length. Return 0 if the log cannot be opened.
    """
    try:
        descriptor = os.open(path, _WRITE)
    except OSError:
        return 0
    try:
        size = os.fstat(descriptor).st_size
        head = min(HEAD_BYTES, most // 4) // _BLOCK * _BLOCK
        end = (size - (most - head)) // _BLOCK * _BLOCK
        if size > most and end > head:
            # If the file system does not support holes, fallocate fails and leaves the log unchanged.
            _libc.fallocate(descriptor, _PUNCH, head, end - head)
        return size
    finally:
        os.close(descriptor)


def skip_hole(descriptor: int, offset: int) -> tuple[int, bytes]:
    """Return the offset at which to read a log next, and a notice for the reader. If `offset` is in the
    deleted middle, the new offset is the end of the deleted middle, and the notice has the number of bytes
    left out. If `offset` is not in the deleted middle, return `offset` and an empty notice.
    """
    try:
        kept = max(offset, os.lseek(descriptor, offset, os.SEEK_DATA))
    except OSError:
        # lseek() fails if `offset` is at the end of the file, or if the file system does not support holes.
        return offset, b""
    if kept - offset < _BLOCK:
        return offset, b""
    return kept, b"\n[corral: %d bytes are left out here; beginning and end are kept]\n" % (kept - offset)


def equal_share(sizes: Iterable[int], most: int) -> int | None:
    """Return the limit for the size of each log, in bytes, with which the logs together have at most `most`
    bytes. Larger logs must be cut to this limit, which is at least _LEAST. Return None if no log must be cut.
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


def trim_running_logs(running: Iterable[tuple[str, str]], most: int) -> None:
    """Delete the middle of logs of running attempts, so that each user's logs together have at most `most`
    bytes on disk. `running` has a pair (user, directory) for each attempt.
    """
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
