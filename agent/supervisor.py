"""One process per attempt: starts the job, outlives agent and link, ends all of it, records the outcome.

What it does depends only on the record: nothing there yet, run the job; claimed but not ended, the supervisor
before this one was lost, so end what is left; ended, say so again. Handing an attempt to the nursery is
therefore right at any time, and twice is as good as once.
"""

from __future__ import annotations

import os
import signal
import time

from agent import record, tree
from agent.job import NotStarted, start
from agent.launch import Launch

_WAKING = (signal.SIGCHLD, signal.SIGTERM)
_A_DAY = 86_400.0
_SWEEPS = (0.01, 1.0)
_RETRY_S = 0.5
LOST = "supervisor_lost"


class Supervisor:
    """The life of one attempt. All moments are monotonic, None while nothing is planned."""

    def __init__(self, launch: Launch, hints: int, boot: str) -> None:
        self.launch = launch
        self.hints = hints
        self.boot = boot
        self.descriptor = -1
        self.end = 0
        self.unsaid = b""
        self.tasks: dict[int, int | None] = {}
        self.status: int | None = None
        self.why = ""
        self.cpu_s = 0.0
        self.rss_mib = 0
        self.limit_at: float | None = None
        self.kill_at: float | None = None
        self.ending = False
        self.pause = _SWEEPS[0]

    def run(self) -> None:
        """Take the attempt from wherever its record says it is to its end."""
        self.descriptor = os.open(f"{self.launch.place}/record", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        if not record.hold(self.descriptor):
            return
        written = record.written(self.descriptor)
        self.end = len(written)
        known = record.facts(written)
        here = known[0][1] == self.boot
        if known[-1][0] == "ended":
            self._say(record.line(*known[-1]))
        elif not here:
            self._give_up(f"{LOST}: the host rebooted")
        elif known[-1][0] == "order":
            self._run_job()
        else:
            self._end_strays(known)

    # --- the usual life ---

    def _run_job(self) -> None:
        tree.become_subreaper(self.launch.key)
        self._write(record.line("claimed", os.getpid()))
        self._read_stop()
        if self.why:
            self._conclude()
            return
        try:
            self._start()
        except NotStarted as error:
            self.why = f"launch_failed: {error}"
            self._begin_ending(0.0)  # of several tasks some may run
        while self._reap():
            self._wait()
        self._conclude()

    def _start(self) -> None:
        if self.launch.cpus:
            os.sched_setaffinity(0, self.launch.cpus)
        for task in self.launch.tasks:
            self.tasks[start(self.launch, task)] = None
        first = next(iter(self.tasks))
        if self.launch.limit_s is not None:
            self.limit_at = time.monotonic() + self.launch.limit_s
        started = record.line("started", first, tree.start_ticks(first), f"{time.time():.6f}")
        self._write(started)
        self._say(started)

    def _reap(self) -> bool:
        """Collect the dead; False once nothing of the attempt is left, which the kernel proves."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                break
            self.cpu_s += usage.ru_utime + usage.ru_stime
            self.rss_mib = max(self.rss_mib, usage.ru_maxrss // 1024)
            if pid in self.tasks:
                self.tasks[pid] = status
                self.status = self.status or status  # the first that failed speaks for all
        if not self.ending and self._over():
            self._begin_ending(self.launch.grace_s)  # the job is over, but left something behind
        return True

    def _over(self) -> bool:
        """Have all tasks ended, or one of them so that the others are of no use?"""
        return bool(self.status) or None not in self.tasks.values()

    def _wait(self) -> None:
        """Sleep until a child dies, a stop is ordered or a moment has come; see to the last two."""
        retry_at = time.monotonic() + _RETRY_S if self.unsaid else None
        moments = [moment for moment in (self.limit_at, self.kill_at, retry_at) if moment is not None]
        pause = min(moments) - time.monotonic() if moments else _A_DAY
        woken = signal.sigtimedwait(_WAKING, max(0.0, min(pause, _A_DAY)))
        if woken is not None and woken.si_signo == signal.SIGTERM:
            self._read_stop(default=LOST)
        if self.unsaid:
            self._say(self.unsaid)
        now = time.monotonic()
        if self.limit_at is not None and now >= self.limit_at:
            self.limit_at = None
            self.why = self.why or "time_limit"
            self._begin_ending(self.launch.grace_s)
        if self.kill_at is not None and now >= self.kill_at:
            tree.send(tree.descendants(os.getpid()), signal.SIGKILL)
            self.kill_at = now + self.pause
            self.pause = min(self.pause * 2, _SWEEPS[1])

    def _begin_ending(self, grace_s: float) -> None:
        """SIGTERM to everything now, SIGKILL when the grace is over; a later order may shorten the grace."""
        kill_at = time.monotonic() + grace_s
        if not self.ending and grace_s > 0:
            tree.send(tree.descendants(os.getpid()), signal.SIGTERM)
        self.ending = True
        self.kill_at = kill_at if self.kill_at is None else min(kill_at, self.kill_at)

    def _read_stop(self, default: str = "") -> None:
        """The order to stop stands in a file, so that it outlives the agent that wrote it."""
        try:
            with open(f"{self.launch.place}/stop", encoding="utf-8") as file:
                grace, _, why = file.read().partition(" ")
        except FileNotFoundError:
            if not default:
                return
            grace, why = str(self.launch.grace_s), default
        self.why = self.why or why
        if self.tasks:
            self._begin_ending(float(grace))

    def _conclude(self) -> None:
        code = number = None
        if self.status is not None and os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
        elif self.status is not None:
            code = os.WEXITSTATUS(self.status)
        line = record.ended(time.time(), code, number, self.cpu_s, self.rss_mib, self.why)
        self._write(line)
        self._say(line)

    # --- after a supervisor was lost ---

    def _end_strays(self, known: list[list[str]]) -> None:
        """End what a lost supervisor left; what the job returned is unknown and stays so."""
        started = next((fact for fact in known if fact[0] == "started"), None)
        leader, ticks = (int(started[1]), int(started[2])) if started else (None, None)
        empty = 0
        while empty < 2:  # one look at /proc may miss a process that is just being forked
            pids = tree.strays(self.launch.place, self.launch.key, leader, ticks)
            empty = 0 if pids else empty + 1
            tree.send([below for pid in pids for below in tree.descendants(pid)] + pids, signal.SIGKILL)
            time.sleep(self.pause)
            self.pause = min(self.pause * 2, _SWEEPS[1])
        self._give_up(known[1][2] if len(known[1]) > 2 else LOST)

    # --- telling ---

    def _give_up(self, why: str) -> None:
        self.why = why
        self._conclude()

    def _write(self, line: bytes) -> None:
        """Add a fact to the record; where that fails it is waited out, for nothing may be lost."""
        while True:
            try:
                os.pwrite(self.descriptor, line, self.end)
                break
            except OSError:
                time.sleep(_RETRY_S)
        self.end += len(line)

    def _say(self, line: bytes) -> None:
        """Hint the agent at a fact; the record is the truth, so it is no loss if nobody listens."""
        self.unsaid = b""
        try:
            os.write(self.hints, self.launch.key.encode() + b" " + line)
        except BlockingIOError:
            self.unsaid = line
        except OSError:
            pass  # no agent at the moment; the next one reads the record
