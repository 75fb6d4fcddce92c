"""The agent of one node. An agent receives orders from the controller, runs attempts, and reports their
state.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from types import MappingProxyType
from typing import Any, Callable, Mapping, Optional

from agent.adoption import adopt_attempts
from agent.attempt_runner import AttemptRunner
from agent.attempts import lease, log_rotation
from agent.attempts.attempt_states import NODE_UNFIT, AttemptStates
from agent.attempts.launch import environment
from agent.attempts.launch.cpu_allocation import CpuAllocator
from agent.attempts.launch.launch_spec import LaunchSpec
from agent.attempts.launch.start_order import CannotLaunch, LaunchBuilder, UnixAccounts
from agent.attempts.log_retention import SettledLogs
from agent.attempts.signal_receivers import receivers, tasks_of_step
from agent.attempts.spool import AttemptKey, Spool, format_key
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
from agent.interactive.log_search import LogSearch
from agent.isolation import container_supervision
from agent.isolation.attempt_cgroup import AttemptCgroup
from agent.isolation.cgroup_limits import HostCgroups
from agent.isolation.container_runtimes import ContainerRuntime
from agent.isolation.scratch import ScratchArea
from agent.processes import process_tree
from agent.steps.records import StepRecords
from agent.steps.step_server import StepServer
from agent.steps.task_hosts import TaskHosts
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
    SearchLog,
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
from wire.agent.steps import InputTaken, StepCall, StepNumber, TaskAway


class Agent:
    """Runs attempts of jobs on one node, as the controller orders.

    The agent has one thread. `AttemptStates` decides which actions are needed and does no I/O;
    `AttemptRunner` carries the actions out. This class has the loop, and passes each message of the
    controller to the object that handles it.

    Start
    1. `adopt`: take over the attempts that earlier agents left in the spool.
    2. `serve`: send the hello, the first message to the controller. The hello contains every attempt whose
       end the controller has not stored yet.
    3. Watch the supervisors that still run. Launch a supervisor for each attempt that has none.

    The loop (`_run_once`)
    1. Send parts of the logs that clients read, as long as the controller reads these parts fast enough. Read
       one block for each log search.
    2. Watch the supervisors that were forked in the last iteration. Leave out supervisors whose attempts have
       already ended.
    3. Write queued messages to the fork server and to the controller.
    4. Exit if this host cannot run jobs and all reports have been written.
    5. Wait for the next event and handle it:
       - a message from the controller: `_handlers` has the method for each kind of message;
       - a hint, which is a line on a FIFO: the fork server has forked a supervisor, or a supervisor has
         recorded a start, a checkpoint or an end;
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
        self.running_log_bytes = policy.log_running_mib << 20
        self.usage = UsageReporter(spool, self.attempts, cgroups, runtime, self._send_gpu_frame)
        self.cpus = CpuAllocator(host, policy.bind, offered_cpus, self.attempts.has_ended)
        scratch = scratch or ScratchArea("", "none")
        self.launches = LaunchBuilder(
            accounts, self.cpus, cgroups, policy, runtime, scratch, spool.mark_key, lambda: gpus.facts
        )
        self.runner = AttemptRunner(
            self.loop,
            spool,
            self.attempts,
            self.launches,
            gpus,
            SettledLogs(policy),
            self._send_report,
            self._forget,
        )
        self.checkpoints = CheckpointWatcher(
            self.loop,
            policy.checkpoint_look_s,
            self.attempts.running_keys,
            self._checkpoint_spec,
            lambda key, checkpoint: self.runner.perform(self.attempts.checkpoint_found(key, checkpoint)),
        )
        self.logs = LogReader(spool, self.attempts.has_ended, channel)
        self.log_search = LogSearch(spool, self.attempts.has_ended, channel)
        self.exec_sessions = ExecSessions(self.loop, channel, self._exec_spec, self.attempts.has_ended)
        self.task_hosts = TaskHosts(spool, self.loop, channel, self._exec_spec, self.attempts.has_ended)
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
        """The reason why this host cannot run jobs; empty if the host can run jobs."""
        attempts, perform = self.attempts, self.runner.perform
        self._handlers: dict[type, Callable[[Any], None]] = {
            Start: lambda order: perform(attempts.start(order, time.time())),
            Stop: lambda stop: perform(attempts.stop(stop, time.time())),
            Go: lambda go: perform(attempts.release(go)),
            Settle: lambda settle: perform(attempts.settle(settle)),
            TimeLimit: self._extend_limit,
            Signal: self._signal_job,
            Save: lambda each: self.saver.save((each.job, each.attempt)),
            Note: self._write_note,
            ReadLog: self.logs.read,
            SearchLog: self.log_search.search,
            StopReading: self._stop_reading,
            CheckGpu: lambda each: gpus.schedule_check(each.uuid, each.after_s),
            ResetGpu: lambda each: gpus.schedule_reset(each.uuid, each.command, each.after_s),
            OpenShell: lambda each: (self.task_hosts if each.task else self.exec_sessions).open(each),
            ShellInput: partial(self._to_command, self.exec_sessions.write),
            ShellTaken: partial(self._to_command, self.exec_sessions.acknowledge),
            ResizeShell: self.exec_sessions.resize,
            CloseShell: partial(self._to_command, self.exec_sessions.close),
            ShellSignal: partial(self._to_command, self.exec_sessions.send_signal),
            ShellOutput: self.step_server.take_answer,
            ShellEnded: self.step_server.take_answer,
            StepNumber: self.step_server.take_answer,
            InputTaken: self.step_server.take_answer,
            TaskAway: self.step_server.take_answer,
            StepCall: self.step_server.take_call,
            Ping: self._answer_ping,
            Leave: self._leave,
        }

    # --- start of the agent, and its loop ---

    def adopt(self) -> None:
        """Take over the attempts of earlier agents (agent/adoption.py)."""
        adopt_attempts(self.spool, self.attempts, self.runner, self.steps, self.cpus)

    def unsettled(self) -> tuple[AttemptStatus, ...]:
        """Return the status of each attempt whose end the controller has not stored yet, with its usage, its
        steps and the last lines of its logs. The hello (the first message to the controller) contains the
        result.
        """
        measured = map(self.usage.with_usage, self.attempts.unsettled())
        return tuple(with_tail(self.spool, self.steps.with_steps(each)) for each in measured)

    def serve(self, hello: Hello) -> None:
        """Send the hello (the first message to the controller). Then run the loop until the connection is
        closed or this agent must exit.
        """
        self.channel.send(hello)
        self.runner.start()
        self.steps.report_all()
        self.step_server.mark_key = self.spool.mark_key
        self.step_server.listen()
        self.loop.on_readable(self.channel.source, self._receive)
        self.task_hosts.adopt((each.job, each.attempt) for each in self.attempts.unsettled())
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
            self.step_server.close()

    def _run_once(self) -> None:
        self.logs.send_chunks()
        self.log_search.read_blocks()
        if self.logs.following and not self.retry_logs_planned:
            self.retry_logs_planned = True
            self.loop.call_later(POLL_S, self._retry_logs)
        self.runner.watches.watch_new()
        self.runner.fork_server.flush()
        channel = self.channel
        channel.flush()
        self.step_server.resume()
        self.task_hosts.resume()
        if self.unfit_reason and not channel.unsent_bytes:
            print(f"agent: it cannot run jobs: {self.unfit_reason}", file=sys.stderr)
            raise AgentExit
        self.loop.on_writable(channel.sink, channel.flush if channel.unsent_bytes else None)
        busy = self.log_search.ready or (self.logs.ready and not channel.congested)
        self.loop.run_once(sleep=not busy)

    # --- messages from the controller ---

    def _receive(self) -> None:
        for frame in self.channel.receive():
            handle = self._handlers.get(type(frame))
            if handle is None:
                print(f"agent: ignored a {type(frame).__name__} frame", file=sys.stderr)
            else:
                handle(frame)

    def _stop_reading(self, order: StopReading) -> None:
        self.logs.stop(order.request)
        self.log_search.stop(order.request)

    def _answer_ping(self, ping: Ping) -> None:
        if ping.heard is not None:
            try:
                self.spool.renew_leases(ping.heard)
            except OSError as error:
                # If the time of the last contact cannot be written, print the error and continue. If no later
                # write succeeds before the leases expire, the supervisors end the jobs.
                print(f"agent: leases cannot be renewed: {error}", file=sys.stderr)
        if ping.journal:
            self.spool.epochs.remember_journal(ping.journal)
        self.channel.send(Pong(ping.beat, lease.boot_time_s()))

    def _to_command(self, of_session: Callable[[Any], None], frame: Any) -> None:
        """Pass a message about a running command to the process that runs the command. If the command is a
        task of srun that a task host runs, the task host gets the message. Otherwise `of_session`, a method
        of the `corral exec` sessions, is called with the message.
        """
        if not self.task_hosts.pass_on(frame):
            of_session(frame)

    def _leave(self, _: Leave) -> None:
        raise AgentExit

    def _signal_job(self, frame: Signal) -> None:
        """Send a signal to processes of a job. The order is not stored in the spool. If the agent is
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
            processes += [*self.exec_sessions.processes(key), *self.task_hosts.processes(key)]
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
        """Return the pids of all processes of an attempt, including the processes of `corral exec` commands
        and of tasks that srun has started from other nodes.
        """
        supervisor = self.spool.supervisor_pid(key)
        found = [*self.exec_sessions.processes(key), *self.task_hosts.processes(key)]
        if supervisor is not None:
            found += process_tree.descendants(supervisor)
        return found + AttemptCgroup(self.launches.cgroups.parts(format_key(key), None, 0)).members()

    def _kill_tasks(self, key: AttemptKey, step: int) -> None:
        """Kill the tasks that a step has on this node, because its srun was killed."""
        if self.attempts.has_ended(key) is False:
            process_tree.send_signal(tasks_of_step(self._processes_of(key), step), signal.SIGKILL)

    def _extend_limit(self, frame: TimeLimit) -> None:
        """Write a longer time limit to the spool. The supervisor reads this limit when the warning signal or
        the end of the job is due.
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

    # --- reports, logs, checkpoints and GPU readings ---

    def _send_report(self, status: AttemptStatus) -> None:
        """Send the report of an attempt. If the attempt ended because this host cannot run jobs
        (`node_unfit`), the agent exits after the report. The node then gets no jobs until an agent connects
        again.
        """
        status = self.steps.with_steps(self.usage.with_usage(status))
        self.channel.send(Report(with_tail(self.spool, status)))
        if status.pid is not None and status.ended_at is None:
            self.health_checks.watch((status.job, status.attempt))
            self.saver.watch((status.job, status.attempt))
        word, _, why = status.why.partition(": ")
        if word == NODE_UNFIT and status.ended_at is not None:
            self.unfit_reason = why

    def _forget(self, key: AttemptKey) -> None:
        self.usage.forget(key)
        self.steps.forget(key)

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
