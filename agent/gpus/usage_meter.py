"""Measures the GPU usage of attempts: mean and 95th percentile of utilisation, peak memory and energy.

1. For each reading, add the time since the previous reading to the sums of the attempts that have the GPUs
   now.
2. Every `SAVE_INTERVAL_S` seconds, save the sums of an attempt in a file beside its record. A restart of the
   agent loses at most the usage since the last save.
3. Add the final sums to the status of an ended attempt.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import suppress
from dataclasses import field, replace
from typing import Callable, Iterable, Optional, Sequence

from agent.attempts.spool import AttemptKey
from agent.gpus.process_owners import GpuHolder
from wire.agent.reports import AttemptStatus, GpuProcess, GpuSample, GpuUse, Usage
from wire.dataclass import dataclass
from wire.names import WHOLE_GPU

SAVE_INTERVAL_S = 30.0
_LONGEST_S = 60.0
"""If more than this many seconds lie between two readings, the usage between these two readings is unknown
and does not count.
"""


@dataclass
class UsageSums:
    """Accumulated GPU usage of one attempt: seconds at each percent of utilisation, peak memory in MiB,
    energy in Wh. Seconds and energy of a GPU count in proportion to the attempt's part of this GPU.
    """

    seconds: list[float] = field(default_factory=lambda: [0.0] * 101)
    peak_mib: int = 0
    wh: float = 0.0
    saved_at: float = 0.0

    def summary(self) -> Optional[GpuUse]:
        """Return mean and 95th percentile of utilisation, peak memory and energy; None if there was no
        reading.
        """
        total = sum(self.seconds)
        if not total:
            return None
        mean = sum(percent * seconds for percent, seconds in enumerate(self.seconds)) / total
        left, p95 = 0.95 * total, 100
        for percent, seconds in enumerate(self.seconds):
            left -= seconds
            if left <= 0:
                p95 = percent
                break
        return GpuUse(round(mean, 1), p95, self.peak_mib, round(self.wh, 3))


class UsageMeter:
    """Measures the GPU usage of attempts. `directory` returns the spool directory of an attempt, in which the
    usage is saved.
    """

    def __init__(self, directory: Callable[[AttemptKey], str]) -> None:
        self._directory = directory
        self._sums: dict[AttemptKey, UsageSums] = {}
        self._read_at: Optional[float] = None

    def add_samples(
        self,
        holders: Iterable[GpuHolder],
        samples: Iterable[GpuSample],
        processes: Sequence[GpuProcess],
        now: float,
    ) -> None:
        """Add one reading of the GPUs to the usage of the attempts in `holders`. `processes` are the
        processes on the GPUs. The reading counts for the time since the previous reading.
        """
        before, self._read_at = self._read_at, now
        if before is None or not 0 < now - before <= _LONGEST_S:
            return
        samples_by_uuid = {sample.uuid: sample for sample in samples}
        memory: Counter[tuple[str, Optional[int]]] = Counter()
        for process in processes:
            memory[process.uuid, process.job] += process.memory_mib
        for holder in holders:
            key = (holder.job, holder.attempt)
            self._add(self._sums_of(key), holder, samples_by_uuid, memory, now - before)
            if now - self._sums[key].saved_at >= SAVE_INTERVAL_S:
                self._sums[key].saved_at = now
                self._save(key)

    def uses(self, holders: Iterable[GpuHolder]) -> dict[AttemptKey, GpuUse]:
        """Return the GPU usage of each attempt in `holders` that has been measured."""
        found = {}
        for holder in holders:
            key = (holder.job, holder.attempt)
            use = self._sums[key].summary() if key in self._sums else None
            if use is not None:
                found[key] = use
        return found

    def with_usage(self, status: AttemptStatus) -> AttemptStatus:
        """Return the status of an ended attempt with its GPU usage added. The status of a running attempt
        is returned unchanged.
        """
        if status.ended_at is None:
            return status
        key = (status.job, status.attempt)
        use = self._sums_of(key).summary()
        if status.pid is None or use is None:
            self._sums.pop(key, None)
            return status
        self._save(key)
        return replace(status, usage=replace(status.usage or Usage(), gpu=use))

    def forget(self, key: AttemptKey) -> None:
        self._sums.pop(key, None)

    def _add(
        self,
        sums: UsageSums,
        holder: GpuHolder,
        samples_by_uuid: dict[str, GpuSample],
        process_mib: Counter[tuple[str, Optional[int]]],
        seconds: float,
    ) -> None:
        """Add one reading to `sums`, the usage of one attempt. The reading counts for `seconds` seconds.
        `process_mib` is a dict from (UUID of the GPU, job) to the GPU memory of the job's processes in MiB.
        The job is None for processes that no job started.

        1. For a whole GPU, count the used memory of the GPU, without the memory of processes that no job
           started.
        2. For a part of a GPU, count the memory of the job's processes.
        3. For a part of a GPU whose driver does not report the memory of the job's processes, count the used
           memory of the GPU in proportion to this part.
        """
        memory = 0.0
        for hold in holder.gpus:
            sample = samples_by_uuid.get(hold.uuid)
            if sample is not None:
                part = hold.milli / WHOLE_GPU
                sums.seconds[max(0, min(100, sample.utilisation))] += seconds * part
                sums.wh += sample.power_w * part * seconds / 3_600
                own = process_mib[hold.uuid, holder.job] if part < 1 else 0
                memory += own or part * max(0, sample.memory_used_mib - process_mib[hold.uuid, None])
        sums.peak_mib = max(sums.peak_mib, round(memory))

    def _sums_of(self, key: AttemptKey) -> UsageSums:
        if key not in self._sums:
            self._sums[key] = self._load(key)
        return self._sums[key]

    def _file(self, key: AttemptKey) -> str:
        return f"{self._directory(key)}/gpu-use"

    def _load(self, key: AttemptKey) -> UsageSums:
        """Return the usage that an earlier agent saved for an attempt; zeros if the file cannot be read."""
        try:
            with open(self._file(key), encoding="ascii") as file:
                seconds, peak_mib, wh = json.load(file)
            if len(seconds) == 101:
                return UsageSums([float(each) for each in seconds], int(peak_mib), float(wh))
        except (OSError, ValueError, TypeError):
            pass
        return UsageSums()

    def _save(self, key: AttemptKey) -> None:
        sums = self._sums[key]
        new = self._file(key) + ".new"
        with suppress(OSError):  # Continue without saving the usage, for example on a full disk.
            with open(new, "w", encoding="ascii") as file:
                json.dump([[round(each, 3) for each in sums.seconds], sums.peak_mib, sums.wh], file)
            os.replace(new, self._file(key))
