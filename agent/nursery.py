"""A small process that forks supervisors: few modules, nothing to collect, so that a fork is cheap.

Launches come on descriptor 0. It ends when the agent does; its supervisors do not.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import sys

from agent import launch, record, tree
from agent.launch import Launch
from agent.supervisor import Supervisor


def main(hints_path: str, open_files: str) -> None:
    """Fork a supervisor for every launch until the agent closes its end."""
    hints = os.open(hints_path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (int(open_files), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    boot = tree.boot_id()
    os.umask(0o022)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects supervisors
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # supervisors wait for two of them
    gc.collect()
    gc.disable()
    gc.freeze()
    buffer = bytearray()
    while True:
        part = os.read(0, 1 << 16)
        if not part:
            return
        buffer += part
        while True:
            taken = launch.take(buffer)
            if taken is None:
                break
            _fork(taken, hints, boot)


def _fork(taken: Launch, hints: int, boot: str) -> None:
    try:
        pid = os.fork()
    except OSError as error:
        message = record.line("unforked", error.strerror)
    else:
        if pid == 0:
            _become_supervisor(taken, hints, boot)
        message = record.line("forked", pid)
    _tell(hints, taken.key.encode() + b" " + message)


def _become_supervisor(taken: Launch, hints: int, boot: str) -> None:
    try:
        os.dup2(1, 0)  # the agent's socket gives way to /dev/null
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        Supervisor(taken, hints, boot).run()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def _tell(hints: int, message: bytes) -> None:
    while True:
        try:
            os.write(hints, message)
            return
        except BlockingIOError:
            select.select((), (hints,), ())
        except BrokenPipeError:
            return
