"""The socket on which srun and the agent exchange messages. The messages about tasks on other nodes of the
job are passed to the controller.
"""

from __future__ import annotations

import hmac
import os
import signal
import socket
import struct
import sys
import time
from base64 import b64decode
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Callable, Optional, Union

from agent.attempts.spool import AttemptKey, format_key, parse_key
from agent.controller_channel import Channel
from agent.event_loop import EventLoop, receive
from agent.processes import process_tree
from agent.processes.process_marks import mark_code
from agent.steps import listening_socket
from agent.steps.records import NoSuchStep, StepRecords
from wire import trusted_paths
from wire.agent.frames import Frame, pack, unpack
from wire.agent.orders import CloseShell, ShellInput, ShellSignal, ShellTaken, Signal
from wire.agent.reports import ShellEnded, ShellOutput
from wire.agent.steps import (
    InputTaken,
    OpenTask,
    RunTask,
    StepCall,
    StepHello,
    StepNumber,
    TaskAway,
    socket_path,
)
from wire.codec import Malformed
from wire.job.steps import Step

_READ = 1 << 16
_LONGEST_LINE = 4 << 20
_UNREAD_BYTES, _UNREAD_TASK_BYTES = 64 << 20, 512 << 10
"""The most bytes that an srun may leave unread. An srun with more unread bytes is disconnected. The first
value is for the connection, the second is added for each task on other nodes. A task on another node may send
STEP_WINDOW_BYTES of output (exec_sessions.py), and base64 adds a third to its size.
"""
_UNPROVED_BYTES, _UNPROVED_S = 4_096, 10.0
"""A connection that does not prove its attempt within this many bytes and this many seconds is closed."""
_MOST_CONNECTIONS, _MOST_OF_ATTEMPT = 512, 128
"""The most connections to this agent: of all attempts together, and of one attempt."""
_MOST_UNANSWERED = 32
"""The most StepCalls (messages about a step) of one srun that wait for the answer of the controller. One more
StepCall is refused, or dropped if it reports usage and requests no answer.
"""
_MOST_TASKS = 4_096
"""The most tasks that one srun may start on other nodes."""
_ToTask = Union[ShellInput, ShellTaken, ShellSignal, CloseShell]


@dataclass(eq=False)
class _Connection:
    """The connection of one srun. `requests` maps the numbers that srun assigns to its tasks to the numbers
    that the agent assigns to these tasks. `unread_tasks` is the number of tasks on other nodes whose output
    may be in `outgoing`. `refusal` is the answer to the first StepCall of a connection that was not accepted
    because its attempt has too many connections.
    """

    sock: socket.socket
    pid: int
    uid: int
    prove_until: float
    incoming: bytearray = field(default_factory=bytearray)
    outgoing: bytearray = field(default_factory=bytearray)
    key: Optional[AttemptKey] = None
    step: int = -1
    ended: bool = False
    requests: dict[int, int] = field(default_factory=dict)
    unread_tasks: int = 0
    refusal: str = ""
    unanswered: int = 0
    """The number of StepCalls of this srun that the controller has not answered."""


