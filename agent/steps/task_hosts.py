"""The agent's connections to the task hosts, which run tasks of srun from other nodes (task_host.py)."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
from base64 import b64encode
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import Callable, Iterable, Mapping, Optional, Union

from agent.attempts.launch.launch_spec import LaunchSpec
from agent.attempts.spool import AttemptKey, Spool, format_key
from agent.controller_channel import Channel
from agent.event_loop import EventLoop, receive
from agent.interactive.exec_sessions import MAX_STEP_TASKS, CannotExec, is_settable
from agent.processes import process_tree
from agent.steps import listening_socket
from agent.steps.task_host import END, SOCKET, SPEC
from wire import trusted_paths
from wire.agent.frames import pack, unpack
from wire.agent.orders import CloseShell, OpenShell, ShellInput, ShellSignal, ShellTaken
from wire.agent.reports import ShellEnded, ShellOutput
from wire.agent.steps import InputTaken
from wire.codec import Malformed
from wire.dataclass import dataclass
from wire.program_parts import TASK_HOST

_CHECK_S = 1.0
_KILLED = "the process of Corral that ran the task on its node was killed"


@dataclass
class _Host:
    """The connection to the task host of an attempt. `requests` has the numbers by which messages of the
    controller name its tasks. `launch` is the launch spec of one of its tasks.
    """

    key: AttemptKey
    sock: socket.socket
    pid: int
    process: Optional[subprocess.Popen[bytes]] = None
    incoming: bytearray = field(default_factory=bytearray)
    outgoing: bytearray = field(default_factory=bytearray)
    requests: set[int] = field(default_factory=set)
    launch: Optional[LaunchSpec] = None
    told_to_end: bool = False


class TaskHosts:
    """Starts a task host for each attempt that needs one, and passes messages between the task hosts and the
    controller.

    1. `adopt`: connect to the task hosts that earlier agents have started.
    2. `open` sends the order to start a task, or to connect to a task again, with the launch spec of the
       task.
    3. When an attempt has ended, order its task host to exit, and kill the processes that its tasks have
       left.
    4. While the controller reads too slowly, do not read from task hosts.

    When the agent exits, the connections are closed, and the task hosts and their tasks continue.
    """

    def __init__(
        self,
        spool: Spool,
        loop: EventLoop,
        channel: Channel,
        prepare: Callable[[AttemptKey, tuple[str, ...], str, Mapping[str, str]], LaunchSpec],
        has_ended: Callable[[AttemptKey], bool | None],
    ) -> None:
        self._spool = spool
        self._loop = loop
        self._channel = channel
        self._prepare = prepare
        self._has_ended = has_ended
        self._hosts: dict[AttemptKey, _Host] = {}
        self._requests: dict[int, _Host] = {}
        self._paused: list[_Host] = []
        self._check_planned = False

    def adopt(self, keys: Iterable[AttemptKey]) -> None:
        """Connect to the task hosts that earlier agents have started for the attempts `keys`. Skip attempts
        without a task host.
        """
        for key in keys:
            host = self._connect(key)
            if host is not None:
                with suppress(CannotExec):
                    host.launch = self._prepare(key, ("true",), "", {})

    def open(self, order: OpenShell) -> None:
        """Start a task, or connect srun to a running task again. If the task cannot start, send ShellEnded
        with the reason.
        """
        key = (order.job, order.attempt)
        try:
            if len(self._requests) >= MAX_STEP_TASKS:
                raise CannotExec(
                    f"{MAX_STEP_TASKS} tasks of srun from other nodes run on this node already; "
                    "end one of them"
                )
            wrong = next((name for name in order.variables if not is_settable(name, order.variables)), None)
            if wrong is not None:
                raise CannotExec(f"{wrong!r} cannot be a variable of the environment")
            host, line = self._hosts.get(key), b""
            if order.resume:
                if host is None:
                    raise CannotExec(f"the task has ended, because {_KILLED}")
            else:
                launch = self._prepare(key, order.command, "", order.variables)
                line = SPEC + b64encode(launch.pack()) + b"\n"
                host = host or self._start(key)
                host.launch = launch
        except (CannotExec, OSError, trusted_paths.UntrustedPath) as error:
            self._channel.send(ShellEnded(order.request, error=str(error)))
            return
        host.requests.add(order.request)
        self._requests[order.request] = host
        self._write(host, line + pack(order))

    def pass_on(self, frame: Union[ShellInput, ShellTaken, ShellSignal, CloseShell]) -> bool:
        """Send a message to the task host that runs the task. Return False if no task host runs the task."""
        host = self._requests.get(frame.request)
        if host is None:
            return False
        self._write(host, pack(frame))
        if isinstance(frame, CloseShell) and frame.keep:
            self._forget(host, frame.request)
        return True

    def processes(self, key: AttemptKey) -> list[int]:
        """Return the pids of all tasks of an attempt that its task host runs, with their descendants."""
        host = self._hosts.get(key)
        return [] if host is None else process_tree.descendants(host.pid)

    def resume(self) -> None:
        """Read again from the task hosts that were not read while the controller read too slowly."""
        if self._paused and not self._channel.congested:
            paused, self._paused = self._paused, []
            for host in paused:
                if self._hosts.get(host.key) is host:
                    self._loop.on_readable(host.sock.fileno(), partial(self._read, host))

    # --- connections to task hosts ---

    def _connect(self, key: AttemptKey) -> Optional[_Host]:
        """Connect to the task host of an attempt. Return None if the attempt has no task host."""
        try:
            directory = trusted_paths.open_directory(self._spool.directory(key))
        except (OSError, trusted_paths.UntrustedPath):
            return None
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Connect without a timeout: connect() returns at once, because only this agent connects to the
            # task host.
            sock.connect(f"/proc/self/fd/{directory}/{SOCKET}")
        except OSError:
            sock.close()
            return None
        finally:
            os.close(directory)
        pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        sock.setblocking(False)
        host = self._hosts[key] = _Host(key, sock, pid)
        self._loop.on_readable(sock.fileno(), partial(self._read, host))
        if not self._check_planned:
            self._check_planned = True
            self._loop.call_later(_CHECK_S, self._check)
        return host

    def _start(self, key: AttemptKey) -> _Host:
        """Start the task host of an attempt, and connect to it. Raise OSError, UntrustedPath or CannotExec if
        the task host cannot be started.
        """
        directory = self._spool.directory(key)
        listener = listening_socket.bind(f"{directory}/{SOCKET}", private=True)
        try:
            log = os.open(
                f"{directory}/tasks.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            try:
                process = subprocess.Popen(
                    TASK_HOST.command(str(listener.fileno()), directory),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env={"LANG": "C.UTF-8"},
                    start_new_session=True,
                    pass_fds=(listener.fileno(),),
                )
            finally:
                os.close(log)
            host = self._connect(key)
        finally:
            listener.close()
        if host is None:
            raise CannotExec("the process that runs tasks on this node does not answer")
        host.process, host.pid = process, process.pid
        return host

    def _write(self, host: _Host, data: bytes) -> None:
        host.outgoing += data
        self._flush(host)

    def _flush(self, host: _Host) -> None:
        if self._hosts.get(host.key) is not host:
            return
        try:
            while host.outgoing:
                del host.outgoing[: host.sock.send(host.outgoing[: 1 << 18])]
        except BlockingIOError:
            self._loop.on_writable(host.sock.fileno(), partial(self._flush, host))
            return
        except OSError:
            self._lose(host)
            return
        self._loop.on_writable(host.sock.fileno(), None)

    def _read(self, host: _Host) -> None:
        if self._channel.congested:
            self._loop.on_readable(host.sock.fileno(), None)
            self._paused.append(host)
            return
        data = receive(host.sock, 1 << 18)
        if data is None:
            return
        if not data:
            self._lose(host)
            return
        host.incoming += data
        *lines, host.incoming = host.incoming.split(b"\n")
        for line in lines:
            try:
                frame = unpack(bytes(line))
            except Malformed:
                continue
            if not isinstance(frame, (ShellOutput, ShellEnded, InputTaken)):
                continue
            if frame.request in host.requests:
                self._channel.send(frame)
            if isinstance(frame, ShellEnded):
                self._forget(host, frame.request)

    def _forget(self, host: _Host, request: int) -> None:
        host.requests.discard(request)
        self._requests.pop(request, None)

    def _lose(self, host: _Host) -> None:
        """Close the connection to a task host that has exited, and report the end of its tasks. If the task
        host was ordered to exit, also kill the processes that its tasks have left.
        """
        if self._hosts.get(host.key) is not host:
            return
        del self._hosts[host.key]
        self._loop.on_readable(host.sock.fileno(), None)
        self._loop.on_writable(host.sock.fileno(), None)
        host.sock.close()
        why = "the job has ended" if host.told_to_end else _KILLED
        for request in list(host.requests):
            self._forget(host, request)
            self._channel.send(ShellEnded(request, error=why))
        if host.process is not None:
            host.process.poll()
        if host.launch is not None and host.told_to_end:
            self._kill_strays(host.key, host.launch)

    def _kill_strays(self, key: AttemptKey, launch: LaunchSpec) -> None:
        """Kill the processes that the tasks of an attempt have left. Such processes exist only on a host
        without cgroups.
        """
        uid = None if launch.user is None else launch.user[0]
        strays = process_tree.find_strays(launch.directory, format_key(key), None, None, uid, launch.mark_key)
        process_tree.send_signal(strays, signal.SIGKILL)

    def _check(self) -> None:
        for host in list(self._hosts.values()):
            if self._has_ended(host.key) is not False and not host.told_to_end:
                host.told_to_end = True
                self._write(host, END + b"the task was ended, because the job has ended\n")
            elif host.process is not None:
                host.process.poll()
        self._check_planned = bool(self._hosts)
        if self._check_planned:
            self._loop.call_later(_CHECK_S, self._check)
