"""Measures the CPU time and the memory of running attempts, from their cgroups or from their processes.

1. Every `SAMPLE_INTERVAL_S` seconds, read CPU time and memory of each running attempt from its cgroup.
2. If the cgroup of an attempt does not count CPU time or memory, read /proc/<pid>/stat of all processes once,
   and add up the descendants of the attempt's supervisor. Wait longer before the next sample if this scan was
   slow.
3. Keep the highest memory as the peak. Save the peak in a file beside the record, so that the peak survives a
   restart of the agent.
4. Add CPU time and peak to the status of an ended attempt.

A peak between two samples is missed. In step 2, files and shared memory segments count once for all processes
of an attempt. Any other shared memory, such as that of a process and its forked child, counts once for each
process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Callable, Optional

from agent.attempts.spool import AttemptKey
from agent.isolation.attempt_cgroup import AttemptCgroup
from agent.processes import process_tree
from wire.agent.reports import AttemptStatus, HostUse, Usage
from wire.dataclass import dataclass

SAMPLE_INTERVAL_S = 2.0
_PAUSES_PER_COST = 100
"""The pause after a sample is at least _PAUSES_PER_COST times as long as the sample took."""
_SAVE_GROWTH = 1.05
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class MeasuredAttempt:
    """A running attempt to measure: its key, the pid of its supervisor, and its cgroups."""

    key: AttemptKey
    supervisor: Optional[int]
    cgroup: AttemptCgroup


class HostMeter:
    """Measures the CPU time and memory of attempts. `directory` returns the spool directory of an attempt, in
    which the peak is saved.
    """

    def __init__(self, directory: Callable[[AttemptKey], str]) -> None:
        self._directory = directory
        self._uses: dict[AttemptKey, HostUse] = {}
        self._saved_mib: dict[AttemptKey, int] = {}

    def sample(self, attempts: Iterable[MeasuredAttempt]) -> float:
        """Measure all running attempts. Return the number of seconds until the next sample."""
        begun = time.monotonic()
        tree: Optional[process_tree.ProcessTable] = None
        for each in attempts:
            cpu_s, memory_mib = each.cgroup.cpu_s(), each.cgroup.memory_mib()
            if (cpu_s is None or memory_mib is None) and each.supervisor is not None:
                tree = tree or process_tree.ProcessTable()
                ticks, pages = tree.usage_below(each.supervisor)
                cpu_s = ticks / _TICKS_PER_S if cpu_s is None else cpu_s
                memory_mib = pages * _PAGE >> 20 if memory_mib is None else memory_mib
            if cpu_s is not None and memory_mib is not None:
                self._add(each.key, cpu_s, memory_mib)
        return max(SAMPLE_INTERVAL_S, _PAUSES_PER_COST * (time.monotonic() - begun))

    def uses(self) -> dict[AttemptKey, HostUse]:
        """Return CPU time, memory and peak memory of each attempt that was measured at least once and is not
        settled.
        """
        return self._uses

    def with_usage(self, status: AttemptStatus) -> AttemptStatus:
        """Return the status of an ended attempt with its CPU time and peak memory. Return the status of any
        other attempt, and of an attempt that never started, unchanged.
        """
        key = (status.job, status.attempt)
        if status.ended_at is None or status.pid is None:
            return status
        known, found = self._uses.get(key) or HostUse(peak_mib=self._load(key)), status.usage or Usage()
        # Use the peak of the largest process as a lower bound, because an attempt may have ended before its
        # first sample.
        peak_mib = max(known.peak_mib, found.max_rss_mib)
        return replace(status, usage=replace(found, cpu_s=max(found.cpu_s, known.cpu_s), memory_mib=peak_mib))

    def forget(self, key: AttemptKey) -> None:
        self._uses.pop(key, None)
        self._saved_mib.pop(key, None)

    def _add(self, key: AttemptKey, cpu_s: float, memory_mib: int) -> None:
        known = self._uses.get(key)
        if known is None:
            self._saved_mib[key] = self._load(key)
            known = HostUse(peak_mib=self._saved_mib[key])
        # Keep the highest CPU time so far. The sum over /proc falls when a process ends and its parent does
        # not collect its exit status.
        use = HostUse(max(known.cpu_s, cpu_s), memory_mib, max(known.peak_mib, memory_mib))
        self._uses[key] = use
        if use.peak_mib > self._saved_mib[key] * _SAVE_GROWTH:
            self._saved_mib[key] = use.peak_mib
            self._save(key, use.peak_mib)

    def _file(self, key: AttemptKey) -> str:
        return f"{self._directory(key)}/memory-peak"

    def _load(self, key: AttemptKey) -> int:
        """Return the peak in MiB that an earlier agent saved for an attempt; 0 if there is none."""
        try:
            with open(self._file(key), encoding="ascii") as file:
                return int(file.read())
        except (OSError, ValueError):
            return 0

    def _save(self, key: AttemptKey, peak_mib: int) -> None:
        new = self._file(key) + ".new"
        with suppress(OSError):  # Continue without saving the peak, for example on a full disk.
            with open(new, "w", encoding="ascii") as file:
                file.write(str(peak_mib))
            os.replace(new, self._file(key))
