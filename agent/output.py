"""Keeping what a job writes within bounds: beginning and end stay, the middle is given back to the disk.

The job writes into its files itself, with nobody in between who could die and take the output along. The
kernel punches holes into them, so every byte keeps its place, and readers step over what is gone.
"""

from __future__ import annotations

import ctypes
import os

NAMES = ("stdout", "stderr")
HEAD = 1 << 20
_BLOCK = 4_096
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""A job may have put a pipe there that nobody reads: its supervisor must not wait for that."""
_PUNCH = 0x03  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_OFTEN_S, _SELDOM_S = 0.5, 10.0
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class Output:
    """The two logs of one attempt; `most` bytes each, 0 for as many as it likes."""

    def __init__(self, place: str, most: int) -> None:
        self._place = place
        self._most = most
        self._seen = [0, 0]

    def trim(self) -> float | None:
        """Give back what is too much; how many seconds from now to look again, None for never."""
        if not self._most:
            return None
        pause = _SELDOM_S
        for index, name in enumerate(NAMES):
            try:
                descriptor = os.open(f"{self._place}/{name}", _WRITE)
            except OSError:
                continue
            try:
                size = os.fstat(descriptor).st_size
                self._punch(descriptor, size)
            finally:
                os.close(descriptor)
            if size - self._seen[index] > self._most // 4:
                pause = _OFTEN_S
            self._seen[index] = size
        return pause

    def _punch(self, descriptor: int, size: int) -> None:
        head = min(HEAD, self._most // 4) // _BLOCK * _BLOCK
        end = (size - (self._most - head)) // _BLOCK * _BLOCK
        if size > self._most and end > head:
            _libc.fallocate(descriptor, _PUNCH, head, end - head)  # some file systems cannot; then it stays


def skip_hole(descriptor: int, offset: int) -> tuple[int, bytes]:
    """Where the next byte is that is still there, and what to show for those that are not."""
    try:
        there = max(offset, os.lseek(descriptor, offset, os.SEEK_DATA))
    except OSError:  # the end of the file, or a file system without holes
        return offset, b""
    if there - offset < _BLOCK:
        return offset, b""
    return there, b"\n[corral: %d bytes are left out here; beginning and end are kept]\n" % (there - offset)
