"""Reads tables of GPU jobs: CSV with column names, or one JSON object per line.

The columns submit and duration (in seconds) are required, all others are optional. Besides the columns user,
code, job and checkpoint_every, three groups of columns set fields of the JobSpec:

1. Columns that this module converts itself, such as gpus, memory and saves (`_OF_SPEC`).
2. The columns begin and deadline (`_MOMENTS`). They contain a time in seconds on the scale of the column
   submit, or a time after the submit, such as +2h.
3. All other options of corral submit, such as gpus-per-node, each with the name of the option
   (`OptionColumns`).

docs/simulator.md describes every column.
"""

from __future__ import annotations

import csv
import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from controller.core.input_handlers.resource_sizes import FIXED_SIZES
from controller.sim.cluster import memory_mib
from controller.sim.logs.log_file import LogFile, LogFormat, LogRefused
from controller.sim.trace_job import TraceJob
from wire import amounts
from wire.job.spec import JobSpec, spec_problems
from wire.names import PRIORITIES
from wire.text import printable

SEPARATOR = "|"
"""The character that separates the values in a cell with several values."""
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
    return tuple(sorted(name.strip() for name in text.split(SEPARATOR)))


def _span(text: str) -> float:
    return _number(text) if _NUMBER.fullmatch(text) else amounts.seconds(text)


def _interval(text: str) -> float:
    seconds = _span(text)
    if seconds < 1:
        raise ValueError(f"{text!r} is less than one second")
    return seconds


