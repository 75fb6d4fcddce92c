"""Reads tables of GPU jobs: CSV with column names, or one JSON object per line.

The columns submit and duration (in seconds) are required. All others are optional: estimate (seconds), user,
gpus (on all nodes together; 0.25 is a part of a GPU), nodes, cpu and memory (per node: cores, and 64G or a
number of MiB), model (A100, or A100|H100), name, project, queue, profile, priority (0 to 100, or HIGH), saves
(yes: the job continues from a checkpoint after a preemption), code (exit code) and job (the job's number; by
default the jobs are counted).
"""

from __future__ import annotations

import csv
import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from controller.core.commands.resource_sizes import FIXED_SIZES
from controller.sim.cluster import memory_mib
from controller.sim.logs.log_file import LogFile, LogRefused
from controller.sim.trace_job import TraceJob
from wire.job.spec import JobSpec, spec_problems
from wire.names import PRIORITIES
from wire.text import printable

_NUMBER = re.compile(r"\d{1,15}(\.\d{0,15})?(e[+-]?\d{1,2})?", re.IGNORECASE | re.ASCII)


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a number that is zero or more")
    return float(text)


def _whole(text: str) -> int:
    number = _number(text)
    if number != int(number):
        raise ValueError(f"{text!r} is not a whole number")
    return int(number)


def _cpu_milli(text: str) -> int:
    milli = round(_number(text) * 1000)
    if not milli:
        raise ValueError(f"{text!r} is less than a thousandth of a core")
    return milli


def _memory(text: str) -> int:
    # Accept a number such as 16384.0, because many tools write columns with empty cells as floats.
    mib = _whole(text) if _NUMBER.fullmatch(text) else memory_mib(text)
    if not mib:  # Refuse 0, because a JobSpec with memory 0 would get the default amount.
        raise ValueError("must be positive")
    return mib


def _priority(text: str) -> int:
    return PRIORITIES[text.upper()] if text.upper() in PRIORITIES else _whole(text)


def _yes(text: str) -> bool:
    if text.lower() not in ("yes", "no"):
        raise ValueError(f"{text!r} is neither yes nor no")
    return text.lower() == "yes"


def _models(text: str) -> tuple[str, ...]:
    return tuple(sorted(name.strip() for name in text.split("|")))


_OF_SPEC: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "estimate": ("time_limit_s", _number),
    "gpus": ("gpus", _number),
    "nodes": ("nodes", _whole),
    "cpu": ("cpu_milli", _cpu_milli),
    "memory": ("memory_mib", _memory),
    "model": ("gpu_models", _models),
    "name": ("name", str),
    "project": ("project", str),
    "queue": ("queue", str),
    "profile": ("profile", str),
    "priority": ("priority", _priority),
    "saves": ("checkpoint_signal", lambda text: "USR1" if _yes(text) else ""),
}
_REQUIRED = ("submit", "duration")
COLUMNS = (*_REQUIRED, *_OF_SPEC, "user", "code", "job")


