"""Connects the user's terminal with a command that runs in the allocation of a job."""

from __future__ import annotations

import os
import signal
import sys
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cli.exit_codes import FAILED, USAGE, CommandError
from cli.output.stderr import print_note
from wire.api.jobs import ShellGiven, ShellRequest, ShellSaid
from wire.http.client import Client, JobName, Refused, Unreachable

_READ = 1 << 15


def run(job: JobName, command: tuple[str, ...], node: str, terminal: bool) -> int:
    """Run a command in the job until the command ends. With `terminal`, the command gets a terminal. Return
    the exit code of the command, or 128 + N if signal N ended the command.
    """
    client = Client()
    rows, columns = _size()
    term = os.environ.get("TERM", "dumb")
    shell = client.open_shell(job, ShellRequest(command, terminal, rows, columns, term, node))
    with _raw(terminal):
        if terminal:
            # Block SIGWINCH in this thread, because the thread that runs `_fit` must receive it.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
            threading.Thread(target=_fit, args=(shell,), daemon=True).start()
        threading.Thread(target=_type, args=(shell,), daemon=True).start()
        end = _show(client.read_shell(shell))
    return _code(end)


def needs_terminal(terminal: bool | None) -> bool:
    """Return True if the command should get a terminal. Without --tty or --no-tty (`terminal` is None), the
    command gets a terminal if stdin and stdout are terminals. Raise CommandError for --tty if stdin is not a
    terminal, because the command would never see the end of its input, and would wait for ever.
    """
    if terminal is None:
        return is_terminal(0) and is_terminal(1)
    if terminal and not is_terminal(0):
        raise CommandError(
            "--tty needs a terminal, but the stdin of this command is not a terminal",
            "Leave out --tty to pass input through a pipe, or run the command in a terminal (ssh -t HOST …).",
            USAGE,
        )
    return terminal


def is_terminal(descriptor: int) -> bool:
    """Return whether the file descriptor is a terminal."""
    try:
        return os.isatty(descriptor)
    except OSError:  # The descriptor is closed.
        return False


def _show(output: Iterator[ShellSaid]) -> ShellSaid:
    for each in output:
        if each.end:
            return each
        sink = sys.stderr.buffer if each.stream == "stderr" else sys.stdout.buffer
        sink.write(b64decode(each.data))
        sink.flush()
    return ShellSaid(end=True, error="the connection was lost before the command ended")


def _code(end: ShellSaid) -> int:
    if end.error and (end.signal or end.code is not None):
        print_note(f"corral: {end.error}")
    elif end.error:
        raise CommandError(end.error, "'corral job show' lists the nodes of the job.", FAILED)
    return 128 + end.signal if end.signal else end.code or 0


def _type(shell: str) -> None:
    """Send stdin to the running command until stdin ends or the command ends. `shell` is the id of the
    command in the API.
    """
    client = Client()
    # Ignore errors, because the main thread returns the exit code of the command, or reports that the
    # connection was lost.
    with suppress(Refused, Unreachable):
        while data := os.read(0, _READ):
            client.write_shell(shell, ShellGiven(b64encode(data).decode()))
        client.write_shell(shell, ShellGiven(end=True))


def _fit(shell: str) -> None:
    """Send the new size of the terminal window to the running command each time the size changes. `shell` is
    the id of the command in the API.
    """
    client = Client()
    with suppress(Refused, Unreachable):
        while True:
            signal.sigwait({signal.SIGWINCH})
            rows, columns = _size()
            client.write_shell(shell, ShellGiven(rows=rows, columns=columns))


def _size() -> tuple[int, int]:
    try:
        columns, rows = os.get_terminal_size()
    except OSError:
        return 24, 80
    return rows, columns


@contextmanager
def _raw(terminal: bool) -> Iterator[None]:
    """Context manager that puts the terminal into raw mode, in which every key goes to the command, and
    restores the terminal at the end. It does nothing if `terminal` is false or stdin is not a terminal.
    """
    if not terminal or not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(0)
    # Use TCSADRAIN instead of TCSAFLUSH, because TCSAFLUSH would discard keys that were typed before the
    # command started.
    tty.setraw(0, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
