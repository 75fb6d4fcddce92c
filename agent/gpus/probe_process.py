"""The probe process, which reads the GPUs with NVML: its start, its messages and its end."""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import suppress
from typing import Any, Collection

from agent.event_loop import await_readable
from wire.program_parts import GPU_PROBE

FIRST_ANSWER_S = 30.0
"""The time limit for the first message of the probe, in seconds. Without persistence mode, the driver needs
many seconds to initialise eight GPUs.
"""


class ProbeEnded(Exception):
    """Raised if the probe process has failed or ended. The message is the reason."""


class ProbeProcess:
    """A process that reads the GPUs with NVML (nvml_probe.py). `again` is True if the process replaces an
    earlier probe process. The GPUs in `skip` are not read.
    """

    def __init__(self, pause_s: float, again: bool = False, skip: Collection[str] = ()) -> None:
        self._process = subprocess.Popen(
            GPU_PROBE.command(str(pause_s), "again" if again else "first", *sorted(skip)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.descriptor = self._process.stdout.fileno()
        self._unfinished = b""

    def read(self, patience_s: float = 0.0) -> list[dict[str, Any]]:
        """Return the messages of the probe process that have arrived. If there are none, wait at most
        `patience_s` seconds; return an empty list if none arrives. Raise ProbeEnded if the process has ended
        or reports an error.
        """
        lines: list[bytes] = []
        deadline = time.monotonic() + patience_s
        while not lines:
            if not await_readable(self.descriptor, deadline - time.monotonic()):
                return []
            data = os.read(self.descriptor, 1 << 16)
            if not data:
                raise ProbeEnded("the process that reads the GPUs with NVML has exited; is pynvml installed?")
            *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        messages: list[dict[str, Any]] = [json.loads(line) for line in lines]
        for each in messages:
            if "error" in each and "uuid" not in each:
                raise ProbeEnded(each["error"])
        return messages

    def ask(self) -> None:
        """Let the probe read all GPUs now, without waiting for the next regular reading."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(b"look\n")
            self._process.stdin.flush()

    @property
    def gone(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        """Kill the probe process and close its pipes. A process that hangs in the driver exits only when the
        driver answers.
        """
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        self._process.stdout.close()
        with suppress(OSError):
            self._process.stdin.close()
        self._process.kill()
        self._process.poll()
