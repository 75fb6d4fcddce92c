"""Finds and ends all descendant processes of this process, also those in other sessions."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Collection

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make this process the new parent of orphaned descendants, in place of init."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(ours: Collection[int]) -> None:
    """Reap orphans that have ended, except the child processes in `ours`, because their callers wait for
    these.
    """
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in ours:
            return
        os.waitpid(ended.si_pid, 0)


def end_descendants(patience_s: float) -> bool:
    """Wait until all descendants have ended, then kill those that still run. Returns True if none had to be
    killed.
    """
    deadline = time.monotonic() + patience_s
    by_themselves = True
    while True:
        reap(())
        left = descendants()
        if not left:
            return by_themselves
        if time.monotonic() > deadline:
            by_themselves = False
            for pid in left:
                _kill(pid)
        time.sleep(0.02)


def descendants() -> set[int]:
    """The process ids of all descendants of this process."""
    children = defaultdict(set)
    for name in os.listdir("/proc") if sys.platform == "linux" else []:
        if name.isdigit():
            children[_parent(int(name))].add(int(name))
    found: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        new = children[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def _kill(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # Check again after opening the pidfd, because the process id may belong to another process by now.
        if pid in descendants():
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # Split after the last parenthesis, because the process name may contain parentheses and spaces.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return -1  # the process has ended