class StepServer:
    """Answers srun on a Unix socket, and passes the tasks that srun starts on other nodes to the controller.

    1. A connection begins with StepHello. The agent accepts the connection under three conditions: the
       process has the uid of the job, the mark proves the attempt (process_marks.py), and the process belongs
       to the attempt.
    2. StepCall: the agent of the job's first node records the step (StepRecords). Other agents pass the call
       to the controller, which passes the call to the first node.
    3. OpenTask and the messages of the task: replace the number that srun has assigned to the task by a
       number that this agent assigns, and send the message to the controller. In answers of the controller,
       replace the agent's number by the number of srun.
    4. While the controller reads too slowly (`congested`), do not read from connections that have proved
       their attempt: the kernel then stops the writes of srun. `resume` reads from these connections again.
    5. If srun closes its connection before it has reported the end of its step, srun was killed. Record the
       end of the step, and end all tasks of the step.

    Users cannot enter the spool of an agent that runs as root. Therefore the socket of such an agent is in
    /run/corral-agent, in which only root can write. Any user may connect, and step 1 decides whether the
    connection is accepted.

    Invariant: a message of a connection concerns only the attempt that its StepHello has proved, because the
    agent itself writes the attempt into the messages for the controller.

    Cost: one listening socket, even if no job uses srun.
    """

    def __init__(
        self,
        spool: str,
        loop: EventLoop,
        records: StepRecords,
        channel: Channel,
        rank_of: Callable[[AttemptKey], Optional[int]],
        processes: Callable[[AttemptKey], list[int]],
        kill_tasks: Callable[[AttemptKey, int], None],
    ) -> None:
        self.mark_key = ""
        self._path = socket_path(spool, os.geteuid())
        self._loop = loop
        self._records = records
        self._channel = channel
        self._send = channel.send
        self._rank_of = rank_of
        self._processes = processes
        self._kill_tasks = kill_tasks
        self._listener: Optional[socket.socket] = None
        self._connections: dict[_Connection, None] = {}
        self._paused: list[_Connection] = []
        self._check_planned = False
        self._requests: dict[int, tuple[_Connection, int]] = {}
        self._last_request = 0

    def listen(self) -> None:
        """Begin to accept connections. Without the socket, srun uses the API of the controller."""
        try:
            self._listener = listening_socket.bind(self._path)
        except (OSError, trusted_paths.UntrustedPath) as error:
            print(f"agent: srun cannot use this agent: {self._path}: {error}", file=sys.stderr)
            return
        self._loop.on_readable(self._listener.fileno(), self._accept)

    def close(self) -> None:
        """Stop listening and remove the socket, because the agent is about to exit."""
        if self._listener is not None:
            self._loop.on_readable(self._listener.fileno(), None)
            self._listener.close()
            listening_socket.remove(self._path)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if len(self._connections) >= _MOST_CONNECTIONS:
            # Any user of the host can connect. When there are too many connections, close the oldest
            # connection without a proved attempt, so that idle connections do not keep srun out.
            unproved = next((each for each in self._connections if each.key is None), None)
            if unproved is None:
                sock.close()
                return
            self._close(unproved)
        sock.setblocking(False)
        connection = _Connection(sock, pid, uid, time.monotonic() + _UNPROVED_S)
        self._connections[connection] = None
        self._loop.on_readable(sock.fileno(), partial(self._read, connection))
        if not self._check_planned:
            self._check_planned = True
            self._loop.call_later(_UNPROVED_S, self._close_unproved)

    def _close_unproved(self) -> None:
        """Close the connections that have not proved their attempt within _UNPROVED_S seconds."""
        now = time.monotonic()
        for each in [each for each in self._connections if each.key is None and each.prove_until <= now]:
            self._close(each)
        left = [each.prove_until for each in self._connections if each.key is None]
        self._check_planned = bool(left)
        if left:
            self._loop.call_later(max(0.0, min(left) - now), self._close_unproved)

    # --- messages of srun ---

    def resume(self) -> None:
        """Read again from the connections that were not read while the controller read too slowly."""
        if not self._paused or self._channel.congested:
            return
        paused, self._paused = self._paused, []
        for each in paused:
            if each in self._connections:
                self._loop.on_readable(each.sock.fileno(), partial(self._read, each))

    def _read(self, connection: _Connection) -> None:
        if connection.key is not None and self._channel.congested:
            self._loop.on_readable(connection.sock.fileno(), None)
            self._paused.append(connection)
            return
        proved = connection.key is not None
        most = _READ if proved else _UNPROVED_BYTES - len(connection.incoming)
        data = receive(connection.sock, most)
        if data is None:
            return
        connection.incoming += data
        longest = _LONGEST_LINE if proved else _UNPROVED_BYTES
        if not data or (len(connection.incoming) >= longest and b"\n" not in data):
            self._close(connection)
            return
        *lines, connection.incoming = connection.incoming.split(b"\n")
        for line in lines:
            try:
                frame = unpack(bytes(line))
            except Malformed:
                self._close(connection)
                return
            if not self._take(connection, frame):
                self._close(connection)
            if connection not in self._connections:
                return  # The connection was closed, because the answer could not be written.

    def _take(self, connection: _Connection, frame: Frame) -> bool:
        """Handle a message of srun. Return False if the connection must be closed."""
        if connection.key is None:
            return self._greet(connection, frame)
        if not _is_valid(frame):
            return False
        if isinstance(frame, StepCall):
            self._call(connection, connection.key, frame)
        elif isinstance(frame, (OpenTask, RunTask)):
            if len(connection.requests) >= _MOST_TASKS:
                return False
            if frame.request in connection.requests:
                if isinstance(frame, OpenTask):
                    return False
                # srun connects to the task again. Forget the number that the agent gave to the earlier
                # request, so that answers to that request are ignored.
                del self._requests[connection.requests[frame.request]]
            number = self._number(connection, frame.request)
            connection.requests[frame.request] = number
            connection.unread_tasks += 1
            job, attempt = connection.key
            self._send(replace(frame, request=number, job=job, attempt=attempt))
        elif isinstance(frame, (ShellInput, ShellTaken, ShellSignal, CloseShell)):
            if frame.request in connection.requests:
                self._send(_renumbered(frame, connection.requests[frame.request]))
        else:
            return False
        return True

    def _greet(self, connection: _Connection, frame: Frame) -> bool:
        """Handle a message of a connection that has not proved its attempt. Return False if the connection
        must be closed.
        """
        if connection.refusal:
            if isinstance(frame, StepCall):
                self._write(connection, StepNumber(frame.request, error=connection.refusal))
            return False
        key = self._proved(connection, frame) if isinstance(frame, StepHello) else None
        if key is None:
            return False
        same = sum(each.key == key for each in self._connections)
        if same < _MOST_OF_ATTEMPT:
            connection.key = key
        else:
            connection.refusal = (
                f"{same} srun commands of job {key[0]} run on this node already; wait until one has ended"
            )
        return True

    def _proved(self, connection: _Connection, hello: StepHello) -> Optional[AttemptKey]:
        """Return the attempt that `hello`, the first message of a connection, names. Return None if this
        attempt does not run on this node, if the connected process does not belong to the attempt, or if the
        mark in `hello` is wrong.
        """
        key = parse_key(hello.attempt)
        if key is None or self._rank_of(key) is None:
            return None
        right = mark_code(self.mark_key, format_key(key), connection.uid)
        if not hmac.compare_digest(right.encode(), hello.mark.encode("utf-8", "replace")):
            return None
        return key if connection.pid in self._processes(key) else None

    def _call(self, connection: _Connection, key: AttemptKey, call: StepCall) -> None:
        connection.ended = call.step.ended_at is not None
        if self._rank_of(key) == 0:
            ticks = process_tree.start_ticks(connection.pid) or 0
            step = replace(call.step, pid=connection.pid, pid_ticks=ticks)
            self._answer(connection, self.record(key, replace(call, step=step)))
            return
        if connection.unanswered >= _MOST_UNANSWERED:
            if call.request:
                error = f"{connection.unanswered} messages about steps wait for an answer of the controller"
                self._write(connection, StepNumber(call.request, error=error))
            return
        connection.unanswered += 1
        number = self._number(connection, call.request)
        self._send(StepCall(number, *key, _without_process(call.step)))

    def record(self, key: AttemptKey, call: StepCall) -> StepNumber:
        """Record a step of an attempt that has this node as its first node. Return the number of the step, or
        the reason why it cannot be recorded.
        """
        if self._rank_of(key) != 0:
            return StepNumber(call.request, error=f"job {key[0]} does not run on its first node")
        try:
            return StepNumber(call.request, self._records.call(key, call.step))
        except NoSuchStep as error:
            return StepNumber(call.request, error=str(error))

    # --- messages of the controller ---

    def take_call(self, call: StepCall) -> None:
        """Record the beginning or the end of a step that srun on another node, or a client of the API, has
        reported. Send the number of the step to the controller.
        """
        call = replace(call, step=_without_process(call.step))
        self._send(self.record((call.job, call.attempt), call))

    def take_answer(self, frame: Union[ShellOutput, ShellEnded, StepNumber, InputTaken, TaskAway]) -> None:
        """Pass an answer of the controller to the srun that waits for the answer."""
        connection, request = self._requests.get(frame.request, (None, 0))
        if connection is None:
            return
        if not isinstance(frame, (ShellOutput, InputTaken)):
            del self._requests[frame.request]
            if isinstance(frame, StepNumber):
                connection.unanswered -= 1
            else:
                connection.requests.pop(request, None)
        answer: Any = replace(frame, request=request)
        if isinstance(frame, StepNumber):
            self._answer(connection, answer)
        else:
            self._write(connection, answer)

    def signal(self, order: Signal) -> None:
        """Pass the order to cancel a step to the srun of this step, and record the user that has cancelled
        the step. Do nothing for a signal to the whole job, or without a user (`by`).
        """
        key, step = (order.job, order.attempt), order.step
        if step is None or not order.by:
            return
        self._records.cancel(key, step, order.by)
        for connection in list(self._connections):
            if connection.key == key and connection.step == step:
                self._write(connection, order)

    # --- connections of srun ---

    def _number(self, connection: _Connection, request: int) -> int:
        self._last_request += 1
        self._requests[self._last_request] = (connection, request)
        return self._last_request

    def _answer(self, connection: _Connection, answer: StepNumber) -> None:
        if answer.number >= 0:
            connection.step = answer.number
        self._write(connection, answer)

    def _write(self, connection: _Connection, frame: Frame) -> None:
        if connection not in self._connections:
            return
        connection.outgoing += pack(frame)
        self._flush(connection)

    def _flush(self, connection: _Connection) -> None:
        number = connection.sock.fileno()
        try:
            while connection.outgoing:
                del connection.outgoing[: connection.sock.send(connection.outgoing[:_READ])]
        except BlockingIOError:
            tasks = min(connection.unread_tasks, _MOST_TASKS)
            if len(connection.outgoing) > _UNREAD_BYTES + tasks * _UNREAD_TASK_BYTES:
                self._close(connection)
                return
            self._loop.on_writable(number, partial(self._flush, connection))
            return
        except OSError:
            self._close(connection)
            return
        connection.unread_tasks = len(connection.requests)
        self._loop.on_writable(number, None)

    def _close(self, connection: _Connection) -> None:
        if connection not in self._connections:
            return
        del self._connections[connection]
        self._loop.on_readable(connection.sock.fileno(), None)
        self._loop.on_writable(connection.sock.fileno(), None)
        connection.sock.close()
        for number in connection.requests.values():
            self._send(CloseShell(number))
        for number in [each for each, (other, _) in self._requests.items() if other is connection]:
            del self._requests[number]
        if connection.key is not None and connection.step >= 0 and not connection.ended:
            self._kill_tasks(connection.key, connection.step)
            self._records.abandon(connection.key, connection.step)


def _is_valid(frame: Frame) -> bool:
    """Return whether the agent of another node can carry out this message of srun. The user can change srun,
    so its messages may contain any signal name and any data.
    """
    if isinstance(frame, ShellSignal):
        return f"SIG{frame.signal}" in signal.Signals.__members__
    if isinstance(frame, ShellInput):
        try:
            b64decode(frame.data)
        except ValueError:
            return False
    return True


def _without_process(step: Step) -> Step:
    """Return the step without the pid of its srun. The agent of the first node can check only processes on
    its own host, and this srun runs on another host.
    """
    return replace(step, pid=0, pid_ticks=0)


def _renumbered(frame: _ToTask, request: int) -> _ToTask:
    return replace(frame, request=request)
