"""What attempts make of their GPUs, added up reading by reading, in a file beside each record.

The file is why a restart of the agent loses half a minute of it at most.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Callable, Iterable, Optional

from agent.holders import Holder
from agent.spool import Key
from wire.frames import AttemptStatus, GpuSample, GpuUse, Usage
from wire.words import WHOLE_GPU

KEEP_S = 30.0
_LONGEST_S = 60.0
"""Between two readings; after a longer silence nobody knows what happened in it."""


@dataclass
class Sums:
    """GPU-seconds at each percent of utilisation, the most memory held at once, and the energy."""

    seconds: list[float] = field(default_factory=lambda: [0.0] * 101)
    peak_mib: int = 0
    wh: float = 0.0
    kept_at: float = 0.0

    def use(self) -> Optional[GpuUse]:
        """In short; None if nothing was ever read."""
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


class Meter:
    """`place` says where an attempt's files are."""

    def __init__(self, place: Callable[[Key], str]) -> None:
        self._place = place
        self._sums: dict[Key, Sums] = {}
        self._read_at: Optional[float] = None

    def read(self, holders: Iterable[Holder], samples: Iterable[GpuSample], now: float) -> None:
        """One reading of the GPUs; whoever holds them now is taken to have held them since the last."""
        before, self._read_at = self._read_at, now
        if before is None or not 0 < now - before <= _LONGEST_S:
            return
        told = {sample.uuid: sample for sample in samples}
        for holder in holders:
            key = (holder.job, holder.attempt)
            self._add(self._known(key), holder, told, now - before)
            if now - self._sums[key].kept_at >= KEEP_S:
                self._sums[key].kept_at = now
                self._keep(key)

    def billed(self, status: AttemptStatus) -> AttemptStatus:
        """The status; once it is over, with what it made of its GPUs."""
        if status.ended_at is None:
            return status
        key = (status.job, status.attempt)
        use = self._known(key).use()
        if status.pid is None or use is None:
            self._sums.pop(key, None)
            return status
        self._keep(key)
        return replace(status, usage=replace(status.usage or Usage(), gpu=use))

    def forget(self, key: Key) -> None:
        """The end of this attempt is on record."""
        self._sums.pop(key, None)

    def _add(self, sums: Sums, holder: Holder, told: dict[str, GpuSample], seconds: float) -> None:
        memory = 0.0
        for hold in holder.gpus:
            sample = told.get(hold.uuid)
            if sample is not None:
                part = hold.milli / WHOLE_GPU
                sums.seconds[max(0, min(100, sample.utilisation))] += seconds * part
                sums.wh += sample.power_w * part * seconds / 3_600
                memory += sample.memory_used_mib * part
        sums.peak_mib = max(sums.peak_mib, round(memory))

    def _known(self, key: Key) -> Sums:
        if key not in self._sums:
            self._sums[key] = self._kept(key)
        return self._sums[key]

    def _file(self, key: Key) -> str:
        return f"{self._place(key)}/gpu-use"

    def _kept(self, key: Key) -> Sums:
        """As an earlier agent left it; what cannot be read is begun anew."""
        try:
            with open(self._file(key), encoding="ascii") as file:
                seconds, peak_mib, wh = json.load(file)
            if len(seconds) == 101:
                return Sums([float(each) for each in seconds], int(peak_mib), float(wh))
        except (OSError, ValueError, TypeError):
            pass
        return Sums()

    def _keep(self, key: Key) -> None:
        sums = self._sums[key]
        fresh = self._file(key) + ".new"
        with suppress(OSError):  # a full disk costs this figure, and no job
            with open(fresh, "w", encoding="ascii") as file:
                json.dump([[round(each, 3) for each in sums.seconds], sums.peak_mib, sums.wh], file)
            os.replace(fresh, self._file(key))
