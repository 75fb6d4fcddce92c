"""A host without GPUs when its agent began: the driver may have been loaded after that."""

from __future__ import annotations

import sys
from functools import partial

from agent.channel import Gone
from agent.gpus import Measure, NoGpus, Tell, ignore
from agent.holders import Holders
from agent.loop import Loop
from agent.nvml import PATIENCE_S, Probe, Silenced

LOOK_S = 60.0


class LaterGpus(NoGpus):
    """None so far; NVML is asked now and then, and once it names some another agent has to tell of them."""

    def __init__(self, look_s: float = LOOK_S, patience_s: float = PATIENCE_S) -> None:
        self._look_s = look_s
        self._patience_s = patience_s

    def watch(self, loop: Loop, holders: Holders, tell: Tell, measure: Measure = ignore) -> None:
        """Look again in a while."""
        super().watch(loop, holders, tell, measure)
        self._loop = loop
        loop.after(self._look_s, self._look)

    def _look(self) -> None:
        try:
            probe = Probe(self._look_s)
        except OSError:
            self._loop.after(self._look_s, self._look)
            return
        self._loop.read(probe.descriptor, partial(self._hear, probe))
        self._loop.after(self._patience_s, partial(self._end, probe))

    def _hear(self, probe: Probe) -> None:
        try:
            found = any(words.get("gpus") for words in probe.read())
        except Silenced:
            found = False
        self._loop.read(probe.descriptor, None)
        if found:
            probe.end()
            print("agent: NVML names GPUs that it did not know when it began", file=sys.stderr)
            raise Gone

    def _end(self, probe: Probe) -> None:
        """Whatever it has said; one that hangs in the driver stays, and there is no use in a second."""
        self._loop.read(probe.descriptor, None)
        probe.end()
        self._again(probe)

    def _again(self, probe: Probe) -> None:
        self._loop.after(self._look_s, self._look if probe.gone else partial(self._again, probe))
