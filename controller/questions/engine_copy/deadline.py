"""The time limit of a question: a time on the clock, and the CPU time that each process gets at least."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

CPU_FRACTION = 0.15
"""The fraction of the time limit that each process of a question gets as CPU time."""
BUSY_FACTOR = 4.0
MOST_EXTRA_S = 8.0
"""On a busy machine a question may take BUSY_FACTOR times its time limit, but at most MOST_EXTRA_S seconds
more than its time limit.
"""


def busy_limit_s(seconds: float) -> float:
    """Return the longest time in seconds that a question with the time limit `seconds` may take."""
    return min(seconds * BUSY_FACTOR, seconds + MOST_EXTRA_S)


@dataclass(frozen=True, slots=True)
class Deadline:
    """Decides when the processes of a question must stop.

    1. Before `soonest` every process continues.
    2. After `soonest` a process continues until it has used `cpu_s` seconds of CPU time. The reason: these
       processes have a low priority. On a busy machine they get little CPU time before `soonest`, and could
       not answer even for a cluster with two jobs.
    3. At `latest` every process stops.

    With a limit of 2 s, a process that has a core for itself has used its 0.3 s of CPU time long before
    `soonest`, and stops after 2 s. A process that gets 5 % of a core has used 0.1 s after 2 s. This process
    continues for 4 s more, until it has used 0.3 s.
    """

    soonest: float
    latest: float
    """`soonest` and `latest` are seconds of time.monotonic()."""
    cpu_s: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline of a question that begins now and has a time limit of `seconds`."""
        now = time.monotonic()
        return cls(now + seconds, now + busy_limit_s(seconds), seconds * CPU_FRACTION)

    def later(self, seconds: float) -> Deadline:
        return replace(self, soonest=self.soonest + seconds, latest=self.latest + seconds)

    def left(self, pid: int = 0) -> float:
        """Return the number of seconds for which process `pid` (0: this process) can continue at least, or 0
        if the process must stop now.

        The CPU time of a process grows at most as fast as the clock, so the process can continue at least for
        the CPU time that it has not used.
        """
        now = time.monotonic()
        if now < self.soonest:
            return self.soonest - now
        if now >= self.latest:
            return 0.0
        used = time.clock_gettime(_cpu_clock(pid)) if pid else time.process_time()
        return min(max(0.0, self.cpu_s - used), self.latest - now)


def _cpu_clock(pid: int) -> int:
    """Return the id of the clock of a process's CPU time, as clock_getcpuclockid(3) computes it on Linux."""
    return (~pid << 3) | 2
