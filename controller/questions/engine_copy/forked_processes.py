"""Forks processes from the current process, limits the resources of the forks, and ends the forks."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import pickle
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

from controller.questions.engine_copy.deadline import Deadline

T = TypeVar("T")

PIECE = 1 << 16
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_LIBC = ctypes.CDLL(None, use_errno=True)


def fork() -> int:
    """Fork this process as os.fork() does. The kernel kills the child when the forking thread ends."""
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # Exit if the parent ended before the call of prctl, because the kernel then sends no signal at the
        # end of the parent.
        if os.getppid() != parent:
            os._exit(1)
        # Exempt the parent's objects from garbage collection. Garbage collection would write to the memory
        # pages of these objects, and the kernel would then copy the pages.
        gc.freeze()
    return pid


def rename(name: str) -> None:
    """Set the process name that `ps -o comm` and `top` show."""
    _LIBC.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def detach(keep: int) -> None:
    """Redirect all file descriptors of this forked process to /dev/null, except stdout, stderr and `keep`.

    The descriptors are not closed, because a new file could get the number of a closed descriptor, and Python
    would close the new file when it frees the object of the old file.
    """
    empty = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number not in (1, 2, keep, empty):
            try:
                os.fstat(number)
            except OSError:
                # Skip the descriptor with which listdir() read the directory, because this descriptor is
                # closed now.
                continue
            os.dup2(empty, number, inheritable=False)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Ignore Ctrl-C, which the terminal sends to all processes of the group. The parent ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def leave_a_core() -> None:
    """Keep this process off the first CPU core if there are several cores, so that the first core is free for
    the parent process.

    A higher nice value alone is not enough: with it, a submit took 38 ms (95th percentile) while three
    questions were answered on two cores.
    """
    _, *others = sorted(os.sched_getaffinity(0))
    if others:
        os.sched_setaffinity(0, others)


def limit(seconds: float, more_mib: int) -> None:
    """Allow this process `seconds` of CPU time and `more_mib` MiB of memory in addition to what it has used
    already. Turn core dumps off.
    """
    used = sum(os.times()[:2])
    most = int(used + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))
    with open("/proc/self/statm", encoding="ascii") as statm:
        there = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (there + (more_mib << 20),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def write_all(line: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(line, view) :]


class Fork(Generic[T]):
    """Runs a function in a fork of this process, and receives the result through a pipe.

    Changes that the function makes to objects have no effect in this process. The fork takes 3 ms with 10,000
    jobs; copying the engine object by object would take 130 ms.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._line, theirs = os.pipe()
        self._pid = fork()
        if self._pid == 0:
            os.close(self._line)
            _work(work, theirs)
        os.close(theirs)

    def result(self, deadline: Deadline) -> T | None:
        """Wait for the result. Return None if the function failed or is not done at the deadline."""
        received = bytearray()
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        while True:
            left = deadline.left(self._pid)
            # poll() takes whole milliseconds. Round up, because 0 ms would make this loop busy.
            if poll.poll(math.ceil(left * 1000)):
                piece = os.read(self._line, PIECE)
                if not piece:
                    break
                received += piece
            elif not left:
                received.clear()
                break
        self.end()
        result: T | None = pickle.loads(received) if received else None  # noqa: S301 - from a copy of this process
        return result

    def end(self) -> None:
        """Kill the child if the child still runs, and collect its exit status."""
        os.close(self._line)
        # The kill cannot hit another process, because the kernel reuses the pid only after the exit status is
        # collected.
        os.kill(self._pid, signal.SIGKILL)
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
