"""Commands that people run in the allocation of a job that runs, with a terminal or without one."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Callable

from agent import tree
from agent.channel import Channel
from agent.cradle import HOME
from agent.launch import Launch
from agent.loop import Loop
from agent.spool import Key, name_of
from wire.frames import CloseShell, OpenShell, ResizeShell, ShellEnded, ShellInput, ShellOutput, ShellTaken

_CODE = "import sys; sys.path.append(sys.argv[1]); from agent.shell import main; main(*sys.argv[2:])"
_READ = 1 << 15
CREDIT = 1 << 20
"""Bytes on their way to somebody who has not taken them; with more the command waits."""
MOST = 64
_LOOK_S, _SELDOM_S = 0.1, 1.0


class CannotOpen(Exception):
    """No command can be run there; says in words why."""


@dataclass
class _Shell:
    request: int
    key: Key
    process: subprocess.Popen[bytes]
    sink: int
    sources: dict[int, str]
    terminal: bool
    credit: int = CREDIT
    waiting: bytearray = field(default_factory=bytearray)
    finished: bool = False


class Shells:
    """All that are open. `prepare` makes a launch of a key and a command, or raises CannotOpen."""

    def __init__(
        self,
        loop: Loop,
        channel: Channel,
        prepare: Callable[[Key, tuple[str, ...], str], Launch],
        over: Callable[[Key], bool | None],
    ) -> None:
        self._loop = loop
        self._channel = channel
        self._prepare = prepare
        self._over = over
        self._open: dict[int, _Shell] = {}
        self._visited: dict[Key, str] = {}
        self._looking = False

    def open(self, order: OpenShell) -> None:
        """Start the command; what goes wrong is its answer."""
        key = (order.job, order.attempt)
        try:
            if len(self._open) >= MOST:
                raise CannotOpen(f"there are {MOST} open on this node already")
            launch = self._prepare(key, order.command, order.term if order.tty else "")
            shell = _start_on_terminal(order, launch) if order.tty else _start_on_pipes(order, launch)
        except (CannotOpen, OSError) as error:
            self._channel.send(ShellEnded(order.request, error=str(error)))
            return
        self._open[order.request] = shell
        self._visited[key] = launch.place
        self._listen(shell)
        if not self._looking:
            self._looking = True
            self._loop.after(_LOOK_S, self._look)

    def write(self, given: ShellInput) -> None:
        """Somebody typed."""
        shell = self._open.get(given.request)
        if shell is not None and shell.sink >= 0:
            shell.waiting += b64decode(given.data)
            shell.finished = shell.finished or given.end
            self._flush(shell)

    def take(self, told: ShellTaken) -> None:
        """Somebody has read so many bytes."""
        shell = self._open.get(told.request)
        if shell is not None:
            shell.credit += told.size
            self._listen(shell)

    def resize(self, told: ResizeShell) -> None:
        """The window has another size."""
        shell = self._open.get(told.request)
        if shell is not None and shell.terminal:
            _resize(shell.sink, told.rows, told.columns)

    def close(self, told: CloseShell) -> None:
        """Nobody is there any more: what a closed terminal does, and then the end."""
        shell = self._open.get(told.request)
        if shell is not None:
            self._end(shell)

    def close_all(self) -> None:
        """The agent leaves; jobs go on, guests do not."""
        for shell in list(self._open.values()):
            self._end(shell)

    def _listen(self, shell: _Shell) -> None:
        for source in shell.sources:
            self._loop.read(source, partial(self._read, shell, source) if shell.credit > 0 else None)

    def _read(self, shell: _Shell, source: int) -> None:
        try:
            data = os.read(source, min(_READ, max(1, shell.credit)))
        except BlockingIOError:
            return
        except OSError:  # a terminal that nobody holds any more
            data = b""
        if not data:
            self._drop(shell, source)
            return
        shell.credit -= len(data)
        stream = shell.sources[source]
        self._channel.send(ShellOutput(shell.request, b64encode(data).decode(), stream))
        if shell.credit <= 0:
            self._listen(shell)

    def _drop(self, shell: _Shell, source: int) -> None:
        self._loop.read(source, None)
        del shell.sources[source]
        if source != shell.sink:
            os.close(source)

    def _flush(self, shell: _Shell) -> None:
        try:
            while shell.waiting:
                del shell.waiting[: os.write(shell.sink, shell.waiting[:_READ])]
        except BlockingIOError:
            self._loop.write(shell.sink, partial(self._flush, shell))
            return
        except OSError:
            shell.waiting.clear()  # it does not read
        self._loop.write(shell.sink, None)
        if shell.finished and not shell.terminal:
            os.close(shell.sink)
            shell.sink = -1

    def _look(self) -> None:
        """Who has ended, and whose job has?"""
        for shell in list(self._open.values()):
            if self._over(shell.key) is not False:
                self._end(shell)
            elif shell.process.poll() is not None and not any(map(_readable, shell.sources)):
                self._finish(shell)
        for key in [key for key in self._visited if self._over(key) is not False]:
            # Where no control group did it already: whoever was left behind by a guest.
            tree.send(tree.strays(self._visited.pop(key), name_of(key), None, None), signal.SIGKILL)
        self._looking = bool(self._visited)
        if self._looking:
            self._loop.after(_LOOK_S if self._open else _SELDOM_S, self._look)

    def _end(self, shell: _Shell) -> None:
        """End its whole session, and whoever left that and still carries its mark."""
        with suppress(OSError):
            os.killpg(shell.process.pid, signal.SIGHUP)
        tree.send([*tree.descendants(shell.process.pid), shell.process.pid], signal.SIGKILL)
        shell.process.wait()
        self._finish(shell)

    def _finish(self, shell: _Shell) -> None:
        for source in list(shell.sources):
            self._drop(shell, source)
        if shell.sink >= 0:
            self._loop.write(shell.sink, None)
            os.close(shell.sink)
        del self._open[shell.request]
        code = shell.process.returncode
        ended = ShellEnded(shell.request, code) if code >= 0 else ShellEnded(shell.request, signal=-code)
        self._channel.send(ended)


def _start_on_terminal(order: OpenShell, launch: Launch) -> _Shell:
    ours, theirs = os.openpty()
    _resize(ours, order.rows, order.columns)
    try:
        process = _spawn(launch, "tty", theirs, theirs, theirs)
    except OSError:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    os.set_blocking(ours, False)
    return _Shell(order.request, (order.job, order.attempt), process, ours, {ours: "stdout"}, True)


def _start_on_pipes(order: OpenShell, launch: Launch) -> _Shell:
    process = _spawn(launch, "", subprocess.PIPE, subprocess.PIPE, subprocess.PIPE)
    descriptors = []
    for pipe in (process.stdin, process.stdout, process.stderr):
        assert pipe is not None
        descriptors.append(os.dup(pipe.fileno()))
        pipe.close()
        os.set_blocking(descriptors[-1], False)
    sink, out, err = descriptors
    return _Shell(
        order.request, (order.job, order.attempt), process, sink, {out: "stdout", err: "stderr"}, False
    )


def _spawn(launch: Launch, terminal: str, stdin: int, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    source, sink = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", "utf8", "-c", _CODE, HOME, str(source), terminal],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd="/",
            env={"LANG": "C.UTF-8"},
            start_new_session=True,
            pass_fds=(source,),
        )
    finally:
        os.close(source)
    with open(sink, "wb") as file, suppress(BrokenPipeError):
        file.write(launch.pack())
    return process


def _resize(descriptor: int, rows: int, columns: int) -> None:
    with suppress(OSError, struct.error):
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _readable(descriptor: int) -> bool:
    return bool(select.select((descriptor,), (), (), 0)[0])
