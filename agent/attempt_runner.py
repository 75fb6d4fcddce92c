"""Carries out the actions that AttemptStates decides: it writes the spool, launches and wakes supervisors."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from typing import Any, Callable

from agent.attempts import actions, attempt_record, log_retention
from agent.attempts.actions import AttemptAction
from agent.attempts.attempt_record import UnreadableRecord
from agent.attempts.attempt_states import NODE_UNFIT, AttemptStates
from agent.attempts.launch.start_order import CannotLaunch, HostUnfit, LaunchBuilder
from agent.attempts.log_retention import SettledLogs
from agent.attempts.spool import AttemptKey, Spool, SpooledAttempt, format_key, parse_key
from agent.event_loop import EventLoop
from agent.gpus.interface import GpuSource
from agent.supervisor.fork_server_client import RestartedForkServer
from agent.supervisor.supervisor_watch import HAS_PIDFD, SupervisorWatches
from wire.agent.reports import AttemptStatus

AUDIT_INTERVAL_S = 60.0 if HAS_PIDFD else 1.0
"""Seconds between two checks that all supervisors still run. On kernels without pidfd (a descriptor that
shows the exit of a process), only this check detects that a supervisor has ended.
"""
RETRY_S = 5.0
_FIFO_READ_BYTES = 1 << 16


class AttemptRunner:
    """Carries out actions on attempts, and watches their supervisors.

    1. `perform` gets the actions that `AttemptStates` returned for an order, and carries out each of them:
       write the order to the spool, send the launch spec to the fork server, write a stop order, send a
       report and so on.
    2. A supervisor writes each line of its record also to a FIFO, which the agent reads (`_read_hints`). When
       the supervisor has exited, the agent reads the record (`read_after_end`). `AttemptStates` gets each
       fact and returns the next actions.
    3. `_audit_supervisors` finds supervisors whose exit was not noticed.

    Invariant: a fact is in the spool before it is reported. An action that fails does not end the agent. A
    stop order or the file `go` is written again later. For every other action, the record shows the next
    agent whether the action must be repeated.
    """

    def __init__(
        self,
        loop: EventLoop,
        spool: Spool,
        attempts: AttemptStates,
        launches: LaunchBuilder,
        gpus: GpuSource,
        settled_logs: SettledLogs,
        report: Callable[[AttemptStatus], None],
        forget: Callable[[AttemptKey], None],
    ) -> None:
        """`report` sends the status of an attempt to the controller. `forget` deletes the agent's data about
        an attempt; it is called when the controller has stored the end of the attempt.
        """
        self._loop = loop
        self._spool = spool
        self._attempts = attempts
        self._launches = launches
        self._gpus = gpus
        self._settled_logs = settled_logs
        self._forget = forget
        self._clean: set[AttemptKey] = set()
        """Attempts whose GPUs were found clean: no process outside of jobs uses these GPUs, and no memory of
        ended jobs is left. The GPUs of these attempts are not checked again.
        """
        self._partial_hint = b""
        self.watches = SupervisorWatches(loop, attempts.has_ended, self.read_after_end)
        self.fork_server = RestartedForkServer(
            spool.fifo, spool.root / "nursery.log", loop, lambda: self.perform(attempts.fork_server_gone())
        )
        self._performers: dict[type, Callable[[Any], None]] = {
            actions.RecordOrder: self._record_order,
            actions.RecordEnd: self._record_end,
            actions.LaunchSupervisor: self._launch_supervisor,
            actions.WatchSupervisor: lambda action: self.watches.add(action.key, action.pid),
            actions.RequestStop: self._request_stop,
            actions.ReleaseBarrier: self._release_barrier,
            actions.FailLaunch: self._fail_launch,
            actions.MoveToSettled: self._move_to_settled,
            actions.DeleteLogs: self._delete_logs,
            actions.SendReport: lambda action: report(action.report.status),
        }

    def start(self) -> None:
        """Continue the attempts that were adopted, and begin to read hints and to watch supervisors."""
        self.perform(self._attempts.resume())
        self._loop.on_readable(self._spool.hints, self._read_hints)
        self.fork_server.watch()
        self._loop.call_later(AUDIT_INTERVAL_S, self._audit_supervisors)
        self._delete_old_logs()

    def perform(self, wanted: list[AttemptAction]) -> None:
        for action in wanted:
            try:
                self._performers[type(action)](action)
            except OSError as error:
                # If the spool cannot be read or written, print the error and continue. The disk may be full,
                # or a user may have changed the spool.
                print(f"agent: {type(action).__name__} failed: {error}", file=sys.stderr)
                if isinstance(action, (actions.RequestStop, actions.ReleaseBarrier)):
                    # Write the stop order or the file `go` again later, because the controller sends each
                    # order only once.
                    self._loop.call_later(RETRY_S, partial(self.perform, [action]))

    def _record_order(self, action: actions.RecordOrder) -> None:
        key = (action.order.job, action.order.attempt)
        try:
            self._spool.record_order(key, action.order)
        except OSError as error:
            why = f"the order cannot be written to the spool {self._spool.root}: {error.strerror}"
            self.perform(self._attempts.record_failed(key, time.time(), why))

    def _record_end(self, action: actions.RecordEnd) -> None:
        status = action.status
        end = attempt_record.encode_end(status.ended_at or time.time(), None, None, why=status.why)
        self._spool.record_order((status.job, status.attempt), None, end)

    def _launch_supervisor(self, action: actions.LaunchSupervisor) -> None:
        """Send the attempt's launch spec (its settings for the supervisor) to the fork server as soon as the
        attempt's GPUs are clean. If the attempt cannot be launched on this host, record and report its end.
        """
        key = action.key
        if action.after_s:
            self._loop.call_later(
                action.after_s, partial(self._launch_supervisor, actions.LaunchSupervisor(key))
            )
            return
        if self._attempts.has_ended(key) is not False:
            return  # The attempt was stopped or deleted while its launch was delayed.
        order = self._attempts.order(key)
        if order is not None and order.gpus and key not in self._clean and not self._attempts.started(key):
            self._gpus.wait_until_clean([hold.uuid for hold in order.gpus], partial(self._gpus_checked, key))
            return
        directory = self._spool.directory(key)
        try:
            spec = self._launches.build(key, directory, order)
        except CannotLaunch as error:
            word = NODE_UNFIT if isinstance(error, HostUnfit) else "launch_failed"
            if self._end_unclaimed(key, f"{word}: {error}"):
                return
            # An earlier supervisor began to run this attempt, and may have left processes. Launch another
            # supervisor, which ends these processes.
            spec = self._launches.build(key, directory, None)
        self.fork_server.send(spec)

    def _gpus_checked(self, key: AttemptKey, problem: str) -> None:
        """Launch the attempt if its GPUs are clean, which means that `problem` is empty. If its GPUs are not
        clean, end the attempt with the reason `problem`.
        """
        if not problem:
            self._clean.add(key)
            self._launch_supervisor(actions.LaunchSupervisor(key))
        elif self._attempts.has_ended(key) is False and not self._end_unclaimed(key, f"gpu_held: {problem}"):
            self.read_after_end(key)

    def _fail_launch(self, action: actions.FailLaunch) -> None:
        if not self._end_unclaimed(action.key, action.why):
            self.read_after_end(action.key)

    def _end_unclaimed(self, key: AttemptKey, why: str) -> bool:
        """Record and report the end of an attempt that no supervisor has begun to run, and return True. If a
        supervisor has begun to run the attempt, or if the record cannot be written, change nothing and return
        False.
        """
        end = attempt_record.encode_end(time.time(), None, None, why=why)
        if not self._spool.end_unclaimed(key, end):
            return False
        self.perform(self._attempts.apply_hint(key, attempt_record.decode_fact(end.rstrip(b"\n"))))
        return True

    def _request_stop(self, action: actions.RequestStop) -> None:
        key = (action.stop.job, action.stop.attempt)
        if self._attempts.has_ended(key) is not False:
            return  # The attempt ended before the stop order was written.
        try:
            self._spool.write_stop(action.stop)
        finally:
            # Wake the supervisor even if the stop order could not be written: a supervisor that gets
            # SIGTERM without an order ends its job.
            self.watches.wake(key)

    def _release_barrier(self, action: actions.ReleaseBarrier) -> None:
        if self._attempts.has_ended(action.key) is False:
            self._spool.write_go(action.key)
            self.watches.wake(action.key)

    def _move_to_settled(self, action: actions.MoveToSettled) -> None:
        key = action.key
        self._spool.settle(key)
        self.count_logs(key, time.time())
        for surplus in self._settled_logs.take_surplus(time.time(), self._attempts.user(key)):
            self.perform(self._attempts.forget(surplus))
        self._clean.discard(key)
        self._forget(key)

    def _delete_logs(self, action: actions.DeleteLogs) -> None:
        self._settled_logs.remove(action.key)
        self._spool.delete(action.key)

    def _read_hints(self) -> None:
        """Read the FIFO on which supervisors report the starts, checkpoints and ends of attempts. Skip
        damaged lines: the record of each attempt in the spool has the same lines, so no fact is lost.
        """
        data = self._partial_hint + os.read(self._spool.hints, _FIFO_READ_BYTES)
        *lines, self._partial_hint = data.split(b"\n")
        for line in lines:
            name, _, checked = line.partition(b" ")
            key = parse_key(name.decode("ascii", "replace"))
            try:
                if key is not None:
                    self.perform(self._attempts.apply_hint(key, attempt_record.decode_fact(checked)))
            except UnreadableRecord:
                continue

    def read_after_end(self, key: AttemptKey) -> None:
        """Read the record of an attempt whose supervisor has exited, and report the end of the attempt. If
        the record has no end, because the supervisor was killed, launch another supervisor.
        """
        if self._attempts.has_ended(key) is not False:
            return
        try:
            found = self.intact(key, self._spool.read(key))
            supervisor = self._spool.supervisor_pid(key)
        except OSError as error:
            name = format_key(key)
            print(f"agent: the record of {name} can neither be read nor replaced: {error}", file=sys.stderr)
            self._loop.call_later(RETRY_S, partial(self.read_after_end, key))
            return
        self.perform(self._attempts.supervisor_gone(key, found, supervisor))

    def intact(self, key: AttemptKey, found: SpooledAttempt) -> SpooledAttempt:
        """Return `found`, the content of an attempt's record, if the record is intact. If the record is
        damaged, replace it by a new record, which says that the supervisor was lost, and return the content
        of the new record.
        """
        if not found.damage:
            return found
        print(f"agent: the record of {format_key(key)} is damaged: {found.damage}", file=sys.stderr)
        supervisor = self._spool.supervisor_pid(key)
        if supervisor is not None:
            # Kill the supervisor of the attempt, because it would append to the damaged record.
            os.kill(supervisor, signal.SIGKILL)
        return self._spool.quarantine(key, found.damage)

    def _audit_supervisors(self) -> None:
        """Read the records of attempts whose supervisors have exited without the agent noticing the exit."""
        # Ignore an error, for example too many open files. The next audit checks all supervisors again.
        with suppress(OSError):
            for key, pid in self._attempts.supervisors():
                if self._spool.supervisor_pid(key) != pid:
                    self.watches.remove(key)
                    self.read_after_end(key)
        self._loop.call_later(AUDIT_INTERVAL_S, self._audit_supervisors)

    def count_logs(self, key: AttemptKey, ended_at: float) -> None:
        size = log_retention.directory_bytes(self._spool.settled_directory(key))
        self._settled_logs.add(key, self._attempts.user(key), size, ended_at)

    def _delete_old_logs(self) -> None:
        for key in self._settled_logs.take_surplus(time.time()):
            self.perform(self._attempts.forget(key))
        self._loop.call_later(log_retention.AGE_INTERVAL_S, self._delete_old_logs)
