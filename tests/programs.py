"""`python -m` in a tenth of the time: forked from a process that has imported everything already.

The program's `__main__` runs in a new process, session and environment. A test that starts a controller
sixty times does not import it sixty times.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_PREPARED = multiprocessing.get_context("forkserver")
_PREPARED.set_forkserver_preload(
    [
        "controller.api.server.app",
        "controller.config",
        "controller.daemon",
        "controller.nodes.local",
        "controller.registry",
        "controller.store.store",
        "tests.programs",
    ]
)


class Program:
    """A running program with the methods of subprocess.Popen that tests need."""

    def __init__(self, words: Sequence[str], log: Path) -> None:
        self._process = _PREPARED.Process(target=_become, args=(tuple(words), str(log)), daemon=True)
        self._process.start()
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        """Its exit code, minus the signal that ended it, or None while it runs."""
        return self._process.exitcode

    def wait(self, patience_s: float) -> int:
        """Its exit code, once it has one."""
        self._process.join(patience_s)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("program", patience_s)
        return code

    def send(self, number: int) -> None:
        """Signal it, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)


def _become(words: tuple[str, ...], log: str) -> None:
    os.setsid()
    for name in [name for name in os.environ if name.startswith("CORRAL_")]:
        del os.environ[name]
    nothing, output = (
        os.open(os.devnull, os.O_RDONLY),
        os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
    )
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    sys.argv = [*words]
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
