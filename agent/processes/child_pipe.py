"""Starts a child process of the agent. The child writes its result to a pipe, which the agent reads."""

from __future__ import annotations

import os
from typing import Callable


def fork_with_pipe(run: Callable[[int], None]) -> tuple[int, int]:
    """Fork a child process, which calls `run` with the write end of a pipe and exits. Return the process id
    of the child and the read end of the pipe. Raise OSError if the host has too many processes.
    """
    answer, sink = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(answer)
        os.close(sink)
        raise
    if pid == 0:
        try:
            run(sink)
        finally:
            os._exit(1)
    os.close(sink)
    return pid, answer
