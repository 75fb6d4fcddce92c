"""Input that is piped to a command, such as the data of `echo data | corral run -- cat`."""

from __future__ import annotations

import array
import fcntl
import os
import stat
import termios


def has_unread_input(descriptor: int = 0) -> bool:
    """Whether a pipe, socket or file holds data now. A terminal or an empty pipe does not."""
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            return status.st_size > os.lseek(descriptor, 0, os.SEEK_CUR)
        if stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode):
            count = array.array("i", [0])
            fcntl.ioctl(descriptor, termios.FIONREAD, count)
            return count[0] > 0
    except OSError:  # closed
        pass
    return False
