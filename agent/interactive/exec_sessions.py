"""Runs the commands of `corral exec` in the allocations of running jobs, with or without a terminal."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import subprocess
import termios
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import Callable, Mapping

from agent.attempts.launch.launch_spec import LaunchSpec
from agent.attempts.spool import AttemptKey, format_key
from agent.controller_channel import Channel
from agent.event_loop import EventLoop, await_readable
from agent.processes import process_tree
from wire.agent.orders import CloseShell, OpenShell, ResizeShell, ShellInput, ShellSignal, ShellTaken
from wire.agent.reports import ShellEnded, ShellOutput
from wire.dataclass import dataclass
from wire.program_parts import COMMAND_IN_JOB

READ_BYTES = 1 << 15
WINDOW_BYTES, STEP_WINDOW_BYTES = 1 << 20, 256 << 10
"""The most bytes of output of a command that are sent and not acknowledged. At this number, no more output is
read, so that the command blocks, until the client acknowledges bytes. The first value is for `corral exec`.
The second is for a task of srun, and is smaller because srun may have thousands of tasks.
"""
_MOST_INPUT, MOST_STEP_INPUT = 1 << 30, 16 << 20
"""The most bytes of input that may wait until the command reads them. The first value is for `corral exec`,
the second for a task of srun.
"""
MAX_SESSIONS = 64
MAX_STEP_TASKS, MAX_TASKS_OF_ATTEMPT = 512, 256
"""The most tasks that srun on other nodes may run on this node: of all attempts together, and of one attempt.
These tasks do not count for MAX_SESSIONS.
"""
CHECK_S, _IDLE_CHECK_S = 0.1, 1.0
_KILLED_CHECKS = 20
"""If a signal has killed a command, the end of the job may be the cause. So the agent checks this many times
whether the job has ended. If it has, the client gets this reason, otherwise only the signal.
"""


class CannotExec(Exception):
    """Raised if a command of `corral exec` cannot be run. The message is the reason."""


@dataclass
class Session:
    request: int
    key: AttemptKey
    process: subprocess.Popen[bytes]
    sink: int
    sources: dict[int, str]
    terminal: bool
    step: bool = False
    pmi: int = -1
    credit: int = 0
    cpu_s: float = 0.0
    max_rss_kib: int = 0
    waiting: bytearray = field(default_factory=bytearray)
    pmi_waiting: bytearray = field(default_factory=bytearray)
    finished: bool = False
    checks_since_killed: int = 0

    def __post_init__(self) -> None:
        self.credit = self.window

    @property
    def window(self) -> int:
        return STEP_WINDOW_BYTES if self.step else WINDOW_BYTES

    def poll(self) -> bool:
        """Return whether the command has exited. Store the CPU time and memory that the command and its ended
        descendants have used.
        """
        if self.process.returncode is not None:
            return True
        ended, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if ended:
            self.process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu_s, self.max_rss_kib = usage.ru_utime + usage.ru_stime, usage.ru_maxrss
        return bool(ended)


class ExecSessions:
    """The sessions of this node. A session is one running command of `corral exec`, or a task that srun has
    started from another node.

    1. `open` starts the command with the job's user, environment and cgroups. If this fails, the client gets
       the reason.
    2. Read output and send the output while the session has credit (the number of bytes that may be sent).
       `acknowledge` adds credit.
    3. End a session when its command has exited and its output is read. If the job ends, the client closes
       the session, or the agent exits, kill the command and its descendants, and end the session.
    4. When a job has ended, kill the processes that its sessions have left. The agent finds these processes
       by their marks (process_marks.py).

    The argument `prepare` returns the launch spec of a command, or raises CannotExec.
    """

    def __init__(
        self,
        loop: EventLoop,
        channel: Channel,
        prepare: Callable[[AttemptKey, tuple[str, ...], str, Mapping[str, str]], LaunchSpec],
        has_ended: Callable[[AttemptKey], bool | None],
    ) -> None:
        self._loop = loop
        self._channel = channel
        self._prepare = prepare
        self._has_ended = has_ended
        self._open: dict[int, Session] = {}
        self._used_specs: dict[AttemptKey, LaunchSpec] = {}
        self._check_planned = False

    def open(self, order: OpenShell) -> None:
        """Start a command of `corral exec`. If the command cannot start, send ShellEnded with the reason to
        the client.
        """
        key = (order.job, order.attempt)
        try:
            self._check_tasks_of_attempt(order)
            same = sum(each.step is order.step for each in self._open.values())
            if same >= (MAX_STEP_TASKS if order.step else MAX_SESSIONS):
                kind = "tasks of srun from other nodes" if order.step else "exec commands"
                raise CannotExec(f"{same} {kind} run on this node already; end one of them")
            wrong = next((name for name in order.variables if not is_settable(name, order.variables)), None)
            if wrong is not None:
                raise CannotExec(f"{wrong!r} cannot be a variable of the environment")
            term = order.term if order.tty else ""
            launch = self._prepare(key, order.command, term, order.variables)
            session = _start_on_terminal(order, launch) if order.tty else start_on_pipes(order, launch)
        except (CannotExec, OSError) as error:
            self._channel.send(ShellEnded(order.request, error=str(error)))
            return
        self._open[order.request] = session
        self._used_specs[key] = launch
        self._set_readers(session)
        if not self._check_planned:
            self._check_planned = True
            self._loop.call_later(CHECK_S, self._check)

    def _check_tasks_of_attempt(self, order: OpenShell) -> None:
        key = (order.job, order.attempt)
        same = sum(each.step and each.key == key for each in self._open.values()) if order.step else 0
        if same >= MAX_TASKS_OF_ATTEMPT:
            raise CannotExec(
                f"{same} tasks of job {order.job} that srun has started from other nodes run on this node "
                "already; wait until one has ended"
            )

    def write(self, frame: ShellInput) -> None:
        session = self._open.get(frame.request)
        if session is None:
            return
        try:
            data = b64decode(frame.data)
        except ValueError as error:
            self._end(session, f"its input is not valid base64: {error}")
            return
        if frame.pmi:
            session.pmi_waiting += data
            self._flush_pmi(session)
        elif session.sink >= 0:
            session.waiting += data
            session.finished = session.finished or frame.end
            self._flush(session)
        most = MOST_STEP_INPUT if session.step else _MOST_INPUT
        if len(session.waiting) + len(session.pmi_waiting) > most:
            self._end(
                session,
                f"the command was ended, because it had not read {most >> 20} MiB of its input; "
                "let it read its input from a file",
            )

    def processes(self, key: AttemptKey) -> list[int]:
        """Return the processes of all sessions that run in an attempt."""
        roots = [session.process.pid for session in self._open.values() if session.key == key]
        return [*roots, *(pid for root in roots for pid in process_tree.descendants(root))]

    def show_notice(self, key: AttemptKey, sentence: str) -> None:
        """Write `sentence` as a line `corral: ...` to the terminals of all sessions in an attempt. Sessions
        without a terminal do not get the line, because programs read their output.
        """
        text = b64encode(f"\r\ncorral: {sentence}\r\n".encode("utf-8", "replace")).decode()
        for session in self._open.values():
            if session.key == key and session.terminal:
                self._channel.send(ShellOutput(session.request, text, "stdout"))

    def acknowledge(self, frame: ShellTaken) -> None:
        """Add credit to a session: one byte of output may be sent for each byte that the client has read
        since the last call. Credit never exceeds the window (`WINDOW_BYTES` or `STEP_WINDOW_BYTES`), because
        a user may run a changed srun that acknowledges bytes which were not sent.
        """
        session = self._open.get(frame.request)
        if session is not None:
            session.credit = min(session.window, session.credit + max(0, frame.size))
            self._set_readers(session)

    def resize(self, frame: ResizeShell) -> None:
        session = self._open.get(frame.request)
        if session is not None and session.terminal:
            _resize(session.sink, frame.rows, frame.columns)

    def send_signal(self, frame: ShellSignal) -> None:
        session = self._open.get(frame.request)
        number = signal.Signals.__members__.get(f"SIG{frame.signal}")
        if session is not None and session.process.returncode is None and number is not None:
            process_tree.send_signal([session.process.pid], number.value)

    def close(self, frame: CloseShell) -> None:
        """End a session, because its client has closed the connection."""
        session = self._open.get(frame.request)
        if session is not None:
            self._end(
                session, "the connection was closed, and the command has ended with it; the job goes on"
            )

    def close_all(self) -> None:
        """End all sessions, because the agent is about to exit."""
        for session in list(self._open.values()):
            self._end(session, "the agent has ended, and the command has ended with it; the job goes on")

    def _set_readers(self, session: Session) -> None:
        for source in session.sources:
            self._loop.on_readable(
                source, partial(self._read, session, source) if session.credit > 0 else None
            )

    def _read(self, session: Session, source: int) -> None:
        try:
            data = os.read(source, min(READ_BYTES, max(1, session.credit)))
        except BlockingIOError:
            return
        except OSError:
            # Treat the error as the end of the output: read() fails when no process has the terminal open any
            # more.
            data = b""
        if not data:
            self._drop(session, source)
            return
        session.credit -= len(data)
        stream = session.sources[source]
        self._channel.send(ShellOutput(session.request, b64encode(data).decode(), stream))
        if session.credit <= 0:
            self._set_readers(session)

    def _drop(self, session: Session, source: int) -> None:
        self._loop.on_readable(source, None)
        del session.sources[source]
        if source == session.pmi:
            self._loop.on_writable(source, None)
            session.pmi = -1
        if source != session.sink:
            os.close(source)

    def _flush(self, session: Session) -> None:
        try:
            while session.waiting:
                del session.waiting[: os.write(session.sink, session.waiting[:READ_BYTES])]
        except BlockingIOError:
            self._loop.on_writable(session.sink, partial(self._flush, session))
            return
        except OSError:
            session.waiting.clear()  # Discard the input, because the command has closed its stdin.
        self._loop.on_writable(session.sink, None)
        if session.finished and not session.terminal:
            os.close(session.sink)
            session.sink = -1

    def _flush_pmi(self, session: Session) -> None:
        """Write the waiting messages of PMI (the start protocol of MPI programs) to the command's socket."""
        if session.pmi < 0:
            session.pmi_waiting.clear()  # Discard the messages, because the command has closed its socket.
            return
        try:
            while session.pmi_waiting:
                del session.pmi_waiting[: os.write(session.pmi, session.pmi_waiting[:READ_BYTES])]
        except BlockingIOError:
            self._loop.on_writable(session.pmi, partial(self._flush_pmi, session))
            return
        except OSError:
            session.pmi_waiting.clear()
        self._loop.on_writable(session.pmi, None)

    def _check(self) -> None:
        for session in list(self._open.values()):
            if self._has_ended(session.key) is not False:
                self._end(session, "the job has ended, and the command with it")
            elif session.poll() and not any(map(await_readable, session.sources)):
                session.checks_since_killed += 1
                if session.process.returncode >= 0 or session.checks_since_killed > _KILLED_CHECKS:
                    self._finish(session)
        for key in [key for key in self._used_specs if self._has_ended(key) is not False]:
            # Kill the processes that commands of `corral exec` have left in the ended job. This is needed on
            # hosts without cgroups.
            left = self._used_specs.pop(key)
            uid = None if left.user is None else left.user[0]
            strays = process_tree.find_strays(left.directory, format_key(key), None, None, uid, left.mark_key)
            process_tree.send_signal(strays, signal.SIGKILL)
        self._check_planned = bool(self._used_specs)
        if self._check_planned:
            self._loop.call_later(CHECK_S if self._open else _IDLE_CHECK_S, self._check)

    def _end(self, session: Session, why: str) -> None:
        """Send SIGHUP to the session's process group, and then SIGKILL to the command and its descendants.
        `why` is the reason that the client gets.
        """
        with suppress(OSError):
            os.killpg(session.process.pid, signal.SIGHUP)
        process_tree.send_signal(
            [*process_tree.descendants(session.process.pid), session.process.pid], signal.SIGKILL
        )
        session.process.wait()
        self._finish(session, why)

    def _finish(self, session: Session, why: str = "") -> None:
        for source in list(session.sources):
            self._drop(session, source)
        if session.sink >= 0:
            self._loop.on_writable(session.sink, None)
            os.close(session.sink)
        del self._open[session.request]
        code = session.process.returncode
        ended = ShellEnded(session.request, code) if code >= 0 else ShellEnded(session.request, signal=-code)
        if session.step:
            ended = replace(ended, cpu_s=round(session.cpu_s, 3), max_rss_kib=session.max_rss_kib)
        self._channel.send(replace(ended, error=why))


