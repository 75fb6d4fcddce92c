"""Measures the CPU time and memory that the tasks of a step on this node have used until now."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

_TICKS = os.sysconf("SC_CLK_TCK")


def tree_use(root: int) -> tuple[float, int]:
    """Return two figures of a process and its descendants: their CPU time in seconds, with the CPU time of
    their ended children, and the peak memory in KiB of the running process with the highest peak.
    """
    cpu_s, peak = 0.0, 0
    for pid in _tree([root]):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
            with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
                highest = next((line.split()[1] for line in file if line.startswith("VmHWM:")), "0")
        except (OSError, IndexError):
            continue  # The process has ended.
        cpu_s += sum(map(int, fields[11:15])) / _TICKS
        peak = max(peak, int(highest))
    return cpu_s, peak


def _tree(pids: Iterable[int]) -> Iterator[int]:
    for pid in pids:
        yield pid
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                    yield from _tree([int(word) for word in file.read().split()])
        except OSError:
            continue
