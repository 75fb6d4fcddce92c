"""The fork server forks a supervisor for each attempt. If a supervisor is killed, the fork server kills the
processes that the supervisor leaves.

A fork of this process is cheap, because the process has few modules and its garbage collector is off. Launch
specs arrive on descriptor 0.

Algorithm
1. Wait for a launch spec, for the exit of a child, or for the time of the next lease check.
2. For a launch spec, fork a supervisor and send its pid to the agent.
3. If a supervisor exits with code 0, no process of its attempt is left.
4. If a supervisor ends in any other way, the processes of its attempt are now children of this process,
   because this process is a subreaper. This includes processes that detached themselves. Kill every child
   that is not a supervisor, and its descendants, until none is left. Only then fork the new supervisor that
   the agent has ordered for this attempt. The new supervisor records the end.
5. A supervisor must record the end of its job before the lease, the grace and a margin have expired. A
   supervisor that has not recorded the end by then is stopped or hangs: kill the supervisor, write the reason
   to the record, and continue with step 4.
6. If the agent has closed the connection, repeat steps 3 to 5 until no child is left, then exit.

Invariant: a child that is not in `_supervisors` belongs to an attempt whose supervisor is dead. Cost: one
wait and one wake-up for each attempt.

Example: the agent and the supervisor of job 7 are killed. Job 7 had started `setsid env -i sleep 9999` in the
background. The sleep process becomes a child of this process. This process kills the sleep process before the
end of job 7 is recorded.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import sys
import time

from agent.attempts import attempt_record, lease
from agent.attempts.launch import launch_spec
from agent.attempts.launch.launch_spec import LaunchSpec
from agent.processes import process_tree
from agent.supervisor.supervisor import Supervisor

LEASE_MARGIN_S = 2.0
"""If a job still runs this many seconds after the end of its lease and grace, its supervisor counts as stuck.
The controller's setting `lease_margin_s` should be longer.
"""
_SWEEP_PAUSES_S = (0.01, 1.0)
_LEASE_INTERVAL_S = 1.0


class SupervisorProcess:
    """A running supervisor. `due` is the time of the next check of its job's lease, by the monotonic clock;
    None for a job without a lease.
    """

    def __init__(self, launch: LaunchSpec, due: float | None) -> None:
        self.key = launch.key
        self.directory = launch.directory
        self.lease_s = launch.lease_s
        self.grace_s = launch.grace_s
        self.due = due
        self.lease_expired = False


class ForkServer:
    def __init__(self, hints: int, boot: str) -> None:
        self._hints = hints
        self._boot = boot
        self._supervisors: dict[int, SupervisorProcess] = {}
        self._postponed: list[LaunchSpec] = []
        self._sweeping = False
        self._sweep_pause_s = _SWEEP_PAUSES_S[0]
        self._lease_check_at: float | None = None
        self._buffer = bytearray()
        self._wake, sink = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._sink = sink
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    def run(self) -> None:
        """Run until the agent has closed the connection and no child is left."""
        poll, open_end = select.poll(), True
        poll.register(0, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while open_end or self._supervisors or self._sweeping:
            ready = [each for each, _ in poll.poll(self._poll_timeout_ms())]
            if self._wake in ready:
                _drain(self._wake)
            self._reap()
            if 0 in ready and not self._take_launches():
                poll.unregister(0)
                open_end = False
            if self._lease_check_at is not None and time.monotonic() >= self._lease_check_at:
                self._check_leases()
            if self._sweeping:
                self._kill_orphans()

    def _poll_timeout_ms(self) -> float | None:
        """Return the milliseconds until the next lease check, or until the next search for orphans (children
        of killed supervisors). Return None if neither is planned.
        """
        if self._sweeping:
            return self._sweep_pause_s * 1_000
        if self._lease_check_at is None:
            return None
        return max(0.0, self._lease_check_at - time.monotonic()) * 1_000 + 1

    def _take_launches(self) -> bool:
        """Read launch specs from the agent and fork their supervisors. Return False if the agent has closed
        the connection.
        """
        part = os.read(0, 1 << 16)
        self._buffer += part
        while True:
            launch = launch_spec.take_spec(self._buffer)
            if launch is None:
                return bool(part)
            # First collect exited supervisors, because an exited supervisor may be an earlier supervisor of
            # this attempt.
            self._reap()
            if self._sweeping or any(each.key == launch.key for each in self._supervisors.values()):
                self._postponed.append(launch)
            else:
                self._fork(launch)

    def _fork(self, launch: LaunchSpec) -> None:
        due = None
        if launch.lease_s is not None:
            due = time.monotonic() + max(0.0, self._lease_left_s(launch.lease_s, launch.grace_s))
        try:
            pid = os.fork()
        except OSError as error:
            message = attempt_record.encode_fact("unforked", error.strerror)
        else:
            if pid == 0:
                self._become_supervisor(launch)
            self._supervisors[pid] = SupervisorProcess(launch, due)
            if due is not None:
                self._lease_check_at = due if self._lease_check_at is None else min(self._lease_check_at, due)
            message = attempt_record.encode_fact("forked", pid)
        _send_hint(self._hints, launch.key.encode() + b" " + message)

    def _become_supervisor(self, launch: LaunchSpec) -> None:
        code = 1
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(self._wake)
            os.close(self._sink)
            # Replace stdin by a copy of stdout. Launch specs arrive on stdin, and only the fork server may
            # read launch specs.
            os.dup2(1, 0)
            os.setsid()
            Supervisor(launch, self._hints, self._boot).run()
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    # --- supervisors that have ended ---

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            supervisor = self._supervisors.pop(pid, None)
            if supervisor is None:
                # Skip a child that is no supervisor: it is a process of a killed supervisor, which the kernel
                # gave to the fork server.
                continue
            if status:
                self._sweeping, self._sweep_pause_s = True, _SWEEP_PAUSES_S[0]
                if supervisor.lease_expired:
                    _record_lease_expiry(supervisor.directory)
            else:
                # The end of the attempt is recorded. Drop the other launch specs of this attempt that waited
                # for the end of this supervisor.
                self._postponed = [each for each in self._postponed if each.key != supervisor.key]

    def _kill_orphans(self) -> None:
        """Kill the orphans: processes of killed supervisors that are now children of this process. When no
        orphan is left, fork the supervisors whose launch has waited for the end of the orphans.
        """
        orphans = [pid for pid in process_tree.children(os.getpid()) if pid not in self._supervisors]
        if orphans:
            descendants = [each for pid in orphans for each in process_tree.descendants(pid)]
            process_tree.send_signal(orphans + descendants, signal.SIGKILL)
            self._reap()
            self._sweep_pause_s = min(self._sweep_pause_s * 2, _SWEEP_PAUSES_S[1])
            return
        self._sweeping = False
        postponed, self._postponed = self._postponed, []
        held = {supervisor.key for supervisor in self._supervisors.values()}
        for each in postponed:
            if each.key in held:
                self._postponed.append(each)
            else:
                self._fork(each)

    # --- leases ---

    def _lease_left_s(self, lease_s: float, grace_s: float) -> float:
        """Return the seconds until the lease, the grace and LEASE_MARGIN_S have passed since the last renewal
        of the leases. The result is below 0 after that time.
        """
        left = lease.left_s(os.environ["CORRAL_SPOOL"], self._boot, lease_s)
        return left + grace_s + LEASE_MARGIN_S

    def _check_leases(self) -> None:
        now, due = time.monotonic(), []
        for pid, supervisor in self._supervisors.items():
            if supervisor.due is None or supervisor.lease_s is None:
                continue
            if supervisor.due <= now:
                left = self._lease_left_s(supervisor.lease_s, supervisor.grace_s)
                supervisor.due = now + max(left, _LEASE_INTERVAL_S)
                if left <= 0 and _is_stuck(pid, supervisor.directory):
                    supervisor.lease_expired = True
                    process_tree.send_signal([pid], signal.SIGKILL)
            due.append(supervisor.due)
        self._lease_check_at = min(due, default=None)


def main() -> None:
    """Run the fork server until the agent has closed the connection and the last supervisor has exited.

    The arguments of the process are a FIFO and the limit of open files for jobs. Supervisors write to the
    FIFO when a record has changed, so that the agent reads the record at once.
    """
    hints_path, open_files = sys.argv[1:]
    hints = os.open(hints_path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (int(open_files), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    os.umask(0o022)
    process_tree.become_subreaper(process_tree.FORK_SERVER_NAME)
    # Block all signals. Supervisors inherit the signal mask, and receive SIGCHLD and SIGTERM by sigtimedwait.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    gc.collect()
    gc.disable()
    gc.freeze()
    ForkServer(hints, process_tree.boot_id()).run()


def _is_stuck(pid: int, directory: str) -> bool:
    """Return whether a supervisor is stuck, given that the lease of its job has expired. The supervisor is
    stuck if it is stopped (by SIGSTOP or a debugger), or if it has started the job and not recorded the job's
    end. A supervisor that runs the prolog or epilog is not stuck. `directory` is the attempt's spool
    directory.
    """
    if process_tree.is_stopped(pid):
        return True
    try:
        descriptor = os.open(f"{directory}/record", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            known = {
                fact[0]: fact for fact in attempt_record.decode_facts(attempt_record.read_record(descriptor))
            }
        finally:
            os.close(descriptor)
    except (OSError, attempt_record.UnreadableRecord):
        # Do not count the supervisor as stuck if its record cannot be read. The agent replaces damaged
        # records.
        return False
    # The `claimed` line of the record has the pid of the supervisor that runs the job. A supervisor
    # with another pid only cleans up after a lost supervisor. It is not reported as stuck.
    claimed_here = "claimed" in known and known["claimed"][1] == str(pid)
    return claimed_here and "started" in known and not known.keys() & {"over", "ended"}


def _record_lease_expiry(directory: str) -> None:
    """Record that the supervisor was killed because its job's lease had expired."""
    try:
        descriptor = os.open(f"{directory}/record", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if attempt_record.lock_record(descriptor):
                written = attempt_record.read_record(descriptor)
                os.pwrite(descriptor, attempt_record.encode_fact("lost", lease.LEASE_EXPIRED), len(written))
        finally:
            os.close(descriptor)
    except OSError:
        pass  # Ignore the error: the attempt still ends, only without the reason in its record.


def _send_hint(hints: int, message: bytes) -> None:
    while True:
        try:
            os.write(hints, message)
            return
        except BlockingIOError:
            select.select((), (hints,), ())
        except BrokenPipeError:
            return


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4_096):
            pass
    except BlockingIOError:
        pass
