"""Short questions asked as the job's user, beside the job, with a time to answer in.

Read by the nursery: imports only what is cheap.
"""

from __future__ import annotations

import os
import select
import signal
import time

from agent import job
from agent.launch import Launch

_MOST = 4_096


def ask(launch: Launch, argv: list[str], patience_s: float) -> tuple[int, str]:
    """Exit code and what it wrote to stdout; -1 if it did not end in time or could not begin."""
    answer, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(launch, argv, tell)
    os.close(tell)
    told, deadline = b"", time.monotonic() + patience_s
    while select.select((answer,), (), (), max(0.0, deadline - time.monotonic()))[0]:
        more = os.read(answer, _MOST)
        if not more:
            break
        told = (told + more)[:_MOST]
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(answer)
    _, status = os.waitpid(pid, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1, told.decode("utf-8", "replace").strip()


def _become(launch: Launch, argv: list[str], tell: int) -> None:
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for source, target in ((nothing, 0), (tell, 1), (nothing, 2)):
            os.dup2(source, target)
        job.change_user(launch)
        os.chdir("/")
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(argv[0], argv, launch.env)  # noqa: S606 - no shell is the point
    finally:
        os._exit(127)