def _start_on_terminal(order: OpenShell, launch: LaunchSpec) -> Session:
    agent_end, command_end = os.openpty()
    _resize(agent_end, order.rows, order.columns)
    try:
        process = spawn_in_job(launch, "tty", command_end, command_end, command_end)
    except OSError:
        os.close(agent_end)
        raise
    finally:
        os.close(command_end)
    os.set_blocking(agent_end, False)
    return Session(order.request, (order.job, order.attempt), process, agent_end, {agent_end: "stdout"}, True)


def start_on_pipes(order: OpenShell, launch: LaunchSpec) -> Session:
    ours, theirs = _pmi_sockets(launch) if order.pmi else (-1, -1)
    try:
        process = spawn_in_job(launch, "", subprocess.PIPE, subprocess.PIPE, subprocess.PIPE, theirs)
    except OSError:
        if ours >= 0:
            os.close(ours)
        raise
    finally:
        if theirs >= 0:
            os.close(theirs)
    descriptors = []
    for pipe in (process.stdin, process.stdout, process.stderr):
        assert pipe is not None
        descriptors.append(os.dup(pipe.fileno()))
        pipe.close()
        os.set_blocking(descriptors[-1], False)
    sink, out, err = descriptors
    sources = {out: "stdout", err: "stderr"}
    if ours >= 0:
        sources[ours] = "pmi"
    key = (order.job, order.attempt)
    return Session(order.request, key, process, sink, sources, False, order.step, ours)


