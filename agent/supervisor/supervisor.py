"""The supervisor of one attempt: it starts the job, ends the job and records the end. The supervisor does not
need a running agent.
"""

from __future__ import annotations

import os
import signal
import time

from agent.attempts import attempt_record
from agent.attempts.launch.launch_spec import LaunchSpec
from agent.attempts.log_rotation import LogTrimmer
from agent.isolation import scratch
from agent.isolation.attempt_cgroup import AttemptCgroup
from agent.isolation.scratch import ScratchMeter
from agent.processes import process_tree
from agent.processes.cpu_binding import bind_process
from agent.supervisor import ending, hooks
from agent.supervisor.after_exit import LOST, SWEEP_PAUSES_S, end_lost_attempt, finish_attempt
from agent.supervisor.container_ends import confirm_ends
from agent.supervisor.preparation import choose_port, find_checkpoint
from agent.supervisor.record_writer import RETRY_S, RecordWriter
from agent.supervisor.task_process import TaskNotStarted, check_start, start_task, write_notice

_WAKING = (signal.SIGCHLD, signal.SIGTERM)
_A_DAY = 86_400.0


class Supervisor:
    """Runs one attempt from its start to its end, in one process.

    The actions depend only on the record of the attempt. Therefore a second supervisor does no harm:
    - the record is locked by another supervisor: exit;
    - `ended` is recorded: send the end to the agent again;
    - the record was written before the last boot: record `supervisor_lost`;
    - the record has only the order: run the job, see below;
    - the record has other facts: the earlier supervisor was lost. Kill the processes that are left and record
      `supervisor_lost`.

    Life of a job
    1. Become a subreaper, so that every process of the job stays a descendant. Record `claimed`.
    2. Create the scratch directory, run the prolog, find a free port and the checkpoint from which the job
       resumes. A gang member records `ready` and waits for the file `go`.
    3. Enter the cgroup, start the tasks, record `started`.
    4. Sleep until a child exits, until SIGTERM shows that a stop order was written, or until the time of a
       planned action: warning, time limit, end of the lease, log or scratch check, SIGTERM or SIGKILL.
    5. End the job when a task has failed or all tasks have ended: send SIGTERM to the processes that are
       left, and SIGKILL after the grace.
    6. When wait() reports that no child is left, no process of the job is left. Remove containers and cgroup,
       run the epilog, remove the scratch directory, find the newest checkpoint.
    7. Record `ended` with exit code, signal, usage and reason, send this line as a hint, and exit with code
       0.

    For a stop order with `checkpoint_s`, first send the checkpoint signal or run the checkpoint command
    (ending.py), then continue at step 5.

    Invariants
    - A fact is in the record before its hint is sent. Hints may be lost.
    - `ended` is recorded only when no process of the attempt is left.
    - This process exits with code 0 only if `ended` is recorded. The fork server relies on this.
    Cost: one process that shares most memory with the fork server. The process runs only at the events of
    step 4.

    Example: attempt 7.1 starts a daemon with setsid and exits with code 0. The daemon gets SIGTERM, and
    SIGKILL after 10 s. Only then `ended ... 0` is recorded and the GPUs are free.

    All `..._at` attributes are times of the monotonic clock; None means that no action is planned.
    """

    def __init__(self, launch: LaunchSpec, hints: int, boot: str) -> None:
        self.launch = launch
        self.boot = boot
        self.cgroup = AttemptCgroup(launch.cgroups)
        self.log_trimmer = LogTrimmer(launch.directory, launch.log_bytes)
        self.record = RecordWriter(launch.directory, launch.key, hints)

        self.tasks: dict[int, int | None] = {}
        """A dict from pid of a task to its exit status; None while the task runs."""
        self.task_numbers: dict[int, int] = {}
        self.unconfirmed: dict[int, int] = {}
        """A dict from pid to exit status, of each container client (such as `docker run`) that has exited
        although its container may still run.
        """
        self.exit_status: int | None = None
        """The exit status of the first task that failed; 0 if tasks have ended and none of them has failed;
        None if no task has ended.
        """
        self.why = ""
        self.cpu_s = 0.0
        self.rss_mib = 0

        self.ending = False
        """Whether the end of the job has begun: the processes got SIGTERM, or SIGKILL is due now because the
        grace is 0.
        """
        self.killing = False
        self.grace_s = launch.grace_s
        self.sweep_pause_s = SWEEP_PAUSES_S[0]
        self.engine_pause_s = SWEEP_PAUSES_S[0]
        self.engine_was_away = False
        """Whether the container engine may have been restarted while the job ran."""
        self.checkpoint_pid: int | None = None
        """The pid of the running checkpoint command."""
        self.checkpoint_signalled = False
        self.end_requested_at: float | None = None
        """Unix time at which the end of the job was requested; None before. If the job is killed, checkpoints
        that were written after this time may be incomplete.
        """
        self.ended_in_time = True
        """False if a task or the checkpoint command had to be killed, or if the checkpoint command failed."""
        self.scratch_meter = (
            ScratchMeter(launch.scratch_dir, launch.scratch_mib) if launch.scratch_dir else None
        )
        self.scratch_full = False
        self.notices: set[str] = set()

        self.started_at = 0.0
        """The monotonic time from which the time limit counts."""
        self.limit_s: float | None = None
        """The time limit in seconds from which `limit_at` and `warn_at` are computed."""
        self.warn_at: float | None = None
        self.lease_at: float | None = None
        self.limit_at: float | None = None
        self.term_at: float | None = None
        self.kill_at: float | None = None
        self.logs_at: float | None = None
        self.scratch_at: float | None = None
        self.engine_at: float | None = None

    def run(self) -> None:
        """Run the attempt to its end. If an earlier supervisor has begun to run the attempt, the attempt's
        record decides the remaining steps.
        """
        if not self.record.lock():
            return
        facts = self.record.read()
        last = facts[-1][0]
        if last == "ended":
            resent = [fact for fact in facts if fact[0] in ("checkpoint", "ended")]
            self.record.hint(*(attempt_record.encode_fact(*fact) for fact in resent))
        elif facts[0][1] != self.boot:
            self.why = f"{LOST}: the host rebooted"
            finish_attempt(self)
        elif last == "order":
            self._run_job()
        else:
            end_lost_attempt(self, facts)

    # --- running the job ---

    def _run_job(self) -> None:
        process_tree.become_subreaper(self.launch.key)
        self.record.write(attempt_record.encode_fact("claimed", os.getpid()))
        ending.read_stop(self)
        ending.check_lease(self)
        if self.why:
            finish_attempt(self)
            return
        try:
            self._prepare()
            if not self.why:
                self._start()
        except TaskNotStarted as error:
            # Report `node_unfit` if the cause is this host and no task has started yet, so that the
            # controller tries another node.
            word = "node_unfit" if error.unfit and not self.tasks else "launch_failed"
            self.why = f"{word}: {error}"
            ending.begin_ending(self, 0.0)  # End the tasks that have started.
        while self._reap():
            self._wait()
        if self.launch.lease_s is not None:
            # Record that the job is over, because the fork server would kill the epilog of an unfinished job
            # when the lease expires.
            self.record.write(attempt_record.encode_fact("over"))
        finish_attempt(self)

    def _prepare(self) -> None:
        """Prepare the start of the job: create the scratch directory, run the prolog, find a free port and
        the checkpoint from which the job resumes. A gang member then waits for the file `go`. A stop order
        also ends the prolog. Processes that the prolog leaves are ended with the job.
        """
        launch = self.launch
        if launch.scratch_dir:
            try:
                scratch.make_directory(launch.scratch_dir, launch.user)
            except scratch.ScratchRefused as error:
                raise TaskNotStarted(str(error), unfit=True) from None
        problem = hooks.run_hook(
            "prolog",
            launch.prolog,
            launch.hook_env,
            launch.directory,
            launch.hook_timeout_s,
            self._stop_requested,
        )
        if problem and not self.why:
            raise TaskNotStarted(problem)
        if not self.why:
            find_checkpoint(launch)
        if launch.is_first_rank and not self.why:
            self.why = choose_port(launch)
        if launch.barrier and not self.why:
            check_start(launch)
            self._wait_for_release()
            if launch.is_first_rank and not self.why:
                # Check the port again: another process may have taken it while the gang waited.
                self.why = choose_port(launch)
        ending.check_lease(self)  # Check the lease again: it may have expired during the prolog.
        if self.why:
            ending.begin_ending(self, 0.0)

    def _wait_for_release(self) -> None:
        """Record that this gang member is ready. Then wait for the file `go`, which the agent writes when all
        members are ready, for a stop order, or for the end of the lease.
        """
        ready = attempt_record.encode_fact("ready")
        self.record.write(ready)
        self.record.hint(ready)
        while not self.why and not os.path.exists(f"{self.launch.directory}/go"):
            ending.check_lease(self)
            left = _A_DAY if self.lease_at is None else self.lease_at - time.monotonic()
            left = min(left, RETRY_S) if self.record.hint_pending else left
            woken = signal.sigtimedwait(_WAKING, max(0.0, left))
            if self.record.hint_pending:
                self.record.hint()
            if woken is not None and woken.si_signo == signal.SIGTERM:
                ending.read_stop(self)

    def _stop_requested(self) -> bool:
        ending.read_stop(self, default="" if self.launch.barrier else LOST)
        return bool(self.why)

    def _start(self) -> None:
        try:
            bind_process(self.launch.cpus, self.launch.numa)
            self.cgroup.make()
        except OSError as error:
            raise TaskNotStarted(f"cannot hold the job to its CPUs and memory: {error}", unfit=True) from None
        wraps = self.launch.container_commands
        for number, task in enumerate(self.launch.tasks):
            argv = [*wraps[number], *self.launch.argv] if wraps else self.launch.argv
            pid = start_task(self.launch, self.cgroup, argv, task)
            self.tasks[pid], self.task_numbers[pid] = None, number
        first = next(iter(self.tasks))
        self.logs_at = self.started_at = time.monotonic()
        ending.plan_limit(self, self.launch.time_limit_s)
        self.scratch_at = self.logs_at if self.scratch_meter is not None else None
        started = attempt_record.encode_fact(
            "started", first, process_tree.start_ticks(first), f"{time.time():.6f}"
        )
        self.record.write(started)
        self.record.hint(started)

    def _reap(self) -> bool:
        """Collect children that have exited. Return False when the kernel reports that no child is left and
        the end of every container is confirmed.
        """
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return bool(self.unconfirmed)
            if pid == 0:
                break
            self.cpu_s += usage.ru_utime + usage.ru_stime
            self.rss_mib = max(self.rss_mib, usage.ru_maxrss // 1024)
            if pid in self.tasks and self.launch.container_names:
                self.unconfirmed[pid], self.engine_at = status, time.monotonic()
            elif pid in self.tasks:
                self.task_ended(pid, status)
            elif pid == self.checkpoint_pid:
                ending.checkpoint_command_ended(self, status)
        if not self.ending and self._job_ended() and self.checkpoint_pid is None:
            # All tasks have ended, or one has failed: end the processes that are left.
            ending.begin_ending(self, self.launch.grace_s)
        return True

    def task_ended(self, pid: int, status: int) -> None:
        self.tasks[pid] = status
        # The first failure of a task is the exit status of the job.
        self.exit_status = self.exit_status or status

    def _job_ended(self) -> bool:
        """Return whether all tasks have ended, or one task has failed. A failed task ends the job."""
        return bool(self.exit_status) or None not in self.tasks.values()

    def _wait(self) -> None:
        """Sleep until a signal arrives or the next planned action is due. Then carry out the stop order, if
        there is one, and all planned actions that are due.
        """
        retry_at = time.monotonic() + RETRY_S if self.record.hint_pending else None
        planned = (
            self.warn_at,
            self.lease_at,
            self.limit_at,
            self.term_at,
            self.kill_at,
            self.logs_at,
            self.scratch_at,
            self.engine_at,
            retry_at,
        )
        moments = [moment for moment in planned if moment is not None]
        pause = min(moments) - time.monotonic() if moments else _A_DAY
        woken = signal.sigtimedwait(_WAKING, max(0.0, min(pause, _A_DAY)))
        if woken is not None and woken.si_signo == signal.SIGTERM:
            # SIGTERM without a stop order ends the job, except for a gang member: the agent also sends
            # SIGTERM to the member after it has written the file `go`.
            ending.read_stop(self, default="" if self.launch.barrier else LOST)
        if self.record.hint_pending:
            self.record.hint()
        self._run_due(time.monotonic())

    def _run_due(self, now: float) -> None:
        if self.logs_at is not None and now >= self.logs_at:
            pause = self.log_trimmer.trim()
            self.logs_at = None if pause is None else now + pause
        if self.scratch_meter is not None and self.scratch_at is not None and now >= self.scratch_at:
            self._check_scratch(self.scratch_meter, now)
        ending.act_when_due(self, now)
        if self.engine_at is not None and now >= self.engine_at:
            confirm_ends(self, now)
        if self.kill_at is not None and now >= self.kill_at:
            ending.kill_processes(self, now)

    def _check_scratch(self, measure: ScratchMeter, now: float) -> None:
        """Continue the scan of the scratch directory. If the directory is larger than requested, end the job,
        or write one notice to the job's stderr, as the setting `scratch_overuse` says.
        """
        before = measure.size
        self.scratch_at = now + measure.step()
        if measure.size != before:
            scratch.record_bytes(self.launch.directory, measure.size)
        if not measure.over or self.scratch_full:
            return
        self.scratch_full = True
        excess = f"the job used more than the {self.launch.scratch_mib} MiB of scratch that it requested"
        if self.launch.end_if_scratch_full:
            self.why = self.why or f"scratch_exceeded: {excess}"
            ending.begin_ending(self, self.launch.grace_s)
        else:
            write_notice(self.launch.directory, excess)
