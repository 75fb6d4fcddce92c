"""The task host: a process that runs the tasks that srun on other nodes has started on this node. The task
host outlives the agent.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import time
from base64 import b64decode, b64encode
from collections import deque
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import Optional

from agent.attempts.launch import launch_spec
from agent.attempts.launch.launch_spec import LaunchSpec
from agent.event_loop import EventLoop, await_readable, receive
from agent.interactive.exec_sessions import (
    MAX_TASKS_OF_ATTEMPT,
    READ_BYTES,
    STEP_WINDOW_BYTES,
    Session,
    start_on_pipes,
)
from agent.processes import process_tree
from wire.agent.frames import Frame, pack, unpack
from wire.agent.orders import CloseShell, OpenShell, ShellInput, ShellSignal, ShellTaken
from wire.agent.reports import ShellEnded, ShellOutput
from wire.agent.steps import STEP_INPUT_WINDOW, InputTaken
from wire.codec import Malformed
from wire.dataclass import dataclass

SOCKET = "tasks.sock"
"""The socket of the task host, in the directory of the attempt. Only root and the agent's user can enter this
directory.
"""
SPEC = b"spec "
"""The beginning of a line with a launch spec as base64. The launch spec is for the next OpenShell message,
which starts a task.
"""
END = b"end "
"""The beginning of the line with which the agent ends all tasks and the task host. The reason follows in the
same line.
"""
ALONE_S = 600.0
"""A task is ended after it had no connection to its srun for this many seconds. The task is not ended while
no agent is connected, because srun cannot connect to the task without an agent. A task host without running
tasks exits after the same number of seconds.
"""
_CHECK_S, _IDLE_CHECK_S = 0.1, 5.0
_MOST_WAITING = 2 * STEP_INPUT_WINDOW + (1 << 20)
"""A task is ended if more than this many bytes of input wait to be read by the task. srun sends at most
STEP_INPUT_WINDOW bytes, but the user can change srun.
"""
_MOST_ENDED = 4_096


@dataclass
class _Task:
    """A task. `unread` has the output that srun has not acknowledged; its first byte is byte `unread_from` of
    the whole output. `request` is the number of the task in messages of the agent. `request` is 0 if no srun
    is connected to the task. `alone_since` is then the time of the disconnection.
    """

    name: str
    session: Session
    request: int = 0
    unread: deque[tuple[str, bytes]] = field(default_factory=deque)
    unread_from: int = 0
    unread_bytes: int = 0
    pmi_waiting: bytearray = field(default_factory=bytearray)
    stdin_taken: int = 0
    pmi_taken: int = 0
    alone_since: float = 0.0
    ended: Optional[ShellEnded] = None


class TaskHost:
    """Runs tasks of one attempt, and exchanges messages about these tasks with the agent. The agent may
    disconnect, and a later agent may connect.

    1. OpenShell with a new name starts a task: a process with the job's user, environment and cgroups.
    2. The output of a task is sent, and kept until srun acknowledges the output (ShellTaken). While
       STEP_WINDOW_BYTES of output are kept, no further output is read, and the task blocks when it writes.
    3. Input from srun is written to the stdin of the task as fast as the task reads. InputTaken reports to
       srun the number of bytes that the task has read.
    4. When the connection to the agent is lost, the tasks continue. OpenShell with the name of a known task
       connects srun to this task again: send all output after the first `received` bytes, and the exit status
       of an ended task. Drop the input that the task has not read, because srun sends this input again.
    5. A task ends in five cases: its program exits, srun closes the task, the job ends, no srun was connected
       to the task for ALONE_S seconds, or too much input waits for the task (_MOST_WAITING).

    Invariant: srun gets each byte of the output once and in order, and the task gets each byte of its input
    once and in order. Cost: one Python process for each attempt on each node with tasks of srun from other
    nodes; for each task at most STEP_WINDOW_BYTES of output and, normally, STEP_INPUT_WINDOW bytes of input
    are kept.
    """

    def __init__(self, listener: socket.socket, directory: str) -> None:
        self._listener = listener
        self._directory = directory
        self._loop = EventLoop()
        self._agent: Optional[socket.socket] = None
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._spec: Optional[LaunchSpec] = None
        self._tasks: dict[str, _Task] = {}
        self._requests: dict[int, _Task] = {}
        self._idle_since = time.monotonic()
        self._checking = False
        self._ending = False
        self._loop.on_readable(listener.fileno(), self._accept)

    def run(self) -> None:
        """Handle messages and tasks until the attempt has ended, or until no task has run for ALONE_S
        seconds.
        """
        self._wake()
        while not self._may_exit():
            self._loop.run_once()
        with suppress(OSError):
            os.unlink(f"{self._directory}/{SOCKET}")

    def _wake(self) -> None:
        """Wake `run` every _IDLE_CHECK_S seconds, so that `run` calls `_may_exit` also while no task runs."""
        self._loop.call_later(_IDLE_CHECK_S, self._wake)

    def _may_exit(self) -> bool:
        if any(task.ended is None for task in self._tasks.values()):
            return False
        if self._ending:
            return not self._outgoing
        return time.monotonic() - self._idle_since > ALONE_S or not os.path.isdir(self._directory)

    # --- the connection to the agent ---

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in (0, os.geteuid()):
            sock.close()
            return
        self._disconnect()
        sock.setblocking(False)
        self._agent = sock
        now = time.monotonic()
        for task in self._tasks.values():
            task.alone_since = now
        self._loop.on_readable(sock.fileno(), self._receive)

    def _disconnect(self) -> None:
        sock, self._agent = self._agent, None
        if sock is None:
            return
        self._loop.on_readable(sock.fileno(), None)
        self._loop.on_writable(sock.fileno(), None)
        sock.close()
        self._incoming.clear()
        self._outgoing.clear()
        self._requests.clear()
        for task in self._tasks.values():
            task.request = 0

    def _receive(self) -> None:
        assert self._agent is not None
        data = receive(self._agent, 1 << 18)
        if data is None:
            return
        if not data:
            self._disconnect()
            return
        self._incoming += data
        *lines, self._incoming = self._incoming.split(b"\n")
        for line in lines:
            if line.startswith(SPEC):
                self._spec = launch_spec.take_spec(bytearray(b64decode(line[len(SPEC) :])))
            elif line.startswith(END):
                self._end_all(line[len(END) :].decode("utf-8", "replace"))
            else:
                with suppress(Malformed):
                    self._take(unpack(bytes(line)))

    def _send(self, task: _Task, frame: Frame) -> None:
        if self._agent is not None and task.request:
            self._outgoing += pack(frame)
            self._flush()

    def _flush(self) -> None:
        if self._agent is None:
            return
        try:
            while self._outgoing:
                del self._outgoing[: self._agent.send(self._outgoing[: 1 << 18])]
        except BlockingIOError:
            self._loop.on_writable(self._agent.fileno(), self._flush)
            return
        except OSError:
            self._disconnect()
            return
        self._loop.on_writable(self._agent.fileno(), None)

    # --- messages about tasks ---

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, OpenShell):
            self._open(frame)
            return
        task = self._requests.get(getattr(frame, "request", 0))
        if task is None:
            return
        if isinstance(frame, ShellTaken):
            self._drop_output(task, min(max(frame.size, 0), task.unread_bytes))
        elif isinstance(frame, CloseShell) and frame.keep:
            self._leave_alone(task)
        elif task.ended is not None:
            return
        elif isinstance(frame, ShellInput):
            self._write(task, frame)
        elif isinstance(frame, ShellSignal):
            number = signal.Signals.__members__.get(f"SIG{frame.signal}")
            if number is not None and task.session.process.returncode is None:
                process_tree.send_signal([task.session.process.pid], number.value)
        elif isinstance(frame, CloseShell):
            self._end(task, "the task was ended, because srun has ended")

    def _open(self, order: OpenShell) -> None:
        spec, self._spec = self._spec, None
        task = self._tasks.get(order.task)
        if task is None:
            why = self._start(order, spec)
            if why:
                self._outgoing += pack(ShellEnded(order.request, error=why))
                self._flush()
                return
            task = self._tasks[order.task]
        self._requests.pop(task.request, None)
        self._requests[order.request] = task
        task.request = order.request
        task.session.waiting.clear()
        task.session.finished = False
        task.pmi_waiting.clear()
        self._drop_output(task, min(max(order.received - task.unread_from, 0), task.unread_bytes))
        self._tell_taken(task)
        for stream, data in task.unread:
            self._send(task, ShellOutput(task.request, b64encode(data).decode(), stream))
        if task.ended is not None:
            self._send(task, replace(task.ended, request=task.request))

    def _start(self, order: OpenShell, spec: Optional[LaunchSpec]) -> str:
        """Start a task. Return an empty text, or the reason if the task cannot start."""
        if order.resume or spec is None:
            return "the task has ended, because the process of Corral that ran it on its node was killed"
        running = sum(task.ended is None for task in self._tasks.values())
        if running >= MAX_TASKS_OF_ATTEMPT:
            return (
                f"{running} tasks of job {order.job} that srun has started from other nodes run on this node "
                "already; wait until one has ended"
            )
        try:
            session = start_on_pipes(order, spec)
        except OSError as error:
            return str(error)
        for old in [name for name, each in self._tasks.items() if each.ended is not None][:-_MOST_ENDED]:
            del self._tasks[old]
        task = self._tasks[order.task] = _Task(order.task, session)
        self._set_readers(task)
        if not self._checking:
            self._checking = True
            self._loop.call_later(_CHECK_S, self._check)
        return ""

    def _leave_alone(self, task: _Task) -> None:
        self._requests.pop(task.request, None)
        task.request, task.alone_since = 0, time.monotonic()

    # --- input of tasks ---

    def _write(self, task: _Task, frame: ShellInput) -> None:
        try:
            data = b64decode(frame.data)
        except ValueError:
            return
        session = task.session
        if frame.pmi:
            task.pmi_waiting += data
            self._flush_pmi(task)
        else:
            session.waiting += data
            session.finished = session.finished or frame.end
            self._flush_stdin(task)
        if len(session.waiting) + len(task.pmi_waiting) > _MOST_WAITING:
            self._end(task, "the task was ended, because too much input waited to be read by the task")

    def _flush_stdin(self, task: _Task) -> None:
        session = task.session
        if session.sink < 0:
            task.stdin_taken += len(session.waiting)
            session.waiting.clear()
            self._tell_taken(task)
            return
        before = task.stdin_taken
        try:
            while session.waiting:
                written = os.write(session.sink, session.waiting[:READ_BYTES])
                task.stdin_taken += written
                del session.waiting[:written]
        except BlockingIOError:
            self._loop.on_writable(session.sink, partial(self._flush_stdin, task))
            if task.stdin_taken > before:
                self._tell_taken(task)
            return
        except OSError:
            # The task has closed its stdin. Discard the input.
            task.stdin_taken += len(session.waiting)
            session.waiting.clear()
        self._loop.on_writable(session.sink, None)
        if session.finished:
            os.close(session.sink)
            session.sink = -1
        if task.stdin_taken > before:
            self._tell_taken(task)

    def _flush_pmi(self, task: _Task) -> None:
        number = task.session.pmi
        before = task.pmi_taken
        try:
            while task.pmi_waiting and number >= 0:
                written = os.write(number, task.pmi_waiting)
                task.pmi_taken += written
                del task.pmi_waiting[:written]
        except BlockingIOError:
            self._loop.on_writable(number, partial(self._flush_pmi, task))
            return
        except OSError:
            task.pmi_waiting.clear()
        if number >= 0:
            self._loop.on_writable(number, None)
        if task.pmi_taken > before:
            self._tell_taken(task)

    def _tell_taken(self, task: _Task) -> None:
        self._send(task, InputTaken(task.request, task.stdin_taken, task.pmi_taken))

    # --- output and end of tasks ---

    def _set_readers(self, task: _Task) -> None:
        for source in task.session.sources:
            room = task.unread_bytes < STEP_WINDOW_BYTES
            self._loop.on_readable(source, partial(self._read, task, source) if room else None)

    def _read(self, task: _Task, source: int) -> None:
        try:
            data = os.read(source, min(READ_BYTES, max(1, STEP_WINDOW_BYTES - task.unread_bytes)))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop_source(task, source)
            return
        stream = task.session.sources[source]
        task.unread.append((stream, data))
        task.unread_bytes += len(data)
        self._send(task, ShellOutput(task.request, b64encode(data).decode(), stream))
        if task.unread_bytes >= STEP_WINDOW_BYTES:
            self._set_readers(task)

    def _drop_output(self, task: _Task, size: int) -> None:
        """Drop the first `size` bytes of the kept output, because srun has received these bytes."""
        task.unread_from += size
        task.unread_bytes -= size
        while size:
            stream, data = task.unread.popleft()
            if len(data) > size:
                task.unread.appendleft((stream, data[size:]))
            size -= min(size, len(data))
        self._set_readers(task)

    def _drop_source(self, task: _Task, source: int) -> None:
        self._loop.on_readable(source, None)
        if source == task.session.pmi:
            self._loop.on_writable(source, None)
            task.session.pmi = -1
        del task.session.sources[source]
        os.close(source)

    def _check(self) -> None:
        """Report tasks that have ended. End tasks without a connection to srun for ALONE_S seconds, and all
        tasks if the attempt's directory no longer exists. Check again after _CHECK_S seconds while a task
        runs.
        """
        now = time.monotonic()
        running = [task for task in self._tasks.values() if task.ended is None]
        for task in running:
            if task.session.poll() and not any(map(await_readable, task.session.sources)):
                self._finish(task)
            elif self._agent is not None and not task.request and now - task.alone_since > ALONE_S:
                self._end(task, "the task was ended, because srun has not connected to it again")
        if running:
            self._idle_since = now
        if running and not os.path.isdir(self._directory):
            self._end_all("the job has ended")
        self._checking = bool(running)
        if running:
            self._loop.call_later(_CHECK_S, self._check)

    def _end_all(self, why: str) -> None:
        self._ending = True
        for task in self._tasks.values():
            if task.ended is None:
                self._end(task, why)

    def _end(self, task: _Task, why: str) -> None:
        """Kill a task with its descendants. `why` is the reason that srun gets."""
        pid = task.session.process.pid
        with suppress(OSError):
            os.killpg(pid, signal.SIGHUP)
        process_tree.send_signal([*process_tree.descendants(pid), pid], signal.SIGKILL)
        task.session.process.wait()
        self._finish(task, why)

    def _finish(self, task: _Task, why: str = "") -> None:
        session = task.session
        for source in list(session.sources):
            self._drop_source(task, source)
        if session.sink >= 0:
            self._loop.on_writable(session.sink, None)
            os.close(session.sink)
            session.sink = -1
        code = session.process.returncode
        ended = ShellEnded(0, code) if code >= 0 else ShellEnded(0, signal=-code)
        ended = replace(ended, cpu_s=round(session.cpu_s, 3), max_rss_kib=session.max_rss_kib, error=why)
        task.ended = ended
        self._send(task, replace(ended, request=task.request))


def main() -> None:
    """Run a task host. The arguments are the descriptor of the listening socket, and the directory of the
    attempt.
    """
    descriptor, directory = sys.argv[1:]
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    listener = socket.socket(fileno=int(descriptor))
    listener.setblocking(False)
    TaskHost(listener, directory).run()