class GpuJobTable:
    """A table of jobs that is being read. `csv` and `json` parse it and yield its jobs."""

    def __init__(self, file: LogFile) -> None:
        self._names: set[str] = set()
        self._file = file
        self._specs: dict[tuple[str, ...], JobSpec] = {}
        self._count = 0

    def csv(self) -> Iterator[TraceJob]:
        """Yield the jobs of a CSV table whose first line has the column names."""
        heading: list[str] = []
        for number, text in self._file:
            if not text.strip():
                continue
            try:
                # Parse each line separately, so that an unmatched quotation mark affects only its own line.
                row = next(csv.reader([text], strict=True))
            except csv.Error as error:
                self._file.broken(number, f"is not CSV: {error}")
                continue
            if not heading:
                heading = self._heading(row, number)
            elif len(row) != len(heading):
                count = f"{len(row)} column{'s' * (len(row) != 1)}"
                self._file.broken(number, f"has {count}, the heading has {len(heading)}")
            else:
                yield from self._read(number, dict(zip(heading, row, strict=True)))

    def json(self) -> Iterator[TraceJob]:
        """Yield the jobs of a file that has one JSON object per line."""
        for number, text in self._file:
            if not text.strip():
                continue
            try:
                row = _object(text)
                cells = {name: _text(name, value) for name, value in row.items() if name in COLUMNS}
            except (ValueError, RecursionError) as error:
                self._file.broken(number, f"is not a JSON object of numbers and texts: {error}")
                continue
            self._names |= row.keys()
            yield from self._read(number, cells)

    @property
    def unread(self) -> list[str]:
        """The columns of the file that are unknown, each with the most similar known column name. Complete
        after the whole file has been read."""
        missing = set(COLUMNS) - self._names
        found = []
        for name in sorted(self._names - set(COLUMNS)):
            meant = difflib.get_close_matches(name, missing, n=1, cutoff=0.7)
            found.append(f"{name} (is {meant[0]} meant?)" if meant else name)
        return found

    def _heading(self, row: list[str], number: int) -> list[str]:
        heading = [name.strip().lower() for name in row]
        known = f"The first line names the columns; known are {', '.join(COLUMNS)}."
        for name in _REQUIRED:
            if name not in heading:
                among = f"there is no column {name!r} among {printable(', '.join(heading), 80)}"
                split = len(heading) == 1 and any(mark in heading[0] for mark in ";\t|")
                commas = "Columns are separated by commas. " if split else ""
                raise LogRefused(self._file.name, among, commas + known, number)
        for at, name in enumerate(heading):
            if name in heading[:at]:
                raise LogRefused(self._file.name, f"the column {name!r} is there twice", known, number)
        self._names |= set(heading)
        return heading

    def _read(self, number: int, row: Mapping[str, str]) -> Iterator[TraceJob]:
        self._count += 1
        try:
            yield self._work({name: row.get(name, "").strip() for name in COLUMNS})
        except ValueError as error:
            self._file.broken(number, str(error))

    def _work(self, row: Mapping[str, str]) -> TraceJob:
        for name in _REQUIRED:
            if not row[name]:
                raise ValueError(f"{name} is missing")
        return TraceJob(
            number=_cell(row, "job", _whole) if row["job"] else self._count,
            submit_s=_cell(row, "submit", _number),
            spec=self._spec(row),
            runtime_s=_cell(row, "duration", _number),
            user=row["user"] or "nobody",
            code=_cell(row, "code", _whole) if row["code"] else 0,
        )

    def _spec(self, row: Mapping[str, str]) -> JobSpec:
        key = tuple(row[name] for name in _OF_SPEC)
        spec = self._specs.get(key)
        if spec is None:
            asked = {field: _cell(row, name, read) for name, (field, read) in _OF_SPEC.items() if row[name]}
            # End a virtual job exactly at its time limit, without a grace period.
            spec = JobSpec(("true",), grace_s=0.0, **{**FIXED_SIZES, **asked})
            for where, message in spec_problems(spec):
                column = next((name for name, (field, _) in _OF_SPEC.items() if field == where), where)
                raise ValueError(f"{column}: {message}")
            self._specs[key] = spec
        return spec


def _cell(row: Mapping[str, str], name: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(row[name])
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _object(text: str) -> dict[str, Any]:
    """Parse a line as a JSON object. Raises ValueError for any other JSON value."""
    if text.lstrip().startswith("["):
        raise ValueError("a list; write one object a line, with no brackets around them all")
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at column {error.pos + 1}") from None
    if not isinstance(row, dict):
        raise ValueError("not an object")
    return row


def _text(name: str, value: Any) -> str:
    """Convert a JSON value to the text that a CSV cell would have."""
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "|".join(value)
    if isinstance(value, bool | list | dict):
        raise ValueError(f"{name} is {json.dumps(value)[:40]}")
    return str(value)
