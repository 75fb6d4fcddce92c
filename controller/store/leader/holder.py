"""The name under which a controller process leads, and the test whether a named process has ended."""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import suppress
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def holder_of_this_process() -> str:
    """Return a new name for this process, such as `pid 41 on head1 <place> <start> <random>`.

    `<place>` is the boot id of the host with the pid namespace, and `<start>` the time at which the process
    was started, in clock ticks since boot. Two names are never equal, not even in one process.
    """
    host = socket.gethostname()[:20].replace(" ", "-")
    pid = os.getpid()
    return f"pid {pid} on {host} {_place()} {_started(pid)} {uuid.uuid4().hex[:8]}"


def shown(holder: str) -> str:
    """Return the part of the name for users: `pid 41 on head1`."""
    return " ".join(holder.split()[:4])


def session_name(holder: str) -> str:
    """Return the beginning of the names of this process's sessions on the database server."""
    return f"corral {shown(holder)} {holder.split()[-1]}"


def pid_and_host(holder: str) -> tuple[int, str]:
    """Return the pid and the host name in the name of a process."""
    words = holder.split()
    return int(words[1]), words[3]


def has_ended(holder: str) -> bool:
    """Return whether the process certainly does not run any more. False for a process on another host, or in
    another pid namespace, because this process cannot see whether such a process runs.
    """
    words = holder.split()
    if len(words) != 7 or words[4] != _place() or not words[1].isdigit():
        return False
    return _started(int(words[1])) != words[5]


def _place() -> str:
    return f"{_BOOT_ID.read_text().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"


def _started(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; "-" if no such process runs, or if the
    process has ended and was not waited for (a zombie).
    """
    with suppress(OSError):
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "-" if after_name[0] in "ZX" else after_name[19]
    return "-"
