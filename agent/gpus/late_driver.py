"""The GPU source of a host that had no GPUs when the agent started. The driver may be loaded later."""

from __future__ import annotations

import sys
from functools import partial

from agent.controller_channel import AgentExit
from agent.event_loop import EventLoop
from agent.gpus.interface import NoGpus, ReadingsCallback, SendFrame, ignore_readings
from agent.gpus.probe_process import FIRST_ANSWER_S, ProbeEnded, ProbeProcess
from agent.gpus.process_owners import ListHolders

PROBE_INTERVAL_S = 60.0


class LateDriverGpus(NoGpus):
    """Starts a probe process that looks for GPUs, again after each pause of a minute. When a probe finds
    GPUs, the agent exits, and the next agent reports the GPUs.
    """

    def __init__(self, interval_s: float = PROBE_INTERVAL_S, timeout_s: float = FIRST_ANSWER_S) -> None:
        self._interval_s = interval_s
        self._timeout_s = timeout_s

    def watch(
        self,
        loop: EventLoop,
        holders: ListHolders,
        send: SendFrame,
        on_samples: ReadingsCallback = ignore_readings,
    ) -> None:
        """Begin to look for GPUs at regular intervals. The first search is one interval from now."""
        super().watch(loop, holders, send, on_samples)
        self._loop = loop
        loop.call_later(self._interval_s, self._start_probe)

    def _start_probe(self) -> None:
        try:
            probe = ProbeProcess(self._interval_s)
        except OSError:
            self._loop.call_later(self._interval_s, self._start_probe)
            return
        self._loop.on_readable(probe.descriptor, partial(self._read, probe))
        self._loop.call_later(self._timeout_s, partial(self._end_probe, probe))

    def _read(self, probe: ProbeProcess) -> None:
        try:
            found = any(words.get("gpus") for words in probe.read())
        except ProbeEnded:
            found = False
        self._loop.on_readable(probe.descriptor, None)
        if found:
            probe.end()
            print("agent: NVML finds GPUs that were not there when this agent started", file=sys.stderr)
            raise AgentExit

    def _end_probe(self, probe: ProbeProcess) -> None:
        """Kill the probe process. A probe that hangs in the driver exits only when the driver answers. The
        next probe is started only after this exit.
        """
        self._loop.on_readable(probe.descriptor, None)
        probe.end()
        self._restart(probe)

    def _restart(self, probe: ProbeProcess) -> None:
        self._loop.call_later(
            self._interval_s, self._start_probe if probe.gone else partial(self._restart, probe)
        )
