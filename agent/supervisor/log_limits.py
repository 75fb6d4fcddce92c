"""Limits the size of a job's logs: the beginning and the end are kept, and the middle is deleted.

The job itself writes its log files, so its output does not depend on another process. The middle becomes a
hole in the file: all other bytes keep their offsets, and readers skip the hole.
"""

from __future__ import annotations

import ctypes
import os

STREAMS = ("stdout", "stderr")
HEAD_BYTES = 1 << 20
_BLOCK = 4_096
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""The flags have O_NONBLOCK, because a job may have replaced its log with a pipe that has no reader."""
_PUNCH = 0x03  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_OFTEN_S, _SELDOM_S = 0.5, 10.0
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class LogTrimmer:
    """Limits each of the two logs of one attempt to `most` bytes. 0 means no limit."""

    def __init__(self, directory: str, most: int) -> None:
        self._place = directory
        self._most = most
        self._seen = [0, 0]

    def trim(self) -> float | None:
        """Trim both logs. Returns the number of seconds until the next check, or None if there is no
        limit.
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
    """Delete the middle of a log that is longer than `most` bytes. Returns the length of the log; 0 if it
    cannot be opened.
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
            _libc.fallocate(descriptor, _PUNCH, head, end - head)  # Fails if the file system has no holes.
        return size
    finally:
        os.close(descriptor)


def skip_hole(descriptor: int, offset: int) -> tuple[int, bytes]:
    """The offset of the next byte that was kept, and a notice to show in place of deleted bytes."""
    try:
        kept = max(offset, os.lseek(descriptor, offset, os.SEEK_DATA))
    except OSError:  # The offset is the end of the file, or the file system has no holes.
        return offset, b""
    if kept - offset < _BLOCK:
        return offset, b""
    return kept, b"\n[corral: %d bytes are left out here; beginning and end are kept]\n" % (kept - offset)
