"""Runs a short command as the job's user, with a timeout, and reads its output.

The fork server must stay small and imports this module, so this module imports only small modules.
"""

from __future__ import annotations

import os
import select
import signal
import time
from functools import partial

from agent.attempts.launch.launch_spec import LaunchSpec
from agent.processes.child_pipe import fork_with_pipe
from agent.processes.job_user import become_user

_MAX_OUTPUT_BYTES = 4_096
_AGENT_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent"}


def run_and_read(
    launch: LaunchSpec, argv: list[str], timeout_s: float, as_agent: bool = False
) -> tuple[int, str]:
    """Run a command, and return its exit code and stdout. The code is -1 if a signal or the timeout ended the
    command.

    The command runs as the job's user with the job's environment. If `as_agent` is True, the command runs as
    the agent's user with a fixed environment, because variables of the job could make the command use
    programs and files of the job's user.
    """
    pid, source = fork_with_pipe(partial(_become, launch, argv, as_agent))
    output, deadline = b"", time.monotonic() + timeout_s
    while select.select((source,), (), (), max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(source, _MAX_OUTPUT_BYTES)
        if not part:
            break
        output = (output + part)[:_MAX_OUTPUT_BYTES]
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(source)
    _, status = os.waitpid(pid, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1, output.decode("utf-8", "replace").strip()


def _become(launch: LaunchSpec, argv: list[str], as_agent: bool, sink: int) -> None:
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for source, target in ((nothing, 0), (sink, 1), (nothing, 2)):
            os.dup2(source, target)
        if not as_agent:
            become_user(launch)
        os.chdir("/")
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(argv[0], argv, _AGENT_ENV if as_agent else launch.env)  # noqa: S606 - no shell is the point
    finally:
        os._exit(127)