def _moment(text: str, submit_s: float) -> float:
    if text.startswith("+"):
        return submit_s + amounts.seconds(text[1:])
    if not _NUMBER.fullmatch(text):
        raise ValueError(
            f"{text!r} is neither a number of seconds on the clock of the column submit, nor a time after "
            "the submit of the job, such as +2h"
        )
    return _number(text)


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
    "preemptible": ("preemptible", _yes),
}
_MOMENTS = {"begin": "begin_at", "deadline": "deadline_at"}
_REQUIRED = ("submit", "duration")
COLUMNS = (*_REQUIRED, *_OF_SPEC, *_MOMENTS, "user", "code", "job", "checkpoint_every")
_JOB = re.compile(r"[1-9]\d{0,17}(_\d{1,9})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class OptionColumns:
    """The columns of a table that are named like options of corral submit, and a function that reads these
    columns.

    The command line makes this object, because the options are defined there and the simulator does not
    import the command line.
    """

    names: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    """The columns that name other jobs of the table, such as after_ok."""
    after_all: tuple[str, ...] = ()
    """The columns that are valid only together with a dependency, such as after_timeout."""
    read: Callable[[Mapping[str, str]], dict[str, Any]] = lambda _cells: {}
    """A function that returns the JobSpec fields, by name, for the cells of one row. If a cell is invalid,
    the function raises ValueError with the name of its column.
    """
    column_of: Callable[[str], str] = lambda field: field
    """A function that returns the name of the column that sets a JobSpec field; empty if no column sets the
    field.
    """


NO_OPTION_COLUMNS = OptionColumns()


class GpuJobTable:
    """Reads the jobs of a table.

    1. Read the rows one by one. Each row becomes a job without dependencies.
    2. After the last row, convert each row with dependencies again, now with its dependencies. A dependency
       names jobs by number or by name. A name stands for all jobs with this name that were submitted earlier.
    """

    def __init__(
        self, file: LogFile, options: OptionColumns = NO_OPTION_COLUMNS, overhead_column: str = ""
    ) -> None:
        self._names: set[str] = set()
        self._file = file
        self._options = options
        self._overhead_column = overhead_column
        """The column with the start overhead of each job; empty if no column has it."""
        overhead = [overhead_column] if overhead_column and overhead_column not in COLUMNS else []
        self._columns = (*COLUMNS, *options.names, *options.dependencies, *options.after_all, *overhead)
        self._specs: dict[tuple[str, ...], JobSpec] = {}
        self._count = 0
        self._dependent: list[tuple[int, int, Mapping[str, str]]] = []
        """For each job with dependencies: its index in the list of jobs, its line number in the file, and its
        cells.
        """

    def jobs(self, form: LogFormat) -> list[TraceJob]:
        """Read the whole file, and return its jobs in the order of the lines."""
        jobs: list[TraceJob | None] = []
        for line, cells in self._csv() if form is LogFormat.CSV else self._json():
            jobs += self._read(line, cells, len(jobs))
        if self._dependent:
            self._read_dependencies(jobs)
        if self._overhead_column and self._overhead_column not in self._names:
            among = f"there is no column {self._overhead_column!r} with the start overhead of the jobs"
            raise LogRefused(
                self._file.name, among, "--start-overhead names a column, or a time such as 30s."
            )
        return [job for job in jobs if job is not None]

    def _csv(self) -> Iterator[tuple[int, Mapping[str, str]]]:
        """Yield the line number and the cells, by column name, of each row of a CSV table. The first line of
        the table has the column names."""
        heading: list[str] = []
        for number, text in self._file:
            if not text.strip():
                continue
            try:
                # Parse each line separately, so that a missing quotation mark makes only one line invalid.
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
                yield number, dict(zip(heading, row, strict=True))

    def _json(self) -> Iterator[tuple[int, Mapping[str, str]]]:
        """Yield the line number and the cells, by column name, of each line of a file with one JSON object
        per line."""
        for number, text in self._file:
            if not text.strip():
                continue
            try:
                row = _object(text)
                cells = {name: _text(name, value) for name, value in row.items() if name in self._columns}
            except (ValueError, RecursionError) as error:
                self._file.broken(number, f"is not a JSON object of numbers and texts: {error}")
                continue
            self._names |= row.keys()
            yield number, cells

    @property
    def unread(self) -> list[str]:
        """Return the names of columns that the simulator does not use, each with a hint if a known column has
        a similar name.

        Call this after jobs(), because each line of JSON may have other columns.
        """
        missing = set(self._columns) - self._names
        found = []
        for name in sorted(self._names - set(self._columns)):
            meant = difflib.get_close_matches(name, missing, n=1, cutoff=0.7)
            found.append(f"{name} (is {meant[0]} meant?)" if meant else name)
        return found

    def _heading(self, row: list[str], number: int) -> list[str]:
        heading = [name.strip().lower() for name in row]
        known = f"The first line names the columns; known are {', '.join(self._columns)}."
        for name in _REQUIRED:
            if name not in heading:
                among = f"there is no column {name!r} among {printable(', '.join(heading), 80)}"
                split = len(heading) == 1 and any(mark in heading[0] for mark in ";\t|")
                commas = "Columns are separated by commas. " if split else ""
                raise LogRefused(self._file.name, among, commas + known, number)
        for at, name in enumerate(heading):
            if name in heading[:at]:
                raise LogRefused(self._file.name, f"the column {name!r} occurs twice", known, number)
        self._names |= set(heading)
        return heading

    def _read(self, line: int, row: Mapping[str, str], index: int) -> Iterator[TraceJob]:
        """Yield the job of a row, without its dependencies. Yield nothing if the row is invalid and is
        skipped. `index` is the index that the job gets in the list of jobs.
        """
        self._count += 1
        cells = {name: text for name in self._columns if (text := row.get(name, "").strip())}
        options = self._options
        later = [name for name in (*options.dependencies, *options.after_all) if name in cells]
        try:
            cells.setdefault("job", str(self._count))
            yield self._job({name: text for name, text in cells.items() if name not in later})
        except ValueError as error:
            self._file.broken(line, str(error))
            return
        if later:
            self._dependent.append((index, line, cells))

    def _read_dependencies(self, jobs: list[TraceJob | None]) -> None:
        """Add the dependencies to the jobs in the list `jobs`. If a dependency is invalid and the row is
        skipped, replace the job by None.
        """
        order = sorted((each.submit_s, index, each) for index, each in enumerate(jobs) if each is not None)
        place = {each.number: position for position, (_, _, each) in enumerate(order)}
        named: dict[str, list[int]] = {}
        for _, _, each in order:
            named.setdefault(each.spec.name, []).append(each.number)
        for index, line, cells in self._dependent:
            known = jobs[index]
            assert known is not None
            numbered = dict(cells)
            try:
                for name in self._options.dependencies:
                    if name in cells:
                        numbered[name] = _numbers(name, cells[name], known.number, place, named)
                jobs[index] = self._job(numbered)
            except ValueError as error:
                self._file.broken(line, str(error))
                jobs[index] = None

    def _job(self, cells: Mapping[str, str]) -> TraceJob:
        for name in _REQUIRED:
            if name not in cells:
                raise ValueError(f"{name} is missing")
        every = _cell(cells, "checkpoint_every", _interval) if "checkpoint_every" in cells else None
        submit_s = _cell(cells, "submit", _number)
        column = self._overhead_column
        return TraceJob(
            number=_cell(cells, "job", _whole),
            submit_s=submit_s,
            spec=self._spec(cells, submit_s),
            runtime_s=_cell(cells, "duration", _number),
            user=cells.get("user", "nobody"),
            code=_cell(cells, "code", _whole) if "code" in cells else 0,
            checkpoint_every_s=every,
            start_overhead_s=_cell(cells, column, _span) if column in cells else 0.0,
        )

    def _spec(self, cells: Mapping[str, str], submit_s: float) -> JobSpec:
        options = self._options
        names = (*options.names, *options.dependencies, *options.after_all)
        times = [name for name in _MOMENTS if name in cells]
        key = (
            *(cells.get(name, "") for name in (*_OF_SPEC, *_MOMENTS, *names)),
            cells["submit"] if times else "",
        )
        spec = self._specs.get(key)
        if spec is None:
            fields = {
                field: _cell(cells, name, read) for name, (field, read) in _OF_SPEC.items() if name in cells
            }
            for name in times:
                fields[_MOMENTS[name]] = _cell(cells, name, lambda text: _moment(text, submit_s))
            asked = {name: cells[name] for name in names if name in cells}
            # Set the grace time to 0, because in the simulation a job ends exactly at its time limit.
            spec = JobSpec(("true",), grace_s=0.0, **{**FIXED_SIZES, **fields})
            if asked:
                spec = replace(spec, **options.read(asked))
            for where, message in spec_problems(spec):
                raise ValueError(f"{self._column_of(where)}: {message}")
            self._specs[key] = spec
        return spec

    def _column_of(self, where: str) -> str:
        """Return the name of the column that sets the JobSpec field `where`. If no column sets the field,
        return `where`."""
        own = {field: name for name, (field, _) in _OF_SPEC.items()}
        own |= {field: name for name, field in _MOMENTS.items()}
        return own.get(where) or self._options.column_of(where) or where


def _numbers(
    column: str, text: str, job: int, place: Mapping[int, int], named: Mapping[str, list[int]]
) -> str:
    """Return the cell `text` of a dependency column with each job name replaced by the numbers of the jobs
    with this name. `job` is the number of the job that has the dependency.

    `place` maps each job number to the index of the job in submit order, and `named` maps each job name to
    job numbers. Raise ValueError for a job that is unknown or not submitted before `job`.
    """
    found: list[str] = []
    for each in (part.strip() for part in text.replace(SEPARATOR, ",").split(",")):
        number = int(each.partition("_")[0]) if _JOB.fullmatch(each) else 0
        if number in place:
            if place[number] >= place[job]:
                raise ValueError(f"{column}: job {each} is not submitted before this job")
            found.append(each)
            continue
        before = [str(other) for other in named.get(each, ()) if each and place[other] < place[job]]
        if not before:
            raise ValueError(
                f"{column}: no job with the number or name {each!r} is submitted before this job"
            )
        found += before
    return ",".join(dict.fromkeys(found))


def _cell(row: Mapping[str, str], name: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(row[name])
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _object(text: str) -> dict[str, Any]:
    """Parse a line as a JSON object. Raise ValueError for any other JSON value."""
    if text.lstrip().startswith("["):
        raise ValueError("a list; write one object per line, without brackets around all objects")
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
        return SEPARATOR.join(value)
    if isinstance(value, bool | list | dict):
        raise ValueError(f"{name} is {json.dumps(value)[:40]}")
    return str(value)
