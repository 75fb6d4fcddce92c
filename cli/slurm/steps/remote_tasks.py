"""The tasks that srun has started on other nodes through the agent of its node. The tasks continue when a
connection is lost."""

from __future__ import annotations

import signal
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field

from cli.slurm.steps.links import Output, RemoteCommand, TaskEnd
from wire.agent.frames import Frame
from wire.agent.orders import ShellInput, ShellSignal, ShellTaken
from wire.agent.reports import ShellEnded, ShellOutput
from wire.agent.steps import STEP_INPUT_WINDOW, InputTaken, RunTask, TaskAway

_AGAIN_S = 1.0
_START_S = 60.0
"""A task fails if, this many seconds after `open`, its node has not started it and does not answer."""


@dataclass(eq=False)
class _Stream:
    """The input of a task. `taken` is the number of bytes that the task has taken. `kept` are the bytes after
    these, which srun sends again after the loss of a connection.
    """

    taken: int = 0
    kept: bytearray = field(default_factory=bytearray)

    def advance(self, taken: int) -> None:
        size = min(max(taken - self.taken, 0), len(self.kept))
        del self.kept[:size]
        self.taken += size


@dataclass(eq=False)
class _RemoteTask:
    rank: int
    node: str
    command: RemoteCommand
    output: Output
    end: Callable[[TaskEnd], None]
    give_up_at: float
    received: int = 0
    started: bool = False
    asked: bool = False
    """True if RunTask was sent over the present connection to the agent. RunTask is sent only once over a
    connection, because the answers to two of them could be confused.
    """
    connected: bool = False
    stdin: _Stream = field(default_factory=_Stream)
    pmi: _Stream = field(default_factory=_Stream)
    stdin_ends: bool = False
    signals: list[str] = field(default_factory=list)


class RemoteTasks:
    """Starts tasks on other nodes. After the loss of a connection, connects to the tasks again.

    1. `open` sends RunTask. The first answer, InputTaken, means that the task exists, and contains the number
       of bytes of input that the task has taken. After this answer the task is connected.
    2. `write` waits while STEP_INPUT_WINDOW bytes of stdin are on the way that the task has not taken yet.
       Input is kept until the task has taken it. srun acknowledges output of the task after it has written
       it.
    3. When the connection to the agent is lost, no task is connected. After the next connection, send RunTask
       with the number of output bytes that have arrived. The answer contains the byte from which to send the
       input again. Keep signals until this answer, and then send them.
    4. TaskAway means that the node of the task does not answer. Send RunTask again a second later.

    Invariant: each byte of input and output arrives once and in order, however often connections are lost.
    """

    def __init__(self, name: str, send: Callable[[Frame], bool]) -> None:
        self._name = name
        self._send = send
        self._tasks: dict[int, _RemoteTask] = {}
        self._changed = threading.Condition(threading.RLock())

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def open(
        self, rank: int, node: str, command: RemoteCommand, output: Output, end: Callable[[TaskEnd], None]
    ) -> None:
        task = _RemoteTask(rank, node, command, output, end, time.monotonic() + _START_S)
        with self._changed:
            self._tasks[rank] = task
        self._connect(task)

    def connect_all(self) -> None:
        """Connect to all tasks again, over a new connection to the agent."""
        for task in list(self._tasks.values()):
            self._connect(task)

    def disconnect(self) -> None:
        """Record that the connection to the agent is lost."""
        with self._changed:
            for task in self._tasks.values():
                task.asked = task.connected = False

    def write(self, rank: int, data: bytes, *, end: bool, pmi: bool) -> None:
        """Send bytes to the stdin of a task; with `pmi`, to its socket for PMI. For stdin, first wait while
        the task still has to take STEP_INPUT_WINDOW bytes that were sent before.
        """
        with self._changed:
            task = self._tasks.get(rank)
            if task is None:
                return
            while not pmi and len(task.stdin.kept) >= STEP_INPUT_WINDOW and rank in self._tasks:
                self._changed.wait()
            (task.pmi if pmi else task.stdin).kept += data
            task.stdin_ends = task.stdin_ends or end
            if task.connected:
                self._send(ShellInput(rank, b64encode(data).decode(), end, pmi))

    def signal(self, number: int) -> None:
        """Send a signal to all tasks. A task that is not connected gets the signal when it is connected
        again.
        """
        name = signal.Signals(number).name.removeprefix("SIG")
        with self._changed:
            for task in self._tasks.values():
                if not (task.connected and self._send(ShellSignal(task.rank, name))):
                    task.signals.append(name)

    def take(self, frame: Frame) -> None:
        """Handle a message about a task."""
        if not isinstance(frame, (ShellOutput, ShellEnded, InputTaken, TaskAway)):
            return
        task = self._tasks.get(frame.request)
        if task is None:
            return
        if isinstance(frame, ShellOutput):
            data = b64decode(frame.data)
            task.received += len(data)
            task.output(frame.stream, data)
            self._send(ShellTaken(frame.request, len(data)))
        elif isinstance(frame, ShellEnded):
            code = -frame.signal if frame.signal else 1 if frame.code is None else frame.code
            self._end(task.rank, TaskEnd(code, frame.error, frame.cpu_s, frame.max_rss_kib))
        elif isinstance(frame, InputTaken):
            self._advance(task, frame)
        else:
            self._postpone(task, frame.why)

    def _connect(self, task: _RemoteTask) -> None:
        with self._changed:
            if task.asked or task.rank not in self._tasks:
                return
            command = RemoteCommand(()) if task.started else task.command
            task.asked = self._send(
                RunTask(
                    *(task.rank, 0, 0, task.node, f"{self._name}.{task.rank}", command.words),
                    pmi=task.command.pmi,
                    variables=command.variables,
                    received=task.received,
                    resume=task.started,
                )
            )

    def _advance(self, task: _RemoteTask, frame: InputTaken) -> None:
        with self._changed:
            task.stdin.advance(frame.stdin)
            task.pmi.advance(frame.pmi)
            if not task.connected:
                task.started = task.connected = True
                if task.pmi.kept:
                    self._send(ShellInput(task.rank, b64encode(task.pmi.kept).decode(), pmi=True))
                if task.stdin.kept or task.stdin_ends:
                    data = b64encode(task.stdin.kept).decode()
                    self._send(ShellInput(task.rank, data, task.stdin_ends))
                for name in task.signals:
                    self._send(ShellSignal(task.rank, name))
                task.signals.clear()
            self._changed.notify_all()

    def _postpone(self, task: _RemoteTask, why: str) -> None:
        """Connect to the task again later, or end the task if it has not started within _START_S seconds.
        `why` is the reason why its node does not answer.
        """
        with self._changed:
            task.asked = task.connected = False
        if not task.started and time.monotonic() > task.give_up_at:
            self._end(task.rank, TaskEnd(1, why))
            return
        timer = threading.Timer(_AGAIN_S, self._connect, [task])
        timer.daemon = True
        timer.start()

    def _end(self, rank: int, how: TaskEnd) -> None:
        with self._changed:
            task = self._tasks.pop(rank, None)
            self._changed.notify_all()
        if task is not None:
            task.end(how)
