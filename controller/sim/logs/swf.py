"""Reads the Standard Workload Format (SWF): 18 numbers per line, where -1 means unknown.

The fields of a job
- run time: the smaller of fields 4 and 9, or field 4 if field 9 is unknown
- estimate: field 9, or field 4 if field 9 is unknown
- size: field 8, or field 5 if field 8 is unknown

A job is left out and counted if its submit time, run time or size is unknown, or if it requests more
processors than the machine has. A job that ran for 0 s is left out if ZeroRuns is DROP. The filter SC15
leaves out further jobs. The fields for status, queue, memory and think time are not used.
"""

from __future__ import annotations

import enum
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from controller.sim.logs.log_file import LogFile

FIELDS = 18
LONGEST_S = 10 * 365 * 86_400.0
"""The longest estimate (time limit) of a job, in seconds. Longer estimates are reduced to this value, but not
below the run time of the job.
"""
_PROCESSORS = re.compile(r";\s*Max(Procs|Nodes)\s*:\s*(\d{1,9})\b", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(\d{1,15}\.?\d{0,15}|\.\d{1,15})(e[+-]?\d{1,2})?", re.IGNORECASE | re.ASCII)
_WHOLE = (0, 4, 7, 11)


class ZeroRuns(enum.StrEnum):
    """What happens to jobs with a run time of 0 seconds. Most of these jobs were cancelled or ran very
    briefly.
    """

    DROP = "drop"
    KEEP = "keep"
    SECOND = "second"
    """Set the run time and the estimate of the job to one second."""


class SwfFilter(enum.StrEnum):
    """The rules by which jobs of a log are left out before the simulation."""

    HOUSE = "house"
    SC15 = "sc15"
    """The filter that was used for the tables of a paper at SC'15. It leaves out jobs that ran for 0 s or
    longer than their estimate, had no allocated processors, were too large for the machine, or were submitted
    at time 0. It also leaves out jobs for which one of these values is unknown.
    """


@dataclass(frozen=True, slots=True)
class SwfOptions:
    """The options for reading an SWF log: what happens to jobs that ran for 0 seconds, and which filter
    leaves out jobs.
    """

    zero_runs: ZeroRuns = ZeroRuns.DROP
    filter: SwfFilter = SwfFilter.HOUSE


@dataclass(frozen=True, slots=True)
class SwfLine:
    """One line of the log, with the fields that the simulator uses (fields 1, 2, 4, 5, 8, 9 and 12 of
    SWF)."""

    number: int
    submit_s: float
    run_s: float
    allocated: int
    requested: int
    estimate_s: float
    user: int

    @property
    def size(self) -> int:
        """Return the number of requested processors (field 8), or of allocated processors (field 5) if field
        8 is unknown."""
        return self.requested if self.requested > 0 else self.allocated


@dataclass(frozen=True, slots=True)
class SwfJob:
    """A job to simulate. `size` and `estimate_s` are positive. `run_s` may be 0, and `user` is -1 if the user
    is unknown.
    """

    number: int
    submit_s: float
    run_s: float
    size: int
    estimate_s: float
    user: int


class SwfLog:
    """An SWF log. Iteration yields its lines; afterwards, `processors` is the number of processors that the
    header of the log names.
    """

    def __init__(self, file: LogFile) -> None:
        self._file = file
        self._header: dict[str, int] = {}

    @property
    def processors(self) -> int | None:
        """Return the number of processors of the machine: MaxProcs of the header, or MaxNodes if the header
        has no MaxProcs. Return None if the header has neither.
        """
        return self._header.get("procs") or self._header.get("nodes")

    def __iter__(self) -> Iterator[SwfLine]:
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


def _line(text: str, words: list[str]) -> SwfLine | str:
    """Return the parsed line, or an error message if the line is invalid. `words` are the fields of the
    line."""
    if len(words) != FIELDS:
        return f"has {len(words)} field{'s' * (len(words) != 1)}, not {FIELDS}"
    try:
        fields = [float(word) for word in words]
    except ValueError:
        return _number_error(words)
    if not (text.isascii() and "_" not in text and math.isfinite(sum(fields))) and (
        why := _number_error(words)
    ):
        return why
    number, allocated, requested, user = whole = [int(fields[place]) for place in _WHOLE]
    if whole != [fields[place] for place in _WHOLE]:
        return "job number, processors and user (fields 1, 5, 8 and 12) must be whole numbers"
    return SwfLine(number, fields[1], fields[3], allocated, requested, fields[8], user)


def _number_error(words: list[str]) -> str:
    """Return an error message for the first field that is not a plain number; "" if all fields are plain
    numbers.

    float() is not used for this check, because float() also accepts forms such as "nan" and "1_000".
    """
    found = next(((at, word) for at, word in enumerate(words, 1) if not _NUMBER.fullmatch(word)), None)
    return f"field {found[0]} is not a number: {found[1]!r}" if found else ""


def select_jobs(
    lines: Iterable[SwfLine], width: int, reading: SwfOptions, dropped: Counter[str]
) -> Iterator[SwfJob]:
    """Yield the jobs to simulate on a machine with `width` processors. Count the other jobs by reason in
    `dropped`."""
    for line in lines:
        run, size, asked = line.run_s, line.size, line.estimate_s
        estimate = min(asked if asked > 0 else run, max(run, LONGEST_S))
        if reading.filter is SwfFilter.SC15 and _left_out(line, width):
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
            dropped["too large for the machine"] += 1
        elif run == 0 and reading.zero_runs is ZeroRuns.SECOND:
            yield SwfJob(line.number, line.submit_s, 1.0, size, 1.0, line.user)
        else:
            yield SwfJob(line.number, line.submit_s, min(run, estimate), size, estimate or 1.0, line.user)


def _left_out(line: SwfLine, width: int) -> bool:
    return (
        line.allocated <= 0
        or max(line.allocated, line.requested) > width
        or not 0 < line.run_s <= line.estimate_s
        or line.submit_s <= 0
    )
