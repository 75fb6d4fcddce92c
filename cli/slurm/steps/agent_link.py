"""The connection of srun to the agent of its node, on a Unix socket."""

from __future__ import annotations

import math
import os
import queue
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from cli.slurm.steps.links import LinkLost, Output, RemoteCommand, TaskEnd
from cli.slurm.steps.remote_tasks import RemoteTasks
from wire.agent.frames import Frame, pack, unpack
from wire.agent.orders import Signal
from wire.agent.steps import VERSION, StepCall, StepHello, StepNumber, socket_path
from wire.job.steps import Step

AGENT_S = 60.0
"""srun waits at most this many seconds for the agent, because the agent does not listen while the controller
is restarted.
"""
RETRYING = "srun: Job step creation temporarily disabled, retrying"
"""What srun prints, as in Slurm, when it begins to wait for the agent."""
_ANSWER_S = 5.0
RETRY_S = 0.25
_MOST_LOST = 6
"""srun gives up after the agent has closed more than this number of connections without an answer. The agent
then does not accept this process.
"""
_READ = 1 << 16


@dataclass(frozen=True)
class ConnectionLost:
    """Returned instead of an answer: the agent has closed the connection with the number `connection` before
    it has sent the number of the step.
    """

    connection: int


class AgentLink:
    """Talks to the agent about one step.

    1. Connect to the socket, and check that the agent runs as root or as this user. Send the mark of the
       attempt (a signed text) as a proof that this srun belongs to the job.
    2. The first call of `record` requests the number of the step. The last call reports the end of the step.
    3. A lost connection means that the agent was restarted. The tasks continue. Connect again, report to the
       new agent that the step still runs, and connect to the tasks on other nodes (RemoteTasks).
    4. If the agent closes a connection without an answer, connect again, because an agent that has just
       started may not know the attempt yet.

    One thread reads the socket, passes output and ends of tasks to the callbacks of `open`, and connects
    again after a loss. Therefore no message of an earlier connection is handled after the next connection has
    begun.
    """

    def __init__(self, path: str, attempt: str, mark: str) -> None:
        self._path = path
        self._hello = StepHello(attempt, mark, VERSION)
        self._sock: socket.socket | None = None
        self._lock = threading.Lock()
        self._answers: queue.Queue[StepNumber | ConnectionLost] = queue.Queue()
        self._tasks = RemoteTasks(os.urandom(8).hex(), self._send)
        self._step = Step()
        self._calls = 1_000_000_000
        self._connections = 0
        """The number of the newest connection. Only this connection can bring the answer to the last call of
        `record`. If it is lost, before or after this call, no answer comes, and `_await_answer` returns the
        loss. The loss of an earlier connection is ignored.
        """
        self._closed = False
        self._away_since = 0.0
        self.on_cancel: Callable[[], None] = lambda: None
        """The function that is called when a user cancels the step."""

    @classmethod
    def find(cls, environment: Mapping[str, str]) -> AgentLink | None:
        """Return a link to the agent that started the job of this process; None if there is no socket of this
        agent.
        """
        spool, _, attempt = environment.get("CORRAL_SPOOL", "").rpartition("/attempts/")
        if not spool or not attempt:
            return None
        for uid in dict.fromkeys((0, os.getuid())):
            path = socket_path(spool, uid)
            with suppress(OSError):
                if os.stat(path).st_uid == uid:
                    return cls(path, attempt, environment.get("CORRAL_MARK", ""))
        return None

    # --- the record of the step ---

    def connect(self) -> None:
        sock = self._connect(time.monotonic() + AGENT_S)
        self._connections += 1
        threading.Thread(target=self._run, args=(sock, self._connections), daemon=True).start()

    def record(self, step: Step) -> int:
        self._step = step
        deadline, lost = time.monotonic() + AGENT_S, 0
        while True:
            if step.number < 0 and self._sock is None:
                self.connect()
            self._calls += 1
            sent = self._send(StepCall(self._calls, 0, 0, step))
            answer = None
            if sent or step.number < 0:
                answer = self._await_answer(min(deadline, time.monotonic() + _ANSWER_S))
            # If the call could not be sent for a step with a number, expect no answer, because the thread of
            # `_run` is connecting again.
            if isinstance(answer, StepNumber):
                if answer.error:
                    raise LinkLost(answer.error)
                self._step = replace(step, number=answer.number)
                return answer.number
            # Count the closed connections, and try again: if the agent has stopped just after srun connected,
            # the agent that replaces it will answer.
            lost += answer is not None
            if time.monotonic() >= deadline or lost > _MOST_LOST:
                raise LinkLost("the agent of this node does not answer; it may be older than srun")
            time.sleep(RETRY_S)

    def _await_answer(self, deadline: float) -> StepNumber | ConnectionLost | None:
        """Return the answer to the last call, or the loss of the connection on which the answer would come;
        None if neither has come before `deadline`.
        """
        while True:
            try:
                answer = self._answers.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                return None
            if isinstance(answer, ConnectionLost):
                if answer.connection == self._connections:
                    return answer
            elif answer.request == self._calls:
                return answer

    def update(self, step: Step) -> None:
        self._step = step
        self._send(StepCall(0, 0, 0, step))

    # --- tasks on other nodes ---

    def open(
        self,
        rank: int,
        node: str,
        command: RemoteCommand,
        output: Output,
        end: Callable[[TaskEnd], None],
    ) -> None:
        self._tasks.open(rank, node, command, output, end)

    def write(self, rank: int, data: bytes, *, end: bool = False, pmi: bool = False) -> None:
        self._tasks.write(rank, data, end=end, pmi=pmi)

    def signal(self, number: int) -> None:
        self._tasks.signal(number)

    def close(self) -> None:
        self._closed = True
        with self._lock:
            if self._sock is not None:
                with suppress(OSError):
                    self._sock.shutdown(socket.SHUT_RDWR)
                self._sock.close()

    # --- the connection to the agent ---

    def _connect(self, deadline: float) -> socket.socket:
        """Connect to the agent, and prove that this process belongs to the attempt. Raise LinkLost if the
        agent does not accept the connection before `deadline`.
        """
        begun, said = time.monotonic(), False
        while True:
            try:
                sock = self._dial()
                with self._lock:
                    sock.sendall(pack(self._hello))
                    self._sock = sock
                return sock
            except OSError as error:
                if time.monotonic() > deadline or self._closed:
                    raise LinkLost(f"the agent of this node does not answer: {error.strerror}") from None
            if not said and self._step.number < 0 and time.monotonic() > begun + 2:
                said = True
                print(RETRYING, file=sys.stderr, flush=True)
            time.sleep(RETRY_S)

    def _dial(self) -> socket.socket:
        folder, name = os.path.split(self._path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        directory = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sock.connect(f"/proc/self/fd/{directory}/{name}")
            _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if uid not in (0, os.getuid()):
                raise PermissionError(1, "another user listens on its socket")
            return sock
        except OSError:
            sock.close()
            raise
        finally:
            os.close(directory)

    def _send(self, frame: Frame) -> bool:
        with self._lock:
            if self._sock is None:
                return False
            try:
                self._sock.sendall(pack(frame))
            except OSError:
                return False
        return True

    def _run(self, sock: socket.socket, number: int) -> None:
        """Handle the messages of the connection until this link is closed. If the connection is lost, connect
        to the restarted agent and continue; return if this agent does not answer in time.

        If the step has no number yet, return when the connection `number` is lost, because `record` makes the
        next connection.
        """
        while True:
            heard = self._read(sock)
            with self._lock:
                self._sock = None
            sock.close()
            self._tasks.disconnect()
            if self._closed:
                return
            if self._step.number < 0:
                self._answers.put(ConnectionLost(number))
                return
            if heard:
                self._away_since = time.monotonic()
            # Wait, because the agent that has closed this connection may still accept new connections for a
            # moment.
            time.sleep(RETRY_S)
            try:
                # If tasks run on other nodes, try without a time limit to connect to the restarted agent.
                sock = self._connect(math.inf if self._tasks else self._away_since + AGENT_S)
            except LinkLost:
                return
            self._send(StepCall(0, 0, 0, self._step))
            self._tasks.connect_all()

    def _read(self, sock: socket.socket) -> bool:
        """Handle all messages of a connection until its end. Return whether any message has arrived."""
        rest, heard = b"", False
        while True:
            try:
                data = sock.recv(_READ)
            except OSError:
                data = b""
            if not data:
                return heard
            heard = True
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._take(unpack(line))

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, StepNumber):
            if self._step.number < 0 and frame.number >= 0 and frame.request == self._calls:
                # Set the number before `record` reads it, because the agent may close the connection now, and
                # this thread connects again only if the step has a number.
                self._step = replace(self._step, number=frame.number)
            self._answers.put(frame)
        elif isinstance(frame, Signal):
            self.on_cancel()
        else:
            self._tasks.take(frame)
