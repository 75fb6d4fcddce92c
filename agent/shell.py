"""Becoming a command in a job's allocation: its user, environment, directory, CPUs and control groups.

Runs in a process of its own between the agent and the command, and is gone when that has begun.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios

from agent import job, launch
from agent.binding import bind
from agent.group import Group

CANNOT_RUN = 127


def main(descriptor: str, terminal: str) -> None:
    """Read what to run from a descriptor, and run it; never returns."""
    try:
        with open(int(descriptor), "rb") as file:
            taken = launch.take(bytearray(file.read()))
        assert taken is not None
        if terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if taken.user is not None:
                os.fchown(0, taken.user[0], -1)
        Group(taken.groups).enter()
        bind(taken.cpus, taken.numa)
        job.change_user(taken)
        os.umask(0o022)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        job.execute(taken)
    except (OSError, job.NotStarted) as error:
        sys.stderr.write(f"corral: {error}\n")
        sys.stderr.flush()
    os._exit(CANNOT_RUN)
