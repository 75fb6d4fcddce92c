"""Resetting a GPU: an outside program with a time to be done in; its last words tell why it failed."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from functools import partial
from typing import Callable, Sequence

from agent.environment import BASE_PATH
from agent.loop import Loop

PATIENCE_S = 120.0
_READ = 4_096


class Reset:
    """One run of the program; `then` hears once why it failed, or nothing if it did not."""

    def __init__(
        self, loop: Loop, command: Sequence[str], then: Callable[[str], None], patience_s: float = PATIENCE_S
    ) -> None:
        self._loop = loop
        self._then = then
        self._said = b""
        self._over = False
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",
                env={"PATH": BASE_PATH, "LANG": "C.UTF-8"},
                start_new_session=True,
            )
        except OSError as error:
            self._over = True
            loop.after(0.0, partial(then, f"{command[0]}: {error.strerror}"))
            return
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        loop.read(self._output, self._hear)
        loop.after(patience_s, partial(self._give_up, patience_s))

    def _hear(self) -> None:
        data = os.read(self._output, _READ)
        self._said = (self._said + data)[-_READ:]
        if not data:
            self._end()

    def _give_up(self, patience_s: float) -> None:
        if not self._over:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._end(f"it was not done within {patience_s:g} s")

    def _end(self, why: str = "") -> None:
        self._over = True
        self._loop.read(self._output, None)
        assert self._process.stdout is not None
        self._process.stdout.close()
        code = self._process.wait()
        lines = [line.strip() for line in self._said.decode("utf-8", "replace").splitlines() if line.strip()]
        failed = why or (f"exit code {code}" if code else "")
        self._then(f"{lines[-1][:300]} ({failed})" if failed and lines else failed)
