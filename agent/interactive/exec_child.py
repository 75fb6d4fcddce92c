"""Runs a command of `corral exec` with the user, environment, CPUs and cgroups of a job.

The agent starts this program as a new process. This process changes its user and its cgroups, and then
replaces itself by the command (exec).
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios

from agent.attempts.launch import launch_spec
from agent.isolation.attempt_cgroup import AttemptCgroup
from agent.processes.cpu_binding import bind_process
from agent.processes.job_user import become_user
from agent.supervisor import task_process

CANNOT_RUN = 127


def main() -> None:
    """Read a launch spec (the settings of a command), and replace this process by the command.

    The first argument of the process is the descriptor of a pipe, from which the launch spec is read. If the
    second argument is not empty, stdin becomes the controlling terminal of the command.
    """
    descriptor, terminal = sys.argv[1:]
    try:
        with open(int(descriptor), "rb") as file:
            spec = launch_spec.take_spec(bytearray(file.read()))
        assert spec is not None
        if terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if spec.user is not None:
                os.fchown(0, spec.user[0], -1)
        AttemptCgroup(spec.cgroups).enter()
        bind_process(spec.cpus, spec.numa)
        become_user(spec)
        os.umask(0o022)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        task_process.exec_program(spec)
    except (OSError, task_process.TaskNotStarted) as error:
        sys.stderr.write(f"corral: {error}\n")
        sys.stderr.flush()
    os._exit(CANNOT_RUN)
