"""Finds and ends all descendant processes of this process, including those in other sessions."""

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
    """Make this process the parent of orphaned descendants. Otherwise init would be their parent."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(children: Collection[int]) -> None:
    """Collect the exit status of orphan processes that have ended. Stop at an ended process whose id is in
    `children`, because other code waits for that process.
    """
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in children:
            return
        os.waitpid(ended.si_pid, 0)


def end_descendants(patience_s: float) -> bool:
    """Wait until all descendants have ended. Kill the descendants that still run after `patience_s` seconds.
    Return True if no process was killed.
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
        # Check again that the process is a descendant, because another process may have got its process id
        # before the pidfd was opened.
        if pid in descendants():
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # Split after the last parenthesis, because the name of the process may contain parentheses and
            # spaces.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return -1  # The process has ended.