def is_settable(name: str, variables: Mapping[str, str]) -> bool:
    return bool(name) and "=" not in name and "\0" not in name + variables[name]


def _pmi_sockets(launch: LaunchSpec) -> tuple[int, int]:
    """Return two connected descriptors: the first is for the agent, and the command gets the second one as
    PMI_FD.
    """
    pair = socket.socketpair()
    ours, theirs = (each.detach() for each in pair)
    os.set_blocking(ours, False)
    launch.env["PMI_FD"] = str(theirs)
    return ours, theirs


def spawn_in_job(
    launch: LaunchSpec, terminal: str, stdin: int, stdout: int, stderr: int, extra: int = -1
) -> subprocess.Popen[bytes]:
    """Start a command with the user, environment and cgroups of a running job. `terminal` is not empty if
    `stdin` is a terminal. If `extra` is not -1, the command also inherits this descriptor. Raise OSError if
    the process cannot be created.
    """
    source, sink = os.pipe()
    try:
        process = subprocess.Popen(
            COMMAND_IN_JOB.command(str(source), terminal),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd="/",
            env={"LANG": "C.UTF-8"},
            start_new_session=True,
            pass_fds=(source,) if extra < 0 else (source, extra),
        )
    finally:
        os.close(source)
    with open(sink, "wb") as file, suppress(BrokenPipeError):
        file.write(launch.pack())
    return process


def _resize(descriptor: int, rows: int, columns: int) -> None:
    with suppress(OSError, struct.error):
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
