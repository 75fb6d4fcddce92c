"""One process per attempt: starts the job, outlives agent and link, ends all of it, records the outcome.

What it does depends only on the record: nothing there yet, run the job; claimed but not ended, the supervisor
before this one was lost, so end what is left; ended, say so again. Handing an attempt to the nursery is
therefore right at any time, and twice is as good as once.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from agent import checkpoints, containment, hooks, lease, record, scratch, tree
from agent.binding import bind
from agent.group import Group
from agent.job import NotStarted, complain, rehearse, start
from agent.launch import Launch
from agent.output import Output
from agent.scratch import Measure

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
        self.group = Group(launch.groups)
        self.output = Output(launch.place, launch.log_bytes)
        self.descriptor = -1
        self.end = 0
        self.unsaid = b""
        self.tasks: dict[int, int | None] = {}
        self.status: int | None = None
        self.why = ""
        self.cpu_s = 0.0
        self.rss_mib = 0
        self.warn_at: float | None = None
        self.lease_at: float | None = None
        self.limit_at: float | None = None
        self.term_at: float | None = None
        self.kill_at: float | None = None
        self.look_at: float | None = None
        self.measure = Measure(launch.scratch, launch.scratch_mib) if launch.scratch else None
        self.measure_at: float | None = None
        self.overfilled = False
        self.saver: int | None = None
        self.heard = False
        self.doubt: float | None = None
        self.sure = True
        self.grace_s = launch.grace_s
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
            self._say(*(record.line(*fact) for fact in known if fact[0] in ("checkpoint", "ended")))
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
        self._heed_lease()
        if self.why:
            self._conclude()
            return
        try:
            self._prepare()
            if not self.why:
                self._start()
        except NotStarted as error:
            self.why = f"launch_failed: {error}"
            self._begin_ending(0.0)  # of several tasks some may run
        while self._reap():
            self._wait()
        self._conclude()

    def _prepare(self) -> None:
        """The site's prolog, which may also be stopped; what it leaves behind ends with the job."""
        launch = self.launch
        if launch.scratch:
            try:
                scratch.make(launch.scratch, launch.user)
            except scratch.Refused as error:
                raise NotStarted(str(error)) from None
        wrong = hooks.run(
            "prolog", launch.prolog, launch.hook_env, launch.place, launch.hook_s, self._stop_came
        )
        if wrong and not self.why:
            raise NotStarted(wrong)
        if launch.barrier and not self.why:
            rehearse(launch)
            self._await_go()
        self._heed_lease()  # it may have run out meanwhile
        if self.why:
            self._begin_ending(0.0)

    def _await_go(self) -> None:
        """Say that we are ready, and wait until all are, or are wanted no more."""
        ready = record.line("ready")
        self._write(ready)
        self._say(ready)
        while not self.why and not os.path.exists(f"{self.launch.place}/go"):
            self._heed_lease()
            left = _A_DAY if self.lease_at is None else self.lease_at - time.monotonic()
            left = min(left, _RETRY_S) if self.unsaid else left
            woken = signal.sigtimedwait(_WAKING, max(0.0, left))
            if self.unsaid:
                self._say()
            if woken is not None and woken.si_signo == signal.SIGTERM:
                self._read_stop()

    def _stop_came(self) -> bool:
        self._read_stop(default="" if self.launch.barrier else LOST)
        return bool(self.why)

    def _start(self) -> None:
        try:
            bind(self.launch.cpus, self.launch.numa)
            self.group.make()
        except OSError as error:
            raise NotStarted(f"cannot hold the job to its CPUs and memory: {error}") from None
        wraps = self.launch.wraps
        for number, task in enumerate(self.launch.tasks):
            argv = [*wraps[number], *self.launch.argv] if wraps else self.launch.argv
            self.tasks[start(self.launch, self.group, argv, task)] = None
        first = next(iter(self.tasks))
        if self.launch.limit_s is not None:
            self.limit_at = time.monotonic() + self.launch.limit_s
            if self.launch.warn:
                self.warn_at = self.limit_at - self.launch.warn[1]
        self.look_at = time.monotonic()
        self.measure_at = self.look_at if self.measure is not None else None
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
            elif pid == self.saver:
                self._saver_ended(status)
        if not self.ending and self._over() and self.saver is None:
            self._begin_ending(self.launch.grace_s)  # the job is over, but left something behind
        return True

    def _over(self) -> bool:
        """Have all tasks ended, or one of them so that the others are of no use?"""
        return bool(self.status) or None not in self.tasks.values()

    def _wait(self) -> None:
        """Sleep until a child dies, a stop is ordered or a moment has come; see to the last two."""
        retry_at = time.monotonic() + _RETRY_S if self.unsaid else None
        planned = (
            self.warn_at,
            self.lease_at,
            self.limit_at,
            self.term_at,
            self.kill_at,
            self.look_at,
            self.measure_at,
            retry_at,
        )
        moments = [moment for moment in planned if moment is not None]
        pause = min(moments) - time.monotonic() if moments else _A_DAY
        woken = signal.sigtimedwait(_WAKING, max(0.0, min(pause, _A_DAY)))
        if woken is not None and woken.si_signo == signal.SIGTERM:
            self._read_stop(default="" if self.launch.barrier else LOST)  # who waited is woken to start, too
        if self.unsaid:
            self._say()
        self._see_to(time.monotonic())

    def _see_to(self, now: float) -> None:
        """Do what was planned for a moment that has come."""
        if self.look_at is not None and now >= self.look_at:
            pause = self.output.trim()
            self.look_at = None if pause is None else now + pause
        if self.measure is not None and self.measure_at is not None and now >= self.measure_at:
            self._look_at_scratch(self.measure, now)
        if self.warn_at is not None and now >= self.warn_at and self.launch.warn:
            self.warn_at = None
            self._tell_listeners(self.launch.warn[0])
        if self.term_at is not None and now >= self.term_at:
            self.sure = self.sure and self.saver is None
            self._begin_ending(self.grace_s)
        if self.lease_at is not None and now >= self.lease_at:
            self._heed_lease()
        if self.limit_at is not None and now >= self.limit_at:
            self.limit_at = None
            self.why = self.why or "time_limit"
            self._begin_ending(self.launch.grace_s)
        if self.kill_at is not None and now >= self.kill_at:
            self.sure = self.sure and None not in self.tasks.values()
            self.group.kill()
            tree.send(tree.descendants(os.getpid()), signal.SIGKILL)
            self.kill_at = now + self.pause
            self.pause = min(self.pause * 2, _SWEEPS[1])

    def _look_at_scratch(self, measure: Measure, now: float) -> None:
        """Count some more of it; too much ends the job or is told, once."""
        before = measure.size
        self.measure_at = now + measure.step()
        if measure.size != before:
            scratch.note(self.launch.place, measure.size)
        if not measure.over or self.overfilled:
            return
        self.overfilled = True
        told = f"it filled more than the {self.launch.scratch_mib} MiB of scratch that it asked for"
        if self.launch.scratch_end:
            self.why = self.why or f"scratch_exceeded: {told}"
            self._begin_ending(self.launch.grace_s)
        else:
            complain(self.launch.place, told)

    def _heed_lease(self) -> None:
        """Is the lease over, or when might it be? Renewals in between are found out then."""
        self.lease_at = None
        if self.launch.lease_s is None:
            return
        spool = os.path.dirname(os.path.dirname(self.launch.place))
        left = lease.renewed(spool, self.boot) + self.launch.lease_s - lease.clock()
        if left > 0:
            self.lease_at = time.monotonic() + left
            return
        self.why = self.why or lease.OVER
        if self.tasks:
            self._begin_ending(self.launch.grace_s)

    def _begin_ending(self, grace_s: float) -> None:
        """SIGTERM to everything now, SIGKILL when the grace is over; a later order may shorten the grace."""
        kill_at = time.monotonic() + grace_s
        if not self.ending and grace_s > 0:
            below = tree.descendants(os.getpid())
            # A runtime that is told to end lets its container go on, unless it is a daemon's.
            tree.send((containment.inside(below) if self.launch.wraps else below) or below, signal.SIGTERM)
        self.ending, self.term_at = True, None
        self.doubt = self.doubt or time.time()
        self.kill_at = kill_at if self.kill_at is None else min(kill_at, self.kill_at)

    def _read_stop(self, default: str = "") -> None:
        """The order to stop stands in a file, so that it outlives the agent that wrote it."""
        try:
            with open(f"{self.launch.place}/stop", encoding="utf-8") as file:
                grace, saving, why = file.read().split(" ", 2)
        except FileNotFoundError:
            if not default:
                return
            grace, saving, why = str(self.launch.grace_s), "0", default
        self.why = self.why or why
        if self.tasks:
            self._stop(float(grace), float(saving))

    def _stop(self, grace_s: float, saving_s: float) -> None:
        """Let the job save its state first, if that is wanted and it can."""
        if self.ending or saving_s <= 0:
            self._begin_ending(grace_s)
            return
        term_at = time.monotonic() + saving_s
        if self.term_at is None:
            self.grace_s, self.doubt = grace_s, time.time()
            self._save()
        if not self.ending:
            self.grace_s = min(self.grace_s, grace_s)
            self.term_at = term_at if self.term_at is None else min(term_at, self.term_at)

    def _save(self) -> None:
        """Signal those who listen, run the command; if nobody is there to save anything, go on at once."""
        launch = self.launch
        if launch.checkpoint_signal:
            self.heard = self._tell_listeners(launch.checkpoint_signal)
        if launch.checkpoint_command:
            try:
                first = str(next(iter(self.tasks)))
                command = [*launch.inside, *launch.checkpoint_command]
                self.saver = start(launch, self.group, command, {"CORRAL_JOB_PID": first})
            except NotStarted as error:
                complain(launch.place, f"no checkpoint was made: {error}")
        if not self.heard and self.saver is None:
            self._begin_ending(self.grace_s)

    def _saver_ended(self, status: int) -> None:
        self.saver = None
        if status:
            self.sure = False
            how = "exit code" if os.WIFEXITED(status) else "signal"
            number = os.WEXITSTATUS(status) if os.WIFEXITED(status) else os.WTERMSIG(status)
            complain(self.launch.place, f"the checkpoint command failed with {how} {number}")
        if not self.heard and not self.ending:
            self._begin_ending(self.grace_s)

    def _tell_listeners(self, number: int) -> bool:
        """Signal those who have a handler for it; it would kill all others."""
        below = tree.descendants(os.getpid())
        listeners = tree.listening(containment.inside(below) if self.launch.wraps else below, number)
        tree.send(listeners, number)
        return bool(listeners)

    def _conclude(self) -> None:
        code = number = None
        if self.status is not None and os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
        elif self.status is not None:
            code = os.WEXITSTATUS(self.status)
        if not self.why and self.status and self.group.overran():
            own = self.launch.memory_mib
            self.why = (
                f"out_of_memory: {f'it needed more than its {own} MiB' if own else 'the host had no more'}"
            )
        if self.launch.wraps:
            if self.status and not self.why:
                self.why = containment.verdict(self.launch, code, self.rss_mib)
            containment.clear(self.launch)
        self._empty_group()
        self.output.trim()
        self._clean_up()
        lines = [record.ended(time.time(), code, number, self.cpu_s, self.rss_mib, self.why)]
        saved = self._saved()
        if saved is not None:
            at, size, path = saved
            lines.insert(0, record.line("checkpoint", f"{at:.6f}", size, path))
        self._write(b"".join(lines))
        self._say(*lines)

    def _empty_group(self) -> None:
        """Whoever came into the group from outside, a shell for one, goes with the attempt."""
        while not self.group.remove():
            self.group.kill()
            tree.send(self.group.members(), signal.SIGKILL)
            time.sleep(self.pause)
            self.pause = min(self.pause * 2, _SWEEPS[1])

    def _clean_up(self) -> None:
        """The site's epilog: its failure is the site's trouble, and told in its log; the outcome stands."""
        launch = self.launch
        wrong = hooks.run(
            "epilog", launch.epilog, launch.hook_env, launch.place, launch.hook_s, lambda: False
        )
        if wrong:
            print(f"{launch.key}: {wrong}", file=sys.stderr)
        if launch.epilog:
            tree.send(tree.descendants(os.getpid()), signal.SIGKILL)
        if launch.scratch and not scratch.remove(launch.scratch):
            complain(launch.place, f"the scratch directory {launch.scratch} could not be removed")
            print(f"{launch.key}: {launch.scratch} could not be removed", file=sys.stderr)

    def _saved(self) -> checkpoints.Saved | None:
        """What the job saved; if something had to be killed, only what is older than the wish to end it."""
        if not (self.tasks and self.launch.checkpoint_dir):
            return None
        return checkpoints.look(self.launch, None if self.sure else self.doubt)

    # --- after a supervisor was lost ---

    def _end_strays(self, known: list[list[str]]) -> None:
        """End what a lost supervisor left; what the job returned is unknown and stays so."""
        started = next((fact for fact in known if fact[0] == "started"), None)
        leader, ticks = (int(started[1]), int(started[2])) if started else (None, None)
        empty = 0
        while empty < 2:  # one look at /proc may miss a process that is just being forked
            pids = tree.strays(self.launch.place, self.launch.key, leader, ticks)
            pids += self.group.members()
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

    def _say(self, *lines: bytes) -> None:
        """Hint the agent at facts; the record is the truth, so it is no loss if nobody listens."""
        said = b"".join(self.launch.key.encode() + b" " + line for line in lines) or self.unsaid
        self.unsaid = b""
        try:
            os.write(self.hints, said)
        except BlockingIOError:
            self.unsaid = said
        except OSError:
            pass  # no agent at the moment; the next one reads the record
