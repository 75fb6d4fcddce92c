"""The Standard Workload Format: 18 numbers a line, -1 for what nobody knows.

What becomes of a line: run = min(field 4, field 9), estimate = field 9, else field 4; size = field 8,
else field 5. A job is dropped, and counted, if its submit time, run time or size is unknown, if it ran
for no time at all, or if it is wider than the machine. Status, queue, memory and think times are not read.
"""

from __future__ import annotations

import enum
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from controller.sim.logfile import LogFile

FIELDS = 18
LONGEST_S = 10 * 365 * 86_400.0
"""A longer estimate says no more than this one, which is the longest limit a job may have."""
_PROCESSORS = re.compile(r";\s*Max(Procs|Nodes)\s*:\s*(\d{1,9})\b", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(\d{1,15}\.?\d{0,15}|\.\d{1,15})(e[+-]?\d{1,2})?", re.IGNORECASE | re.ASCII)
_WHOLE = (0, 4, 7, 11)


class ZeroRuns(enum.StrEnum):
    """What to do with jobs that ran for 0 seconds: mostly cancelled ones, and very short ones."""

    DROP = "drop"
    KEEP = "keep"
    SECOND = "second"
    """Run time and estimate are one second."""


class Filter(enum.StrEnum):
    """Which jobs are left out beforehand."""

    HOUSE = "house"
    SC15 = "sc15"
    """As for the tables of SC'15: all with a run time beyond their estimate, without an allocation, or
    submitted at 0."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How the doubtful lines are read."""

    zero_runs: ZeroRuns = ZeroRuns.DROP
    filter: Filter = Filter.HOUSE


@dataclass(frozen=True, slots=True)
class Line:
    """What one line says of a job, as it says it: fields 1, 2, 4, 5, 8, 9 and 12."""

    number: int
    submit_s: float
    run_s: float
    allocated: int
    requested: int
    estimate_s: float
    user: int

    @property
    def size(self) -> int:
        """Processors."""
        return self.requested if self.requested > 0 else self.allocated


@dataclass(frozen=True, slots=True)
class Job:
    """A job to be run: all known, all positive but the run time, which may be zero."""

    number: int
    submit_s: float
    run_s: float
    size: int
    estimate_s: float
    user: int


class Swf:
    """A log in this format: iterating gives its lines, then `processors` is what the header said."""

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self._header: dict[str, int] = {}

    @property
    def processors(self) -> int | None:
        """How many the machine had; without MaxProcs, a node counts as one."""
        return self._header.get("procs") or self._header.get("nodes")

    def __iter__(self) -> Iterator[Line]:
        for number, text in self._file:
            words = text.split()
            if not words:
                continue
            if words[0].startswith(";"):
                if found := _PROCESSORS.match(text.lstrip()):
                    self._header.setdefault(found[1].lower(), int(found[2]))
                continue
            line = _line(text, words)
            if isinstance(line, str):
                self._file.broken(number, line)
            else:
                yield line


def _line(text: str, words: list[str]) -> Line | str:
    """The line, or why it is none."""
    if len(words) != FIELDS:
        return f"has {len(words)} field{'s' * (len(words) != 1)}, not {FIELDS}"
    try:
        fields = [float(word) for word in words]
    except ValueError:
        return _strange(words)
    if not (text.isascii() and "_" not in text and math.isfinite(sum(fields))) and (why := _strange(words)):
        return why
    number, allocated, requested, user = whole = [int(fields[place]) for place in _WHOLE]
    if whole != [fields[place] for place in _WHOLE]:
        return "job number, processors and user (fields 1, 5, 8 and 12) must be whole numbers"
    return Line(number, fields[1], fields[3], allocated, requested, fields[8], user)


def _strange(words: list[str]) -> str:
    """What float() does not read, or reads more kindly than it should; nothing if all are numbers."""
    found = next(((at, word) for at, word in enumerate(words, 1) if not _NUMBER.fullmatch(word)), None)
    return f"field {found[0]} is not a number: {found[1]!r}" if found else ""


def choose(lines: Iterable[Line], width: int, reading: Reading, dropped: Counter[str]) -> Iterator[Job]:
    """The jobs to run on a machine of that width; the others are counted by why they are dropped."""
    for line in lines:
        run, size, asked = line.run_s, line.size, line.estimate_s
        estimate = min(asked if asked > 0 else run, max(run, LONGEST_S))
        if reading.filter is Filter.SC15 and _left_out(line, width):
            dropped["left out by the sc15 filter"] += 1
        elif line.submit_s < 0:
            dropped["unknown submit time"] += 1
        elif run < 0:
            dropped["unknown run time"] += 1
        elif size <= 0:
            dropped["unknown size"] += 1
        elif run == 0 and reading.zero_runs is ZeroRuns.DROP:
            dropped["run time 0"] += 1
        elif size > width:
            dropped["wider than the machine"] += 1
        elif run == 0 and reading.zero_runs is ZeroRuns.SECOND:
            yield Job(line.number, line.submit_s, 1.0, size, 1.0, line.user)
        else:
            yield Job(line.number, line.submit_s, min(run, estimate), size, estimate or 1.0, line.user)


def _left_out(line: Line, width: int) -> bool:
    return (
        line.allocated <= 0
        or max(line.allocated, line.requested) > width
        or not 0 < line.run_s <= line.estimate_s
        or line.submit_s <= 0
    )
