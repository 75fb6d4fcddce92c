"""GPUs as NVML knows them, asked by a probe process (probe.py) that may hang without hanging the agent."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from agent.gpus import SAMPLE_S, Loads, Readings, Tell, UnknownGpus
from agent.loop import Loop
from wire.codec import decode
from wire.frames import GpuFacts, GpuHealthChanged, GpuReport, GpuSample
from wire.words import GpuHealth

PATIENCE_S = 30.0
"""Without persistence mode the first question to eight GPUs takes many seconds."""
_HOME = str(Path(__file__).absolute().parent.parent)
_CODE = "import sys; sys.path.append(sys.argv[1]); from agent.probe import main; main(float(sys.argv[2]))"


class NoNvml(UnknownGpus):
    """This host has no NVML, or none that works."""


class Silenced(Exception):
    """The probe will say no more; says in words why."""


class Probe:
    """One probe process."""

    def __init__(self, pause_s: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CODE, _HOME, str(pause_s)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.descriptor = self._process.stdout.fileno()
        self._unfinished = b""

    def read(self, patience_s: float = 0.0) -> list[dict[str, Any]]:
        """What it said, if anything within this time; raises Silenced when that is a refusal or the end."""
        lines: list[bytes] = []
        deadline = time.monotonic() + patience_s
        while not lines:
            pause = max(0.0, deadline - time.monotonic())
            if not select.select([self.descriptor], [], [], pause)[0]:
                return []
            data = os.read(self.descriptor, 1 << 16)
            if not data:
                raise Silenced("the process that asks NVML has ended; is pynvml installed?")
            *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        words: list[dict[str, Any]] = [json.loads(line) for line in lines]
        for each in words:
            if "error" in each:
                raise Silenced(each["error"])
        return words

    def end(self) -> None:
        """Make it go; a process stuck in the driver stays, but has nobody to tell."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.kill()
        self._process.poll()


class NvmlGpus:
    """The GPUs of this host; raises UnknownGpus when NVML does not name them."""

    numa_nodes = 0

    def __init__(self, pause_s: float = SAMPLE_S, patience_s: float = PATIENCE_S) -> None:
        self._pause_s = pause_s
        self._patience_s = patience_s
        self._readings = Readings()
        self._trouble = ""
        self._probe: Probe | None = Probe(pause_s)
        self._heard = time.monotonic()
        self.facts = self._first_answer(self._probe)

    def watch(self, loop: Loop, loads: Loads, tell: Tell) -> None:  # noqa: ARG002 - these know their load
        """Pass on readings that changed; say so when NVML falls silent, and when it is back."""
        self._loop, self._tell = loop, tell
        assert self._probe is not None
        loop.read(self._probe.descriptor, self._hear)
        loop.after(self._patience_s, self._check)

    def _first_answer(self, probe: Probe) -> tuple[GpuFacts, ...]:
        try:
            for words in probe.read(self._patience_s):
                return tuple(decode(GpuFacts, gpu) for gpu in words["gpus"])
        except Silenced as error:
            probe.end()
            raise NoNvml(str(error)) from None
        probe.end()
        raise UnknownGpus(f"NVML has not answered for {self._patience_s:.0f} s; the driver may hang")

    def _check(self) -> None:
        """Every so often: is the probe there, and does it speak?"""
        silent = time.monotonic() - self._heard
        if self._probe is None:
            self._probe, self._heard = Probe(self._pause_s), time.monotonic()
            self._loop.read(self._probe.descriptor, self._hear)
        elif silent >= self._patience_s:
            self._lose(f"NVML has not answered for {silent:.0f} s")
        self._loop.after(self._patience_s, self._check)

    def _hear(self) -> None:
        assert self._probe is not None
        try:
            for words in self._probe.read():
                self._heard = time.monotonic()
                self._say_health("")
                news = self._readings.changed([decode(GpuSample, each) for each in words.get("samples", ())])
                if news:
                    self._tell(GpuReport(news))
        except Silenced as error:
            self._lose(str(error))

    def _lose(self, why: str) -> None:
        if self._probe is not None:
            self._loop.read(self._probe.descriptor, None)
            self._probe.end()
            self._probe = None
        self._say_health(why)

    def _say_health(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            health = GpuHealth.SUSPECT if trouble else GpuHealth.OK
            for gpu in self.facts:
                self._tell(GpuHealthChanged(gpu.uuid, health, trouble))
