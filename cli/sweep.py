"""Every process that descends from this one, however far it has run: proof enough to end it."""

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
    """From now on, what loses its parent below us becomes our child, not init's."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap(ours: Collection[int]) -> None:
    """Put orphans to rest that have ended; the children in `ours` are somebody else's to wait for."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in ours:
            return
        os.waitpid(ended.si_pid, 0)


def end_descendants(patience_s: float) -> bool:
    """Let every descendant end by itself, then kill what is left; True if nothing had to be killed."""
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
    """All processes below this one."""
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
        # The handle keeps the number from meaning another process: is it still below us?
        if pid in descendants():
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may hold anything, parentheses and spaces too.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return -1  # gone
