"""Forks of this process: how they start, which limits they get, and when they end."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")

PIECE = 1 << 16
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_LIBC = ctypes.CDLL(None, use_errno=True)


def fork() -> int:
    """As os.fork(). The child is killed when the thread that forked it ends."""
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the line above
            os._exit(1)
        gc.freeze()  # what came with the copy is not garbage, and looking at it would copy its pages
    return pid


def rename(name: str) -> None:
    """Set the process name that `ps -o comm` and `top` show."""
    _LIBC.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def detach(keep: int) -> None:
    """Let go of everything of the parent's but standard output, standard error and one descriptor.

    Descriptors are pointed at /dev/null, not closed: an object of the parent's that is freed in the copy
    would close its number, which by then might be a pipe of the copy's own.
    """
    empty = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number not in (1, 2, keep, empty):
            try:
                os.fstat(number)
            except OSError:
                continue  # the listing itself
            os.dup2(empty, number, inheritable=False)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the parent says when to end


def leave_a_core() -> None:
    """Stay off one of the cores that this process may use, if there are several: it is for the parent.

    Being nicer is not enough: on two busy cores a submit beside three questions waited 38 ms (p95).
    """
    _, *others = sorted(os.sched_getaffinity(0))
    if others:
        os.sched_setaffinity(0, others)


def limit(seconds: float, more_mib: int) -> None:
    """Limit the CPU time from now on, and the memory beyond the present size."""
    used = sum(os.times()[:2])
    most = int(used + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))
    with open("/proc/self/statm", encoding="ascii") as statm:
        there = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (there + (more_mib << 20),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def write_all(line: int, data: bytes) -> None:
    """Write everything to a blocking descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(line, view) :]


class Fork(Generic[T]):
    """Work done by a fork of this process; the result comes back through a pipe.

    The copy may change whatever it likes: nothing of that is seen here. It costs the time to copy the page
    tables (3 ms with 10,000 jobs), where copying the engine object by object takes 130 ms.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._line, theirs = os.pipe()
        self._pid = fork()
        if self._pid == 0:
            os.close(self._line)
            _work(work, theirs)
        os.close(theirs)

    def result(self, deadline: float) -> T | None:
        """The result; None if the child failed or was not done by `until` on the monotonic clock."""
        told = bytearray()
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            piece = os.read(self._line, PIECE)
            if not piece:
                break
            told += piece
        else:
            told.clear()
        self.end()
        result: T | None = pickle.loads(told) if told else None  # noqa: S301 - from a copy of this process
        return result

    def end(self) -> None:
        """Kill the child if it still runs, and reap it."""
        os.close(self._line)
        os.kill(self._pid, signal.SIGKILL)  # not collected yet, so the number is still its own
        os.waitpid(self._pid, 0)


def _work(work: Callable[[], object], line: int) -> NoReturn:
    code = 1
    try:
        write_all(line, pickle.dumps(work(), pickle.HIGHEST_PROTOCOL))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
