"""Runs the site's program that resets a GPU, with a timeout. If the program fails, the last line of its
output is the reason.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from functools import partial
from typing import Callable, Sequence

from agent.attempts.launch.environment import BASE_PATH
from agent.event_loop import EventLoop
from wire import trusted_paths
from wire.trusted_paths import UntrustedPath

TIMEOUT_S = 120.0
_READ = 4_096


class ResetCommand:
    """One run of the reset program. When the program has ended, `then` is called with the reason of the
    failure, or with an empty string after success.
    """

    def __init__(
        self,
        loop: EventLoop,
        command: Sequence[str],
        then: Callable[[str], None],
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._loop = loop
        self._then = then
        self._text = b""
        self._ended = False
        try:
            if os.geteuid() == 0 and "/" in command[0]:
                trusted_paths.check_file(command[0])
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",
                env={"PATH": BASE_PATH, "LANG": "C.UTF-8"},
                start_new_session=True,
            )
        except (OSError, UntrustedPath) as error:
            self._ended = True
            reason = f"{command[0]}: {error.strerror}" if isinstance(error, OSError) else str(error)
            loop.call_later(0.0, partial(then, reason))
            return
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        loop.on_readable(self._output, self._read_output)
        loop.call_later(timeout_s, partial(self._time_out, timeout_s))

    def _read_output(self) -> None:
        data = os.read(self._output, _READ)
        self._text = (self._text + data)[-_READ:]
        if not data:
            self._end()

    def _time_out(self, timeout_s: float) -> None:
        if not self._ended:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._end(f"it took longer than {timeout_s:g} s")

    def _end(self, why: str = "") -> None:
        self._ended = True
        self._loop.on_readable(self._output, None)
        assert self._process.stdout is not None
        self._process.stdout.close()
        code = self._process.wait()
        lines = [line.strip() for line in self._text.decode("utf-8", "replace").splitlines() if line.strip()]
        failed = why or (f"exit code {code}" if code else "")
        self._then(f"{lines[-1][:300]} ({failed})" if failed and lines else failed)
