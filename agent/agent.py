"""The agent of one node: it receives orders from the controller, runs attempts and reports their state."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, Callable, Mapping, Optional

from agent.attempts import actions, attempt_record, environment, lease, log_retention
from agent.attempts.actions import AttemptAction
from agent.attempts.attempt_record import UnreadableRecord
from agent.attempts.attempt_states import NODE_UNFIT, AttemptStates
from agent.attempts.cpu_allocation import CpuAllocator
from agent.attempts.launch_spec import LaunchSpec
from agent.attempts.log_retention import SettledLogs
from agent.attempts.signal_receivers import receivers, tasks_of_step
from agent.attempts.spool import AttemptKey, Spool, SpooledAttempt, format_key, parse_key
from agent.attempts.start_order import CannotLaunch, HostUnfit, LaunchBuilder, UnixAccounts
from agent.attempts.usage_reporter import UsageReporter
from agent.checkpoints.saver import CheckpointSaver
from agent.checkpoints.watcher import CheckpointWatcher
from agent.controller_channel import AgentExit, Channel
from agent.event_loop import EventLoop
from agent.gpus.interface import GpuSource
from agent.host.facts import HostFacts
from agent.interactive.exec_sessions import CannotExec, ExecSessions
from agent.interactive.health_checks import HealthChecks
from agent.interactive.log_reader import POLL_S, LogReader, with_tail
from agent.isolation import container_supervision
from agent.isolation.attempt_cgroup import AttemptCgroup
from agent.isolation.cgroup_detection import HostCgroups
from agent.isolation.container_runtimes import ContainerRuntime
from agent.isolation.scratch import ScratchArea
from agent.steps.records import StepRecords
from agent.steps.step_server import StepServer
from agent.supervisor import log_rotation, process_tree
from agent.supervisor.fork_server_client import ForkServerClient
from agent.supervisor.supervisor_watch import HAS_PIDFD, SupervisorWatch
from agent.supervisor.task_process import write_notice
from wire.agent.frames import AgentFrame
from wire.agent.job_policy import JobPolicy
from wire.agent.orders import (
    CheckGpu,
    CloseShell,
    Go,
    Leave,
    Note,
    OpenShell,
    Ping,
    ReadLog,
    ResetGpu,
    ResizeShell,
    Save,
    Settle,
    ShellInput,
    ShellSignal,
    ShellTaken,
    Signal,
    SignalTo,
    Start,
    Stop,
    StopReading,
    TimeLimit,
)
from wire.agent.reports import AttemptStatus, GpuReport, Hello, Pong, Report, ShellEnded, ShellOutput
from wire.agent.steps import StepCall, StepNumber

AUDIT_INTERVAL_S = 60.0 if HAS_PIDFD else 1.0
"""Seconds between two checks that all supervisors still run. On kernels without pidfd (a descriptor that
shows the exit of a process), only this check detects that a supervisor has ended.
"""
RETRY_S = 5.0
FORK_SERVER_PAUSE_S = 0.1
FORK_SERVER_EARLY_S = 1.0
"""A fork server that ends within this many seconds after its start counts as failed."""
FORK_SERVER_MAX_FAILURES = 20
_FIFO_READ_BYTES = 1 << 16


class Agent:
    """Runs attempts of jobs on one node, as the controller orders.

    The agent has one thread. `AttemptStates` decides which actions are needed and does no I/O; this class
    carries the actions out.

    Start
    1. `adopt`: read the attempts that earlier agents left in the spool. If processes of an attempt run
       without a record in the spool, write a record that says that the supervisor was lost.
    2. `serve`: send the hello, the first message to the controller. The hello contains every attempt whose
       end the controller has not stored yet.
    3. Watch the supervisors that still run. Launch a supervisor for each attempt that has none.

    The loop (`_run_once`)
    1. Send parts of the logs that clients read, as long as the controller reads them fast enough.
    2. Watch the supervisors that were forked in the last iteration. Leave out supervisors whose attempts have
       already ended.
    3. Write queued messages to the fork server and to the controller.
    4. Exit if this host cannot run jobs and all reports have been written.
    5. Wait for the next event and handle it:
       - a message from the controller: `_handlers` has the method for each kind of message;
       - a hint, which is a message of a supervisor on a FIFO: the supervisor has recorded a start, an end
         or a checkpoint;
       - the exit of a supervisor or of the fork server;
       - a timer: audit of supervisors, log retention, checkpoint scan, GPU readings.

    Invariants
    - A start, checkpoint or end is in the spool before the agent reports it.
    - The agent may be killed at any moment: supervisors continue, and the next agent reads the spool.
    - No step of the loop blocks: separate processes run other programs and access slow file systems.

    Example: Start 7.1 arrives. `AttemptStates.start` returns RecordOrder and LaunchSupervisor; the record is
    written and a launch spec goes to the fork server. The hint `7.1 forked 4711` makes the agent watch pid
    4711. For each of the hints `7.1 started ...` and `7.1 ended ...`, the agent sends a report to the
    controller. Settle 7.1 moves the record to settled/.
    """

    def __init__(
        self,
        spool: Spool,
        channel: Channel,
        accounts: UnixAccounts,
        host: HostFacts,
        gpus: GpuSource,
        keep: int,
        policy: JobPolicy,
        cgroups: HostCgroups,
        offered_cpus: int,
        runtime: Optional[ContainerRuntime] = None,
        scratch: Optional[ScratchArea] = None,
    ) -> None:
        self.loop = EventLoop()
        self.spool = spool
        self.channel = channel
        self.gpus = gpus
        self.attempts = AttemptStates(keep)
        self.settled_logs = SettledLogs(policy)
        self.running_log_bytes = policy.log_running_mib << 20
        self.usage = UsageReporter(spool, self.attempts, cgroups, runtime, self._send_gpu_frame)
        self.clean: set[AttemptKey] = set()
        """Attempts whose GPUs were found clean (no processes, no used memory). The GPUs of these attempts are
        not checked again.
        """
        self.cpus = CpuAllocator(host, policy.bind, offered_cpus, self.attempts.has_ended)
        scratch = scratch or ScratchArea("", "none")
        self.launches = LaunchBuilder(
            accounts, self.cpus, cgroups, policy, runtime, scratch, spool.mark_key, lambda: gpus.facts
        )
        self.checkpoints = CheckpointWatcher(
            self.loop,
            policy.checkpoint_look_s,
            self.attempts.running_keys,
            self._checkpoint_spec,
            lambda key, checkpoint: self._perform(self.attempts.checkpoint_found(key, checkpoint)),
        )
        self.logs = LogReader(spool, self.attempts.has_ended, channel)
        self.exec_sessions = ExecSessions(self.loop, channel, self._exec_spec, self.attempts.has_ended)
        self.steps = StepRecords(spool, self.loop, channel.send, self.attempts.has_ended)
        self.step_server = StepServer(
            str(spool.root),
            self.loop,
            self.steps,
            channel,
            self._rank_of,
            self._processes_of,
            self._kill_tasks,
        )
        self.health_checks = HealthChecks(
            self.loop, self.attempts.running_order, self._exec_spec, self._user_spec, self.channel.send
        )
        self.saver = CheckpointSaver(
            self.loop,
            self.attempts.running_order,
            self._exec_spec,
            self.attempts.pid,
            lambda each: self._signal_job(each),
        )
        self.retry_logs_planned = False
        self.unfit_reason = ""
        """The reason why this host cannot run jobs; empty if it can run jobs."""
        self.fork_server = ForkServerClient(spool.fifo, spool.root / "nursery.log")
        self.fork_server_started = time.monotonic()
        self.fork_server_failures = 0
        self.to_watch: dict[AttemptKey, int] = {}
        self.watched: dict[AttemptKey, SupervisorWatch] = {}
        self.partial_hint = b""
        attempts = self.attempts
        self._performers: dict[type, Callable[[Any], None]] = {
            actions.RecordOrder: self._record_order,
            actions.RecordEnd: self._record_end,
            actions.LaunchSupervisor: self._launch_supervisor,
            actions.WatchSupervisor: self._watch_later,
            actions.RequestStop: self._request_stop,
            actions.ReleaseBarrier: self._release_barrier,
            actions.FailLaunch: self._fail_launch,
            actions.MoveToSettled: self._move_to_settled,
            actions.DeleteLogs: self._delete_logs,
            actions.SendReport: self._send_report,
        }
        self._handlers: dict[type, Callable[[Any], None]] = {
            Start: lambda order: self._perform(attempts.start(order, time.time())),
            Stop: lambda stop: self._perform(attempts.stop(stop, time.time())),
            Go: lambda go: self._perform(attempts.release(go)),
            Settle: lambda settle: self._perform(attempts.settle(settle)),
            TimeLimit: self._extend_limit,
            Signal: self._signal_job,
            Save: lambda each: self.saver.save((each.job, each.attempt)),
            Note: self._write_note,
            ReadLog: self.logs.read,
            StopReading: lambda each: self.logs.stop(each.request),
            CheckGpu: lambda each: gpus.schedule_check(each.uuid, each.after_s),
            ResetGpu: lambda each: gpus.schedule_reset(each.uuid, each.command, each.after_s),
            OpenShell: self.exec_sessions.open,
            ShellInput: self.exec_sessions.write,
            ShellTaken: self.exec_sessions.acknowledge,
            ResizeShell: self.exec_sessions.resize,
            CloseShell: self.exec_sessions.close,
            ShellSignal: self.exec_sessions.send_signal,
            ShellOutput: self.step_server.take_answer,
            ShellEnded: self.step_server.take_answer,
            StepNumber: self.step_server.take_answer,
            StepCall: self.step_server.take_call,
            Ping: self._answer_ping,
            Leave: self._leave,
        }

    # --- start and loop ---

    def adopt(self) -> None:
        """Take over the attempts of earlier agents. These are all attempts with a record in the spool, and
        attempts without a record whose processes still run.
        """
        named = process_tree.attempts_with_processes(str(self.spool.root), self.spool.mark_key)
        for lost in map(parse_key, named):
            if lost is not None and not self.spool.has(lost):
                self.spool.quarantine(lost, "its directory is gone")
        for found in self.spool.settled():
            self.attempts.adopt(found, settled=True)
            self._count_logs((found.status.job, found.status.attempt), found.status.ended_at or 0.0)
        for found in self.spool.unsettled():
            key = (found.status.job, found.status.attempt)
            supervisor = self.spool.supervisor_pid(key)
            self.attempts.adopt(self._intact(key, found), supervisor)
            self.steps.adopt(key)
            if supervisor is not None:
                with suppress(OSError):
                    self.cpus.adopt(key, sorted(os.sched_getaffinity(supervisor)))

    def unsettled(self) -> tuple[AttemptStatus, ...]:
        """Return the status and usage of each attempt whose end the controller has not stored yet, for
        the hello (the first message to the controller).
        """
        measured = map(self.usage.with_usage, self.attempts.unsettled())
        return tuple(with_tail(self.spool, self.steps.with_steps(each)) for each in measured)

    def serve(self, hello: Hello) -> None:
        """Send the hello (the first message to the controller). Then run the loop until the connection is
        closed or this agent must exit.
        """
        self.channel.send(hello)
        self._perform(self.attempts.resume())
        self.steps.report_all()
        self.step_server.mark_key = self.spool.mark_key
        self.step_server.listen()
        self.loop.on_readable(self.spool.hints, self._read_hints)
        self.loop.on_readable(self.channel.source, self._receive)
        self.loop.on_readable(self.fork_server.fileno(), self._fork_server_ended)
        self.loop.call_later(AUDIT_INTERVAL_S, self._audit_supervisors)
        self._delete_old_logs()
        self._trim_running_logs()
        self.checkpoints.start()
        for key in self.attempts.running_keys():
            self.health_checks.watch(key)
            self.saver.watch(key)
        self.usage.start(self.loop)
        self.gpus.watch(self.loop, self.usage.gpu_holders, self._send_gpu_frame, self.usage.add_gpu_samples)
        try:
            while True:
                self._run_once()
        except AgentExit:
            self.exec_sessions.close_all()

    def _run_once(self) -> None:
        self.logs.send_chunks()
        if self.logs.following and not self.retry_logs_planned:
            self.retry_logs_planned = True
            self.loop.call_later(POLL_S, self._retry_logs)
        self._watch_supervisors()
        server, channel = self.fork_server, self.channel
        server.flush()
        self.loop.on_writable(server.fileno(), server.flush if server.has_unsent else None)
        channel.flush()
        self.step_server.resume()
        if self.unfit_reason and not channel.unsent_bytes:
            print(f"agent: it cannot run jobs: {self.unfit_reason}", file=sys.stderr)
            raise AgentExit
        self.loop.on_writable(channel.sink, channel.flush if channel.unsent_bytes else None)
        self.loop.run_once(sleep=channel.congested or not self.logs.ready)

    # --- messages from the controller ---

    def _receive(self) -> None:
        for frame in self.channel.receive():
            handle = self._handlers.get(type(frame))
            if handle is None:
                print(f"agent: ignored a {type(frame).__name__} frame", file=sys.stderr)
            else:
                handle(frame)

    def _answer_ping(self, ping: Ping) -> None:
        if ping.heard is not None:
            try:
                self.spool.renew_leases(ping.heard)
            except OSError as error:
                # Only print the error. If the leases cannot be renewed before they expire, the supervisors
                # end the jobs.
                print(f"agent: leases cannot be renewed: {error}", file=sys.stderr)
        self.channel.send(Pong(ping.beat, lease.boot_time_s()))

    def _leave(self, _: Leave) -> None:
        raise AgentExit

    def _signal_job(self, frame: Signal) -> None:
        """Send a signal to processes of a job. The order is not stored in the spool: if the agent is
        restarted before the signal is sent, the user can repeat the command.
        """
        key = (frame.job, frame.attempt)
        supervisor = self.spool.supervisor_pid(key)
        if supervisor is None:
            return
        number = signal.Signals[f"SIG{frame.signal}"].value
        order, processes = self.attempts.order(key), process_tree.descendants(supervisor)
        if order is not None and order.image:
            spec = self.launches.build_user_spec(self.spool.directory(key), order)
            spec.key, spec.mark_key = format_key(key), self.spool.mark_key
            processes = container_supervision.job_processes(spec, processes)
        if frame.to is not SignalTo.HANDLERS:
            processes += self.exec_sessions.processes(key)
        if frame.step is not None:
            self.step_server.signal(frame)
            process_tree.send_signal(tasks_of_step(processes, frame.step), number)
            return
        process_tree.send_signal(receivers(supervisor, processes, number, frame.to), number)

    def _rank_of(self, key: AttemptKey) -> Optional[int]:
        """Return the index of this node among the nodes of an attempt; None if the attempt does not run on
        this node.
        """
        order = self.attempts.running_order(key)
        return None if order is None else order.rank

    def _processes_of(self, key: AttemptKey) -> list[int]:
        """Return the processes of an attempt, including the processes of its `corral exec` commands."""
        supervisor = self.spool.supervisor_pid(key)
        found = self.exec_sessions.processes(key)
        if supervisor is not None:
            found += process_tree.descendants(supervisor)
        return found + AttemptCgroup(self.launches.cgroups.parts(format_key(key), None, 0)).members()

    def _kill_tasks(self, key: AttemptKey, step: int) -> None:
        """Kill the tasks of a step whose srun was killed."""
        if self.attempts.has_ended(key) is False:
            process_tree.send_signal(tasks_of_step(self._processes_of(key), step), signal.SIGKILL)

    def _extend_limit(self, frame: TimeLimit) -> None:
        """Write a longer time limit to the spool. The supervisor reads this limit when the old one is
        reached.
        """
        key = (frame.job, frame.attempt)
        if self.attempts.running_order(key) is not None:
            self.spool.write_limit(key, frame.time_limit_s)

    def _write_note(self, note: Note) -> None:
        key = (note.job, note.attempt)
        if self.attempts.running_order(key) is not None:
            write_notice(self.spool.directory(key), note.text)
            self.exec_sessions.show_notice(key, note.text)

    def _exec_spec(
        self,
        key: AttemptKey,
        command: tuple[str, ...],
        term: str,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> LaunchSpec:
        order, supervisor = self.attempts.running_order(key), self.spool.supervisor_pid(key)
        if order is None or supervisor is None:
            raise CannotExec(f"attempt {key[1]} of job {key[0]} does not run on this node")
        try:
            spec = self.launches.build_exec(key, self.spool.directory(key), order, command, term, variables)
        except CannotLaunch as error:
            raise CannotExec(str(error)) from None
        spec.cpus = sorted(os.sched_getaffinity(supervisor))
        return spec

    def _retry_logs(self) -> None:
        self.retry_logs_planned = False
        self.logs.retry()

    # --- hints (messages of supervisors on the FIFO), supervisors, and the fork server ---

    def _read_hints(self) -> None:
        """Read the FIFO on which supervisors report the starts, checkpoints and ends of attempts. Skip
        damaged lines: the record of each attempt in the spool has the same lines, so no fact is lost.
        """
        data = self.partial_hint + os.read(self.spool.hints, _FIFO_READ_BYTES)
        *lines, self.partial_hint = data.split(b"\n")
        for line in lines:
            name, _, checked = line.partition(b" ")
            key = parse_key(name.decode("ascii", "replace"))
            try:
                if key is not None:
                    self._perform(self.attempts.apply_hint(key, attempt_record.decode_fact(checked)))
            except UnreadableRecord:
                continue

    def _watch_later(self, watch: actions.WatchSupervisor) -> None:
        # Begin to watch the supervisor in the next iteration of the event loop, and only if its attempt still
        # runs. This saves the watch for attempts that end at once.
        self.to_watch[watch.key] = watch.pid

    def _watch_supervisors(self) -> None:
        due, self.to_watch = self.to_watch, {}
        for key, pid in due.items():
            self._unwatch(key)
            if self.attempts.has_ended(key) is not False:
                continue
            try:
                watched = self.watched[key] = SupervisorWatch(pid)
            except ProcessLookupError:
                self.loop.call_later(0.0, partial(self._read_after_end, key))
                continue
            if watched.descriptor is not None:
                self.loop.on_readable(watched.descriptor, partial(self._supervisor_ended, key))

    def _supervisor_ended(self, key: AttemptKey) -> None:
        self._unwatch(key)
        self._read_after_end(key)

    def _unwatch(self, key: AttemptKey) -> None:
        watched = self.watched.pop(key, None)
        if watched is not None and watched.descriptor is not None:
            self.loop.on_readable(watched.descriptor, None)
            os.close(watched.descriptor)

    def _read_after_end(self, key: AttemptKey) -> None:
        """Read the record of an attempt whose supervisor has exited, and report the end of the attempt. If
        the record has no end, because the supervisor was killed, launch another supervisor.
        """
        if self.attempts.has_ended(key) is not False:
            return
        try:
            found = self._intact(key, self.spool.read(key))
            supervisor = self.spool.supervisor_pid(key)
        except OSError as error:
            name = format_key(key)
            print(f"agent: the record of {name} can neither be read nor replaced: {error}", file=sys.stderr)
            self.loop.call_later(RETRY_S, partial(self._read_after_end, key))
            return
        self._perform(self.attempts.supervisor_gone(key, found, supervisor))

    def _intact(self, key: AttemptKey, found: SpooledAttempt) -> SpooledAttempt:
        """Return `found`, the content of an attempt's record, if the record is intact. A damaged record is
        replaced by a new one that says that the supervisor was lost; the content of the new record is
        returned.
        """
        if not found.damage:
            return found
        print(f"agent: the record of {format_key(key)} is damaged: {found.damage}", file=sys.stderr)
        supervisor = self.spool.supervisor_pid(key)
        if supervisor is not None:
            # Kill the supervisor of the attempt, because it would append to the damaged record.
            os.kill(supervisor, signal.SIGKILL)
        return self.spool.quarantine(key, found.damage)

    def _audit_supervisors(self) -> None:
        """Read the records of attempts whose supervisors have exited without the agent noticing the exit."""
        # Ignore an error, because too many files may be open. The next audit tries again.
        with suppress(OSError):
            for key, pid in self.attempts.supervisors():
                if self.spool.supervisor_pid(key) != pid:
                    self._unwatch(key)
                    self._read_after_end(key)
        self.loop.call_later(AUDIT_INTERVAL_S, self._audit_supervisors)

    def _fork_server_ended(self) -> None:
        """Start another fork server. Exit if fork servers have failed too many times in a row."""
        early = time.monotonic() - self.fork_server_started < FORK_SERVER_EARLY_S
        self.fork_server_failures = self.fork_server_failures + 1 if early else 0
        log = self.spool.root / "nursery.log"
        if self.fork_server_failures > FORK_SERVER_MAX_FAILURES:
            print(f"agent: supervisors cannot be started; see {log}", file=sys.stderr)
            raise AgentExit
        print("agent: the fork server has ended; another one is started", file=sys.stderr)
        self.loop.on_readable(self.fork_server.fileno(), None)
        self.loop.on_writable(self.fork_server.fileno(), None)
        self.fork_server.reap()
        # Pause before the restart, because otherwise a fork server that fails at once would use a whole core.
        time.sleep(FORK_SERVER_PAUSE_S)
        try:
            self.fork_server = ForkServerClient(self.spool.fifo, log)
        except OSError as error:
            print(f"agent: supervisors cannot be started: {error}", file=sys.stderr)
            raise AgentExit from None
        self.fork_server_started = time.monotonic()
        self.loop.on_readable(self.fork_server.fileno(), self._fork_server_ended)
        self._perform(self.attempts.fork_server_gone())

    # --- actions ---

    def _perform(self, wanted: list[AttemptAction]) -> None:
        for action in wanted:
            try:
                self._performers[type(action)](action)
            except OSError as error:
                # Only print the error. The disk may be full, or a user may have changed the spool.
                print(f"agent: {type(action).__name__} failed: {error}", file=sys.stderr)
                if isinstance(action, (actions.RequestStop, actions.ReleaseBarrier)):
                    # Write the stop order or the file `go` again later, because the controller sends each
                    # order only once.
                    self.loop.call_later(RETRY_S, partial(self._perform, [action]))

    def _record_order(self, action: actions.RecordOrder) -> None:
        key = (action.order.job, action.order.attempt)
        try:
            self.spool.record_order(key, action.order)
        except OSError as error:
            why = f"the order cannot be written to the spool {self.spool.root}: {error.strerror}"
            self._perform(self.attempts.record_failed(key, time.time(), why))

    def _record_end(self, action: actions.RecordEnd) -> None:
        status = action.status
        end = attempt_record.encode_end(status.ended_at or time.time(), None, None, why=status.why)
        self.spool.record_order((status.job, status.attempt), None, end)

    def _launch_supervisor(self, action: actions.LaunchSupervisor) -> None:
        """Send the attempt's launch spec (its settings for the supervisor) to the fork server as soon as the
        attempt's GPUs are clean: no process uses them and their memory is free.
        """
        key = action.key
        if action.after_s:
            self.loop.call_later(
                action.after_s, partial(self._launch_supervisor, actions.LaunchSupervisor(key))
            )
            return
        if self.attempts.has_ended(key) is not False:
            return  # The attempt was stopped or deleted while its launch was delayed.
        order = self.attempts.order(key)
        if order is not None and order.gpus and key not in self.clean and not self.attempts.started(key):
            self.gpus.wait_until_clean([hold.uuid for hold in order.gpus], partial(self._gpus_checked, key))
            return
        directory = self.spool.directory(key)
        try:
            spec = self.launches.build(key, directory, order)
        except CannotLaunch as error:
            word = NODE_UNFIT if isinstance(error, HostUnfit) else "launch_failed"
            if self._end_unclaimed(key, f"{word}: {error}"):
                return
            # An earlier supervisor has already begun to run this attempt, and may have left processes. Launch
            # another supervisor, which ends these processes.
            spec = self.launches.build(key, directory, None)
        self.fork_server.send(spec)

    def _gpus_checked(self, key: AttemptKey, problem: str) -> None:
        """Launch the attempt if `problem` is empty, which means that its GPUs are clean. Otherwise end the
        attempt with `problem` as the reason.
        """
        if not problem:
            self.clean.add(key)
            self._launch_supervisor(actions.LaunchSupervisor(key))
        elif self.attempts.has_ended(key) is False and not self._end_unclaimed(key, f"gpu_held: {problem}"):
            self._read_after_end(key)

    def _fail_launch(self, action: actions.FailLaunch) -> None:
        if not self._end_unclaimed(action.key, action.why):
            self._read_after_end(action.key)

    def _end_unclaimed(self, key: AttemptKey, why: str) -> bool:
        """Record and report the end of an attempt that no supervisor has begun to run. If a supervisor has
        begun to run the attempt, change nothing and return False.
        """
        end = attempt_record.encode_end(time.time(), None, None, why=why)
        if not self.spool.end_unclaimed(key, end):
            return False
        self._perform(self.attempts.apply_hint(key, attempt_record.decode_fact(end.rstrip(b"\n"))))
        return True

    def _send_report(self, action: actions.SendReport) -> None:
        """Send the report of an attempt. If the attempt ended because this host cannot run jobs
        (`node_unfit`), the agent exits after the report. The node then gets no jobs until an agent connects
        again.
        """
        status = action.report.status
        status = self.steps.with_steps(self.usage.with_usage(status))
        self.channel.send(Report(with_tail(self.spool, status)))
        if status.pid is not None and status.ended_at is None:
            self.health_checks.watch((status.job, status.attempt))
            self.saver.watch((status.job, status.attempt))
        word, _, why = status.why.partition(": ")
        if word == NODE_UNFIT and status.ended_at is not None:
            self.unfit_reason = why

    def _request_stop(self, action: actions.RequestStop) -> None:
        key = (action.stop.job, action.stop.attempt)
        if self.attempts.has_ended(key) is not False:
            return  # The attempt ended before the stop order was written.
        try:
            self.spool.write_stop(action.stop)
        finally:
            # Wake the supervisor even if the stop order could not be written: a supervisor that gets
            # SIGTERM without an order ends its job.
            self._wake_supervisor(key)

    def _release_barrier(self, action: actions.ReleaseBarrier) -> None:
        if self.attempts.has_ended(action.key) is False:
            self.spool.write_go(action.key)
            self._wake_supervisor(action.key)

    def _wake_supervisor(self, key: AttemptKey) -> None:
        self._watch_supervisors()
        watched = self.watched.get(key)
        if watched is not None:
            watched.wake()

    def _move_to_settled(self, action: actions.MoveToSettled) -> None:
        key = action.key
        self.spool.settle(key)
        self._count_logs(key, time.time())
        for surplus in self.settled_logs.take_surplus(time.time(), self.attempts.user(key)):
            self._perform(self.attempts.forget(surplus))
        self.usage.forget(key)
        self.steps.forget(key)
        self.clean.discard(key)

    def _delete_logs(self, action: actions.DeleteLogs) -> None:
        self.settled_logs.remove(action.key)
        self.spool.delete(action.key)

    # --- logs, checkpoints and GPU readings ---

    def _count_logs(self, key: AttemptKey, ended_at: float) -> None:
        size = log_retention.directory_bytes(self.spool.settled_directory(key))
        self.settled_logs.add(key, self.attempts.user(key), size, ended_at)

    def _delete_old_logs(self) -> None:
        for key in self.settled_logs.take_surplus(time.time()):
            self._perform(self.attempts.forget(key))
        self.loop.call_later(log_retention.AGE_INTERVAL_S, self._delete_old_logs)

    def _trim_running_logs(self) -> None:
        if self.running_log_bytes:
            keys = self.attempts.running_keys()
            running = [(self.attempts.user(key), self.spool.directory(key)) for key in keys]
            log_rotation.trim_running_logs(running, self.running_log_bytes)
            self.loop.call_later(log_rotation.RUNNING_INTERVAL_S, self._trim_running_logs)

    def _checkpoint_spec(self, key: AttemptKey) -> Optional[LaunchSpec]:
        order = self.attempts.running_order(key)
        if order is None or not environment.has_checkpoints(order):
            return None
        return self._user_spec(key, order)

    def _user_spec(self, key: AttemptKey, order: Start) -> Optional[LaunchSpec]:
        """Return a launch spec for a child process of the agent that runs as the job's user; None if the user
        no longer exists on this host.
        """
        try:
            return self.launches.build_user_spec(self.spool.directory(key), order)
        except CannotLaunch:
            return None

    def _send_gpu_frame(self, frame: AgentFrame) -> None:
        """Send a message about GPUs. If the controller reads too slowly, drop GPU readings, but always send
        messages about GPU health.
        """
        if not (self.channel.congested and isinstance(frame, GpuReport)):
            self.channel.send(frame)
